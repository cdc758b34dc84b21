"""The agent NAME. `answer` is where your work goes; it may be called for several turns at once."""

import json
import sys
import threading

lock = threading.Lock()
canceled = {}


def say(turn, word):
    """One line for the server: an event of A2A with the id of its turn. Nothing else may be printed: use stderr."""
    with lock:
        print(json.dumps({"id": turn["id"], **word}), flush=True)


def status(turn, state, text):
    say(turn, {"statusUpdate": {"status": {"state": "TASK_STATE_" + state, "message": {"parts": [{"text": text}]}}}})


def answer(turn, stop):
    """What is yielded is streamed to the caller. `stop` is set when nobody wants the answer any more."""
    text = " ".join(part["text"] for part in turn["message"]["parts"] if "text" in part)
    yield "You said: "
    yield text


def work(turn, stop):
    try:
        for number, piece in enumerate(answer(turn, stop)):
            say(turn, {"artifactUpdate": {"artifact": {"parts": [{"text": piece}]}, "append": number > 0}})
            if stop.is_set():
                break
        say(turn, {"end": True})
    except Exception as error:
        print(f"turn of task {turn['task']}: {error!r}", file=sys.stderr, flush=True)
        status(turn, "FAILED", "something went wrong")
    finally:
        canceled.pop(turn["id"], None)


for line in sys.stdin:
    turn = json.loads(line)
    if "cancel" in turn:
        # The turn may be over already.
        canceled.get(turn["cancel"], threading.Event()).set()
        continue
    stop = canceled[turn["id"]] = threading.Event()
    threading.Thread(target=work, args=(turn, stop), daemon=True).start()
