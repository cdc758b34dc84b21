// The official JavaScript SDK of the 0.3 line against a running server: an agent's endpoint and the /v1/a2a surface.
//
// Usage: client_03.mjs BASE_URL TOKEN. Prints one line per check and stops at the first failure.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';

import { Hook } from './hook.mjs';

const [base, token] = process.argv.slice(2).map((value) => value.replace(/\/$/, ''));
const PATIENCE_MS = 20_000;

const authenticated = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ Authorization: `Bearer ${token}` }),
  shouldRetryWithHeaders: async () => undefined,
});
const resolver = new DefaultAgentCardResolver({ fetchImpl: authenticated });
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ fetchImpl: authenticated })],
    cardResolver: resolver,
  }),
);

function ask(text, task, more = []) {
  return {
    message: {
      kind: 'message',
      messageId: randomUUID(),
      role: 'user',
      parts: [{ kind: 'text', text }, ...more],
      ...(task && { taskId: task.id, contextId: task.contextId }),
    },
  };
}

const textOf = (parts) => parts.map((part) => (part.kind === 'text' ? part.text : '')).join('');
// What an agent said, where this surface puts it.
const replyText = (task) =>
  (task.artifacts ?? []).map((artifact) => textOf(artifact.parts)).join('') || textOf(task.status.message.parts);

async function first(stream) {
  for await (const event of stream) return event;
  throw new Error('an empty stream');
}

async function wait(client, id, state) {
  const until = Date.now() + PATIENCE_MS;
  while (Date.now() < until) {
    const task = await client.getTask({ id });
    if (task.status.state === state) return task;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`${id} never reached ${state}`);
}

// A configuration with secrets in it, which no answer may show.
const webhook = (url, id) => ({
  url,
  ...(id && { id }),
  token: 'canary-token',
  authentication: { schemes: ['Bearer'], credentials: 'canary-credentials' },
});

// What a webhook was told: in 0.3 it is the task.
const taskOf = (notice) => JSON.parse(notice.body);
const isCompleted = (notice) => taskOf(notice).status.state === 'completed';

async function checkPush(echo, asking) {
  const ok = (name) => console.log(`ok js-0.3 agent ${name}`);
  const hook = await Hook.listen();
  const configuration = { pushNotificationConfig: webhook(hook.url('inline')) };
  const { id: inline } = await echo.sendMessage({ ...ask('hello webhook'), configuration });
  const notices = await hook.until('inline', isCompleted);
  for (const { headers } of notices) {
    assert.equal(headers['a2a-version'], '0.3');
    assert.equal(headers['x-a2a-notification-token'], 'canary-token');
    assert.equal(headers.authorization, 'Bearer canary-credentials');
  }
  const told = notices.map(taskOf);
  assert.ok(told.every((task) => task.kind === 'task' && task.id === inline));
  assert.equal(told[0].status.state, 'submitted');
  assert.deepEqual(told.at(-1), await echo.getTask({ id: inline }));
  ok('webhook with a message');

  const task = await asking.sendMessage(ask('what'));
  const answers = [];
  for (const name of ['kept', 'removed']) {
    const pushNotificationConfig = webhook(hook.url(name), name);
    answers.push(await asking.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig }));
  }
  assert.deepEqual(answers.map((made) => made.pushNotificationConfig.id), ['kept', 'removed']);
  ok('set webhooks');
  for (const name of [{}, { pushNotificationConfigId: 'kept' }]) {
    answers.push(await asking.getTaskPushNotificationConfig({ id: task.id, ...name }));
    assert.equal(answers.at(-1).pushNotificationConfig.url, hook.url('kept'));
  }
  ok('get a webhook, by its name and without');
  const names = async () => {
    const found = await asking.listTaskPushNotificationConfig({ id: task.id });
    answers.push(...found);
    return found.map((one) => one.pushNotificationConfig.id);
  };
  assert.deepEqual(await names(), ['kept', 'removed']);
  await asking.deleteTaskPushNotificationConfig({ id: task.id, pushNotificationConfigId: 'removed' });
  assert.deepEqual(await names(), ['kept']);
  assert.doesNotMatch(JSON.stringify(answers), /canary/);
  ok('list and delete webhooks');
  await asking.sendMessage(ask('this', task));
  const last = (await hook.until('kept', isCompleted)).map(taskOf);
  assert.equal(last[0].status.state, 'working');
  assert.match(replyText(last.at(-1)), /this/);
  assert.deepEqual(hook.told('removed'), []);
  ok('webhook of a task that goes on');
  hook.close();
}

