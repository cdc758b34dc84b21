// The official JavaScript SDK (1.x line) against a running server, over JSON-RPC and HTTP+JSON, and over
// gRPC where the card names it.
//
// Usage: client_1x.mjs BASE_URL TOKEN. Prints one line per check and stops at the first failure.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import * as grpc from '@grpc/grpc-js';

import { AgentCard, Role, StreamResponse, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

import { Hook } from './hook.mjs';

const [base, token] = process.argv.slice(2).map((value) => value.replace(/\/$/, ''));
const PATIENCE_MS = 20_000;
const CHUNKS = 'urn:switchboard:a2a:push-chunks:v1';

const authenticated = createAuthenticatingFetchWithRetry(fetch, {
  headers: async () => ({ Authorization: `Bearer ${token}` }),
  shouldRetryWithHeaders: async () => undefined,
});

const withToken = (options, next) =>
  new grpc.InterceptingCall(next(options), {
    start: (metadata, listener, proceed) => {
      metadata.set('authorization', `Bearer ${token}`);
      proceed(metadata, listener);
    },
  });

// A request with these parts. The SDK's types are those of the proto: every field is there.
function ask(parts, { tenant = '', taskId = '', contextId = '', atOnce = false, metadata, hook } = {}) {
  const list = typeof parts === 'string' ? [part('text', parts)] : parts;
  return {
    tenant,
    message: {
      messageId: randomUUID(),
      contextId,
      taskId,
      role: Role.ROLE_USER,
      parts: list,
      metadata,
      extensions: [],
      referenceTaskIds: [],
    },
    configuration: {
      acceptedOutputModes: [],
      taskPushNotificationConfig: hook,
      historyLength: undefined,
      returnImmediately: atOnce,
    },
    metadata: undefined,
  };
}

function part($case, value, filename = '', mediaType = '') {
  return { content: { $case, value }, metadata: undefined, filename, mediaType };
}

function listing(fields) {
  return {
    tenant: '',
    contextId: '',
    status: TaskState.TASK_STATE_UNSPECIFIED,
    pageSize: undefined,
    pageToken: '',
    historyLength: undefined,
    statusTimestampAfter: undefined,
    includeArtifacts: undefined,
    ...fields,
  };
}

// A configuration with secrets in it, which no answer may show.
function webhook(url, { taskId = '', id = '' } = {}) {
  const authentication = { scheme: 'Basic', credentials: 'canary-credentials' };
  return { tenant: '', id, taskId, url, token: 'canary-token', authentication };
}

const eventOf = (notice) => StreamResponse.fromJSON(JSON.parse(notice.body)).payload;
const isCompleted = (notice) => eventOf(notice).value.status?.state === TaskState.TASK_STATE_COMPLETED;
const updatesOf = (events) => events.filter((event) => event.$case === 'artifactUpdate').map((event) => event.value);

const textOf = (parts) =>
  parts.map((one) => (one.content?.$case === 'text' ? one.content.value : '')).join('');
const artifactText = (task) => task.artifacts.map((artifact) => textOf(artifact.parts)).join('');
const isTask = (result) => 'status' in result;

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event.payload);
  return events;
}

// The SDK's own verifier, with the keys that the cards point to: cards as they came, with the fields of 0.3 beside those of
// 1.0 and without, and cards that the SDK has parsed.
async function checkSignatures(extended) {
  const verify = verifyAgentCardSignature(async (kid, jku) => {
    assert.equal(jku, `${base}/.well-known/jwks.json`);
    const { keys } = await (await fetch(jku)).json();
    return keys.find((key) => key.kid === kid);
  });
  const get = async (path, headers = {}) => (await fetch(`${base}${path}`, { headers })).json();
  const agent = '/a2a/agents/ask/.well-known/agent-card.json';
  const cards = {
    gateway: await get('/.well-known/agent-card.json'),
    agent: await get(agent, { 'A2A-Version': '1.0' }),
    both: await get(agent),
  };
  assert.equal(cards.both.protocolVersion, '0.3.0');
  assert.equal(cards.agent.protocolVersion, undefined);
  for (const [name, card] of Object.entries(cards)) cards[`${name}, parsed`] = AgentCard.fromJSON(card);
  cards.extended = extended;
  const { debug } = console;
  console.debug = () => {};
  for (const [name, card] of Object.entries(cards)) {
    await verify(card);
    await assert.rejects(verify({ ...card, description: `${card.description} ` }), undefined, name);
  }
  console.debug = debug;
}

