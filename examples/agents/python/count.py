"""Counts words. Shows a status, an artifact in chunks, and a question back."""

import collections
import json
import re
import sys


def say(kind, **body):
    print(json.dumps({kind: body}), flush=True)


def status(state, text):
    say("statusUpdate", status={"state": "TASK_STATE_" + state, "message": {"parts": [{"text": text}]}})


turn = json.load(sys.stdin)
text = " ".join(part["text"] for part in turn["message"]["parts"] if "text" in part)
words = re.findall(r"\w+", text.lower())

if not words:
    status("INPUT_REQUIRED", "Which text shall I count?")
    sys.exit()

status("WORKING", f"counting {len(words)} words")
counts = collections.Counter(words).most_common()
for number, (word, count) in enumerate(counts):
    say(
        "artifactUpdate",
        artifact={"name": "counts", "parts": [{"text": f"{count} {word}\n"}]},
        append=number > 0,
        lastChunk=number == len(counts) - 1,
    )
status("COMPLETED", f"{len(words)} words, {len(counts)} different ones")
