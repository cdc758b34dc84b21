// What every remote agent of the checks does with a text, and how it is served: script.py has the words.

import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const QUESTION = 'which city?';
const REASON = 'it is broken';
const PAUSE_MS = 50;

// What the agent does in one turn, one by one. A turn that says nothing else at its end has done its work. `signal` cuts a
// sleep short.
export async function* play(text, continued, signal) {
  const [word, number] = text.split(' ');
  const whole = (piece) => ({ piece, first: true, last: true });
  if (continued) {
    yield whole(`city: ${text}`);
  } else if (word === 'stream') {
    for (let piece = 1; piece <= Number(number); piece += 1) {
      yield { piece: `piece ${piece} of ${number}\n`, first: piece === 1, last: piece === Number(number) };
      await sleep(PAUSE_MS, undefined, { signal });
    }
  } else if (word === 'pause') {
    yield { piece: 'piece 1 of 2\n', first: true, last: false };
    await sleep(Number(number) * 1000, undefined, { signal });
    yield { piece: 'piece 2 of 2\n', first: false, last: true };
  } else if (word === 'ask') {
    yield { question: QUESTION };
  } else if (word === 'slow') {
    await sleep(Number(number) * 1000, undefined, { signal });
    yield whole(`slept ${number}`);
  } else if (word === 'fail') {
    yield { failure: REASON };
  } else {
    yield whole(text.slice(word.length + 1));
  }
}

// The turns that an agent was given, for the checks to look at, each with the state that its task has in the SDK's own store.
export function turnsRoute(turns, stateOf) {
  return async (_, response) => {
    response.json(await Promise.all(turns.map(async (turn) => ({ ...turn, state: await stateOf(turn.taskId) }))));
  };
}

// Notes by which call a message comes, which an agent is not told: `calls` has it by the message's id.
export function noting(RequestHandler, calls) {
  return class extends RequestHandler {
    sendMessage(request, ...rest) {
      calls.set(request.message.messageId, 'send');
      return super.sendMessage(request, ...rest);
    }

    sendMessageStream(request, ...rest) {
      calls.set(request.message.messageId, 'stream');
      return super.sendMessageStream(request, ...rest);
    }
  };
}

// A server that listens at a free port, and its address. An app is given to it once its card can say where it is.
export async function listen() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, base: `http://127.0.0.1:${server.address().port}` };
}

// Says on the standard output where the remotes are, and ends with the standard input, so that no server outlives its
// checks.
export function announce(remotes) {
  console.log(JSON.stringify(remotes));
  process.stdin.on('end', () => process.exit()).resume();
}