// Webhooks that come with a message.
async function checkInlinePush(client, ok) {
  const hook = await Hook.listen();
  const task = await client.sendMessage(ask('hello webhook', { tenant: 'echo', hook: webhook(hook.url('inline')) }));
  const notices = await hook.until('inline', isCompleted);
  for (const { headers } of notices) {
    assert.equal(headers['content-type'], 'application/a2a+json');
    assert.equal(headers['a2a-version'], '1.0');
    assert.equal(headers.authorization, 'Basic canary-credentials');
    assert.equal(headers['x-a2a-notification-token'], 'canary-token');
  }
  const events = notices.map(eventOf);
  assert.equal(events[0].$case, 'task');
  assert.equal(events[0].value.id, task.id);
  assert.deepEqual(updatesOf(events).map((update) => textOf(update.artifact.parts)), ['hello webhook']);
  ok('webhook with a message');
  const found = await client.getTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: task.id });
  assert.equal(found.url, hook.url('inline'));
  assert.doesNotMatch(JSON.stringify(found), /canary/);
  ok('webhook with a message has the name of its task');

  const request = ask('4 30', { tenant: 'stream', hook: webhook(hook.url('chunks')) });
  const streamed = await collect(client.sendMessageStream(request, { serviceParameters: { 'A2A-Extensions': CHUNKS } }));
  const told = (await hook.until('chunks', isCompleted)).map(eventOf);
  assert.ok(updatesOf(told).length >= 2);
  assert.deepEqual(updatesOf(told), updatesOf(streamed));
  ok('webhook that is told every chunk of a stream');
  hook.close();
}

// Webhooks of a task that is there, made and removed.
async function checkPushOperations(client, ok) {
  const hook = await Hook.listen();
  const task = await client.sendMessage(ask('what is it', { tenant: 'ask' }));
  const of = (id) => ({ tenant: '', taskId: task.id, id });
  const create = (name, id = name) => client.createTaskPushNotificationConfig(webhook(hook.url(name), of(id)));
  const [kept, removed, unnamed] = [await create('kept'), await create('removed'), await create('x', '')];
  assert.deepEqual([kept.id, kept.taskId, kept.url], ['kept', task.id, hook.url('kept')]);
  assert.equal(kept.authentication.scheme, 'Basic');
  assert.match(unnamed.id, /^[0-9a-f-]{36}$/);
  assert.doesNotMatch(JSON.stringify([kept, removed, unnamed]), /canary/);
  ok('create webhooks');
  assert.deepEqual(await client.getTaskPushNotificationConfig(of('kept')), kept);
  ok('get a webhook');

  const names = async (pageSize) => {
    const found = [];
    let pageToken = '';
    do {
      const page = await client.listTaskPushNotificationConfig({ tenant: '', taskId: task.id, pageSize, pageToken });
      assert.doesNotMatch(JSON.stringify(page), /canary/);
      found.push(...page.configs.map((config) => config.id));
      pageToken = page.nextPageToken;
    } while (pageToken);
    return found.toSorted();
  };
  const all = ['kept', 'removed', unnamed.id].toSorted();
  assert.deepEqual([await names(50), await names(2)], [all, all]);
  ok('list webhooks');
  for (const id of ['removed', unnamed.id, 'removed']) await client.deleteTaskPushNotificationConfig(of(id));
  assert.deepEqual(await names(50), ['kept']);
  ok('delete webhooks');
  await client.sendMessage(ask('forty-two', { taskId: task.id }));
  const events = (await hook.until('kept', isCompleted)).map(eventOf);
  assert.equal(events[0].value.status.state, TaskState.TASK_STATE_WORKING);
  assert.ok(updatesOf(events).some((update) => textOf(update.artifact.parts).includes('forty-two')));
  assert.deepEqual([hook.told('removed'), hook.told('x')], [[], []]);
  ok('webhook of a task that goes on');
  await fails('TaskNotFoundError', client.getTaskPushNotificationConfig(of('removed')));
  ok('webhook TaskNotFoundError');
  await fails('RequestMalformedError', client.createTaskPushNotificationConfig(webhook('http://169.254.169.254/latest', of(''))));
  ok('webhook RequestMalformedError');
  hook.close();
}

