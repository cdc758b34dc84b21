// Text statistics: a data artifact, and a rejection for messages without text.
import { readFileSync } from "node:fs";

const say = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const status = (state, text) =>
  say({ statusUpdate: { status: { state: `TASK_STATE_${state}`, message: { parts: [{ text }] } } } });

const turn = JSON.parse(readFileSync(0, "utf8"));
const text = turn.message.parts.map((part) => part.text ?? "").join("\n");

if (text.trim() === "") {
  status("REJECTED", "there is no text in the message");
} else {
  const data = {
    characters: [...text].length,
    words: text.split(/\s+/).filter(Boolean).length,
    lines: text.split("\n").length,
  };
  say({ artifactUpdate: { artifact: { name: "statistics", parts: [{ data }] }, lastChunk: true } });
  status("COMPLETED", `${data.words} words`);
}
