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
  return echo;
}

const gatewayCard = await resolver.resolve(base);
assert.equal(gatewayCard.preferredTransport, 'JSONRPC');

const echo = await run('agent', async (agent) => ({ ...gatewayCard, url: `${base}/a2a/agents/${agent}/jsonrpc` }));
const file = { kind: 'file', file: { bytes: 'AAEC/w==', name: 'b.bin', mimeType: 'application/octet-stream' } };
const data = { kind: 'data', data: { a: [1, 'two', null, { b: true }] } };
const parts = (await echo.sendMessage(ask('text', undefined, [file, data]))).artifacts[0].parts;
assert.equal(parts[1].file.bytes, 'AAEC/w==');
assert.equal(parts[1].file.name, 'b.bin');
assert.deepEqual(parts[2].data, data.data);
console.log('ok js-0.3 agent all kinds of parts');

await run('v1', (agent) => resolver.resolve(`${base}/v1/a2a/agents/${agent}/agent-card.json`, ''));
