// The agent NAME. `answer` is where your work goes; it may be called for several turns at once.
import { createInterface } from "node:readline";

// One line for the server: an event of A2A with the id of its turn. Nothing else may be printed: use stderr.
const say = (turn, word) => process.stdout.write(JSON.stringify({ id: turn.id, ...word }) + "\n");
const status = (turn, state, text) =>
  say(turn, { statusUpdate: { status: { state: `TASK_STATE_${state}`, message: { parts: [{ text }] } } } });

// What is yielded is streamed to the caller. `signal` is aborted when nobody wants the answer any more.
async function* answer(turn, signal) {
  const text = turn.message.parts.map((part) => part.text ?? "").join(" ");
  yield "You said: ";
  yield text;
}

async function work(turn, signal) {
  try {
    let append = false;
    for await (const text of answer(turn, signal)) {
      say(turn, { artifactUpdate: { artifact: { parts: [{ text }] }, append } });
      append = true;
      if (signal.aborted) break;
    }
    say(turn, { end: true });
  } catch (error) {
    console.error(`turn of task ${turn.task}:`, error);
    status(turn, "FAILED", "something went wrong");
  } finally {
    running.delete(turn.id);
  }
}

const running = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const turn = JSON.parse(line);
  if ("cancel" in turn) {
    running.get(turn.cancel)?.abort(); // the turn may be over already
    continue;
  }
  const stop = new AbortController();
  running.set(turn.id, stop);
  work(turn, stop.signal);
}