// Errors come as the SDK's own types.
async function fails(expected, call) {
  const error = await call.then(
    () => assert.fail(`no ${expected}`),
    (thrown) => thrown,
  );
  assert.equal(error.name, expected, String(error));
}

async function run(binding) {
  let count = 0;
  const ok = (name) => {
    count += 1;
    console.log(`ok js ${binding} ${name}`);
  };
  const factory = new ClientFactory(
    ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
      transports: [
        new JsonRpcTransportFactory({ fetchImpl: authenticated }),
        new RestTransportFactory({ fetchImpl: authenticated }),
        new GrpcTransportFactory({
          grpcChannelCredentials: grpc.credentials.createInsecure(),
          grpcCallOptions: { interceptors: [withToken] },
        }),
      ],
      preferredTransports: [binding],
      cardResolver: new DefaultAgentCardResolver({ fetchImpl: authenticated }),
    }),
  );

  const card = await new DefaultAgentCardResolver().resolve(base);
  const urls = Object.fromEntries(card.supportedInterfaces.map((one) => [one.protocolBinding, one.url]));
  assert.equal(urls.JSONRPC, `${base}/a2a/jsonrpc`);
  assert.equal(urls['HTTP+JSON'], `${base}/a2a`);
  assert.equal(card.capabilities.streaming, true);
  ok('public card');

  const client = await factory.createFromUrl(base);
  assert.equal(client.transport.protocolName, binding);
  const extended = await client.getAgentCard();
  const skills = extended.skills.map((skill) => skill.id);
  for (const agent of ['echo', 'ask', 'slow']) assert.ok(skills.includes(agent), skills.join());
  ok('extended card');

  const asking = await factory.createFromUrl(`${base}/a2a/agents/ask/.well-known/agent-card.json`, '');
  ok('agent card');

  await checkSignatures(extended);
  ok('signatures');

  // Send, get.
  const task = await client.sendMessage(ask('hello js'));
  assert.ok(isTask(task));
  assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.equal(artifactText(task), 'hello js');
  ok('send to the default agent');
  assert.equal(artifactText(await client.sendMessage(ask('by name', { tenant: 'echo' }))), 'by name');
  ok('send to a named agent');
  const read = await client.getTask({ tenant: '', id: task.id });
  assert.deepEqual(read, task);
  const short = await client.getTask({ tenant: '', id: task.id, historyLength: 0 });
  assert.deepEqual(short.history, []);
  ok('get');

  // All kinds of parts.
  const parts = [
    part('text', 'text'),
    part('raw', Buffer.from(Array.from({ length: 256 }, (_, n) => n)), 'b.bin', 'application/octet-stream'),
    part('url', 'https://example.com/x.png', '', 'image/png'),
    part('data', { a: [1, 'two', null, { b: true }] }, '', 'application/json'),
  ];
  const typed = await client.sendMessage(ask(parts, { tenant: 'echo', metadata: { from: 'js' } }));
  assert.deepEqual(typed.artifacts[0].parts, parts);
  assert.deepEqual(typed.history[0].metadata, { from: 'js' });
  ok('all kinds of parts');

  // Stream.
  const events = await collect(client.sendMessageStream(ask('4 30', { tenant: 'stream' })));
  assert.equal(events[0].$case, 'task');
  assert.equal(events.at(-1).$case, 'statusUpdate');
  assert.equal(events.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED);
  const chunks = events.filter((event) => event.$case === 'artifactUpdate').map((event) => event.value);
  assert.ok(chunks.length >= 2);
  assert.deepEqual(chunks.map((chunk) => chunk.append), chunks.map((_, n) => n > 0));
  const streamed = await client.getTask({ tenant: '', id: events[0].value.id });
  assert.equal(artifactText(streamed), chunks.map((chunk) => textOf(chunk.artifact.parts)).join(''));
  ok('stream');

  // List.
  const contextId = randomUUID();
  const ids = [];
  for (let n = 0; n < 3; n += 1) {
    ids.push((await client.sendMessage(ask(`task ${n}`, { tenant: 'echo', contextId }))).id);
  }
  const seen = [];
  let pageToken = '';
  do {
    const page = await client.listTasks(listing({ contextId, pageSize: 2, pageToken }));
    assert.equal(page.totalSize, 3);
    assert.ok(page.tasks.every((one) => one.artifacts.length === 0));
    seen.push(...page.tasks.map((one) => one.id));
    pageToken = page.nextPageToken;
  } while (pageToken);
  assert.deepEqual(seen, ids.toReversed());
  const completed = listing({ contextId, status: TaskState.TASK_STATE_COMPLETED, includeArtifacts: true });
  assert.ok((await client.listTasks(completed)).tasks.every((one) => one.artifacts.length === 1));
  const failed = listing({ contextId, status: TaskState.TASK_STATE_FAILED });
  assert.equal((await client.listTasks(failed)).tasks.length, 0);
  ok('list');

  // Cancel.
  const running = await client.sendMessage(ask('20000', { tenant: 'slow', atOnce: true }));
  assert.ok([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(running.status.state));
  ok('return immediately');
  const canceled = await client.cancelTask({ tenant: '', id: running.id, metadata: undefined });
  assert.equal(canceled.id, running.id);
  assert.equal(canceled.status.state, TaskState.TASK_STATE_CANCELED);
  ok('cancel');

  // Subscribe.
  const followed = await client.sendMessage(ask('700', { tenant: 'slow', atOnce: true }));
  const updates = await collect(client.resubscribeTask({ tenant: '', id: followed.id }));
  assert.equal(updates[0].$case, 'task');
  assert.equal(updates[0].value.id, followed.id);
  assert.equal(updates.at(-1).value.status.state, TaskState.TASK_STATE_COMPLETED);
  ok('subscribe');

  // Continue.
  const asked = await asking.sendMessage(ask('what is it'));
  assert.equal(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED);
  assert.notEqual(textOf(asked.status.message.parts), '');
  const done = await asking.sendMessage(ask('forty-two', { taskId: asked.id, contextId: asked.contextId }));
  assert.equal(done.id, asked.id);
  assert.equal(done.status.state, TaskState.TASK_STATE_COMPLETED);
  assert.match(artifactText(done), /forty-two/);
  ok('continue an input-required task');
  const again = await client.sendMessage(ask('what is it', { tenant: 'ask' }));
  const answered = await client.sendMessage(ask('forty-three', { taskId: again.id }));
  assert.equal(answered.status.state, TaskState.TASK_STATE_COMPLETED);
  ok('continue at the gateway');

  // Direct replies.
  const reply = await client.sendMessage(ask('hello', { tenant: 'message' }));
  assert.ok(!isTask(reply));
  assert.match(textOf(reply.parts), /hello/);
  ok('direct message');
  const only = await collect(client.sendMessageStream(ask('hello', { tenant: 'message' })));
  assert.deepEqual(only.map((event) => event.$case), ['message']);
  ok('direct message in a stream');

  await checkInlinePush(client, ok);
  await checkPushOperations(client, ok);

  const cases = [
    ['TaskNotFoundError', () => client.getTask({ tenant: '', id: 'unknown' })],
    ['TaskNotCancelableError', () => client.cancelTask({ tenant: '', id: task.id, metadata: undefined })],
    ['UnsupportedOperationError', () => client.sendMessage(ask('more', { taskId: task.id }))],
  ];
  for (const [expected, call] of cases) {
    await fails(expected, call());
    ok(`error ${expected}`);
  }
  return count;
}

const giveUp = setTimeout(() => {
  console.error('the checks take too long');
  process.exit(1);
}, 6 * PATIENCE_MS);
let total = 0;
const offered = (await new DefaultAgentCardResolver().resolve(base)).supportedInterfaces.map((one) => one.protocolBinding);
for (const binding of ['JSONRPC', 'HTTP+JSON', 'GRPC']) {
  if (offered.includes(binding)) total += await run(binding);
}
clearTimeout(giveUp);
console.log(`${total} checks of the JavaScript SDK passed`);