async function run(surface, cardOf) {
  const ok = (name) => console.log(`ok js-0.3 ${surface} ${name}`);
  const clientOf = async (agent) => factory.createFromAgentCard(await cardOf(agent));

  const echo = await clientOf('echo');
  ok('card');
  const task = await echo.sendMessage(ask('hello'));
  assert.equal(task.kind, 'task');
  assert.equal(task.status.state, 'completed');
  assert.equal(replyText(task), 'hello');
  ok('send');
  assert.equal((await echo.getTask({ id: task.id })).id, task.id);
  ok('get');
  await assert.rejects(echo.getTask({ id: randomUUID() }), (error) => /not.?found/i.test(`${error.name} ${error.message}`));
  ok('unknown task');

  const streaming = await clientOf('stream');
  const events = [];
  for await (const event of streaming.sendMessageStream(ask('4 30'))) events.push(event);
  const last = events.at(-1);
  assert.equal(last.kind, 'status-update');
  assert.equal(last.status.state, 'completed');
  assert.equal(last.final, true);
  const texts = events.filter((event) => event.kind === 'artifact-update').map((event) => textOf(event.artifact.parts));
  assert.match(texts.join(''), /chunk 4/);
  ok('stream');

  const slow = await clientOf('slow');
  const begun = await first(slow.sendMessageStream(ask('10000')));
  const slowId = begun.kind === 'task' ? begun.id : begun.taskId;
  assert.equal((await slow.cancelTask({ id: slowId })).status.state, 'canceled');
  await wait(slow, slowId, 'canceled');
  ok('cancel');

  const started = await first(streaming.sendMessageStream(ask('20 50')));
  const startedId = started.kind === 'task' ? started.id : started.taskId;
  const followed = [];
  for await (const event of streaming.resubscribeTask({ id: startedId })) followed.push(event);
  assert.equal(followed.at(-1).status.state, 'completed');
  ok('resubscribe');

  const asking = await clientOf('ask');
  const question = await asking.sendMessage(ask('what'));
  assert.equal(question.status.state, 'input-required');
  const answered = await asking.sendMessage(ask('this', question));
  assert.equal(answered.id, question.id);
  assert.equal(answered.status.state, 'completed');
  ok('continue');
  return { echo, asking };
}

const gatewayCard = await resolver.resolve(base);
assert.equal(gatewayCard.preferredTransport, 'JSONRPC');

const { echo, asking } = await run('agent', async (agent) => ({ ...gatewayCard, url: `${base}/a2a/agents/${agent}/jsonrpc` }));
const file = { kind: 'file', file: { bytes: 'AAEC/w==', name: 'b.bin', mimeType: 'application/octet-stream' } };
const data = { kind: 'data', data: { a: [1, 'two', null, { b: true }] } };
const parts = (await echo.sendMessage(ask('text', undefined, [file, data]))).artifacts[0].parts;
assert.equal(parts[1].file.bytes, 'AAEC/w==');
assert.equal(parts[1].file.name, 'b.bin');
assert.deepEqual(parts[2].data, data.data);
console.log('ok js-0.3 agent all kinds of parts');
await checkPush(echo, asking);

await run('v1', (agent) => resolver.resolve(`${base}/v1/a2a/agents/${agent}/agent-card.json`, ''));
