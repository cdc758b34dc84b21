// The Vercel AI SDK with a2a-ai-provider, which speaks 0.3: an agent as a language model.
//
// Usage: guest_ai_provider.mjs BASE_URL TOKEN. Prints one line per check and stops at the first failure.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import { a2a } from 'a2a-ai-provider';
import { generateText, streamText } from 'ai';

const [base, token] = process.argv.slice(2).map((value) => value.replace(/\/$/, ''));
const PATIENCE_MS = 20_000;
const ASK_FOR_CHUNKS = '4 100';
const WHOLE = [1, 2, 3, 4].map((number) => `chunk ${number} of 4\n`).join('');

// The provider prints each event; what counts here are the checks.
const say = console.log;
console.log = () => {};
globalThis.AI_SDK_LOG_WARNINGS = false;

// The provider has no place for a token: it goes on with every request of the process.
const plain = globalThis.fetch;
let sent = token;
globalThis.fetch = (resource, options = {}) => {
  const headers = new Headers(options.headers);
  headers.set('Authorization', `Bearer ${sent}`);
  return plain(resource, { ...options, headers });
};

function same(name, seen, expected) {
  assert.deepEqual(seen, expected, name);
  say(`ok ai-provider JSONRPC ${name}`);
}

const model = (agent) => a2a(`${base}/a2a/agents/${agent}/.well-known/agent-card.json`);
const inContext = (contextId) => contextId && { providerOptions: { a2a: { contextId } } };

async function send(agent, prompt, contextId) {
  return (await generateText({ model: model(agent), prompt, ...inContext(contextId), maxRetries: 0 })).text;
}

// The pieces as they come, the text that they make, and why it ended.
async function stream(agent, prompt, contextId) {
  const result = streamText({ model: model(agent), prompt, ...inContext(contextId), maxRetries: 0 });
  const pieces = [];
  for await (const piece of result.textStream) if (piece !== '') pieces.push(piece);
  return [pieces, await result.text, await result.finishReason];
}

const versionOf = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
const packages = ['a2a-ai-provider', 'ai', '@a2a-js/sdk'];
say(`ai-provider: ${packages.map((name) => `${name} ${versionOf(name)}`).join(', ')}`);

const giveUp = setTimeout(() => {
  console.error('the checks take too long');
  process.exit(1);
}, 3 * PATIENCE_MS);

same('send', await send('echo', 'hello'), 'hello');
same('stream', await stream('echo', 'hello'), [['hello'], 'hello', 'stop']);
same('a reply of chunks', await send('stream', ASK_FOR_CHUNKS), WHOLE);
const [pieces, text] = await stream('stream', ASK_FOR_CHUNKS);
same('stream in chunks', [pieces.join(''), pieces.length > 1, text], [WHOLE, true, WHOLE]);
same('a text program', await stream('upper', 'quiet'), [['QUIET'], 'QUIET', 'stop']);
const counts = '2 the\n1 cat\n1 and\n1 dog\n';
same('stream of a command agent', (await stream('count', 'the cat and the dog'))[1], counts);
// It puts the message of a completed task before the artifacts.
same('a command agent', await send('count', 'the cat and the dog'), `5 words, 4 different ones${counts}`);
same('a direct message', await send('message', 'hello'), 'hello');
same('a direct message in a stream', (await stream('message', 'hello'))[1], 'hello');
const contextId = randomUUID();
const first = await send('recall', 'one', contextId);
const [, second] = await stream('recall', 'two', contextId);
same('second turn', [first, second], ['one', 'one / two']);
sent = 'sb_wrong';
await assert.rejects(send('echo', 'hello'));
say('ok ai-provider JSONRPC a wrong token is an error');
clearTimeout(giveUp);
