"""The programs of docs/workers.md with a running server: its commands do what they say, and its workers do all that is
published, give back what fails until it is a dead letter, and stop when they are told.

Usage: workers.py BASE_URL TOKEN, with the binary in SB. Prints one line per check and stops at the first failure.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
PAGE = (Path(__file__).parent / "../../docs/workers.md").read_text()
PATIENCE = 20
LINES = 15
ENTRIES = 20
# What a queue calls a state. The page has the table.
STATUSES = {"acked": "TASK_STATE_COMPLETED", "dlq": "TASK_STATE_FAILED", "canceled": "TASK_STATE_CANCELED"}
# Nobody in between, whatever the environment says.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ok(kind, name):
    print(f"ok {kind} {name}", flush=True)


def block(name):
    """The block of the page whose fence has this name."""
    return re.search(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def call(path, body=None, method=None):
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with opener.open(urllib.request.Request(BASE + path, data, headers, method=method), timeout=PATIENCE) as answer:
        return json.load(answer)


def publish(agent, **members):
    return call("/v1/queue/publish", {"from": "check", "to": agent, **members})["id"]


def entry(task):
    return call(f"/v1/queue/messages/{task}")


def wait_for(what, happened):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if result := happened():
            return result
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def comes_to(task, status):
    """The task over A2A, once the queue says that its entry has come to this."""
    wait_for(f"{status} of {task}", lambda: entry(task)["status"] == status)
    found = call(f"/a2a/tasks/{task}")
    assert found["status"]["state"] == STATUSES[status], found
    return found


def environment(folder, **more):
    """That of a program: it finds `sb`, the server and its token, and leaves nothing behind."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ours = {"PATH": path, "TMPDIR": str(folder), "SB_URL": BASE, "SB_TOKEN": TOKEN, "NO_PROXY": "*"}
    return {**os.environ, **ours, **more}


class Worker:
    """A worker of the page, while it runs."""

    def __init__(self, folder, command, name, text, agent):
        (folder / name).write_text(text)
        self.output = folder / f"{agent}.out"
        variables = environment(folder, AGENT=agent)
        self.process = subprocess.Popen([*command, folder / name], env=variables, stdout=self.output.open("w"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def has_said(self, *words):
        """Waits for a line that it prints about an entry."""
        line = " ".join(words)
        wait_for(f"the line {line}", lambda: line in self.output.read_text())
        assert self.process.poll() is None, "the worker has ended"


def check_worker(kind, folder, command, name, result):
    """The worker as it is on the page. `result` is what it makes of a text."""
    text = block(name)
    assert len([line for line in text.splitlines() if line.strip()]) <= LINES, f"{name} is longer than the page says"
    agent = f"check-{kind}"
    with Worker(folder, command, name, text, agent) as worker:
        texts = [f"{'word ' * n}{n:03}" for n in range(ENTRIES)]
        # The first waits for nothing, the others are there when the worker asks again.
        published = {publish(agent, text=one): one for one in texts}
        for task, one in published.items():
            [artifact] = comes_to(task, "acked")["artifacts"]
            assert artifact["name"] == "result", artifact
            [part] = artifact["parts"]
            assert part["data"] == result(one), (one, part)
            worker.has_said(task, "acked")
        ok(f"workers.md {kind}", f"does {ENTRIES} entries, whose results are artifacts")

        # It has a payload and no text, which is nothing for these workers.
        task = publish(agent, payload={"pages": 1}, maxAttempts=2)
        message = comes_to(task, "dlq")["status"]["message"]["parts"][0]["text"]
        found = entry(task)
        assert [failed["attempt"] for failed in found["errors"]] == [1, 2], found
        assert all(failed["error"] and failed["error"] in message for failed in found["errors"][1:]), (found, message)
        worker.has_said(task, "pending")
        worker.has_said(task, "dlq")
        ok(f"workers.md {kind}", "gives back what fails, until it is a dead letter")

        [replayed] = call("/v1/queue/dlq/replay", {"messageId": task})["replayed"]
        comes_to(replayed["newMessageId"], "dlq")
        ok(f"workers.md {kind}", "gets what is replayed")

        task = publish(agent, text="and goes on")
        comes_to(task, "acked")
        ok(f"workers.md {kind}", "goes on after a failure")


def check_long(kind, folder, command, name, text):
    """The same worker with work that takes long, which a cancel ends."""
    agent = f"check-{kind}-long"
    with Worker(folder, command, name, text, agent) as worker:
        task = publish(agent, text="long", payload={"pages": 3})
        comes_to(task, "acked")
        worker.has_said(task, "acked")
        ok(f"workers.md {kind}", "does what takes long")

        task = publish(agent, text="too long", payload={"pages": 600})
        wait_for("that somebody works", lambda: entry(task)["status"] == "in_progress")
        begun = time.monotonic()
        canceled = call(f"/a2a/tasks/{task}:cancel", {})
        assert canceled["status"]["state"] == STATUSES["canceled"], canceled
        worker.has_said(task, "canceled")
        # After the grace the server has its way without the worker, which would not have seen anything.
        assert time.monotonic() - begun < 4.5, "the worker did not hear of it"
        ok(f"workers.md {kind}", "stops when the task is canceled")

        task = publish(agent, text="short", payload={"pages": 1})
        comes_to(task, "acked")
        ok(f"workers.md {kind}", "goes on after a cancel")


def check_commands(folder):
    """The commands of the page do what they say."""
    command = ["bash", "-euc", block("try")]
    ran = subprocess.run(command, env=environment(folder), check=True, stdout=subprocess.PIPE, text=True)
    assert "Summarize the release notes" in ran.stdout and "lease:" in ran.stdout, ran.stdout
    assert "all is well" in ran.stdout.rsplit("acked", 1)[1], ran.stdout
    ok("workers.md commands", "publish, take, report and end an entry")


def check_file(folder):
    """With the file of the page, callers of A2A reach workers."""
    assert block("research.toml") == (Path(__file__).parent / "../agents/research.toml").read_text()
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "by A2A"}]}
    with Worker(folder, [sys.executable], "worker.py", block("worker.py"), "research"):
        task = call("/a2a/message:send", {"tenant": "research", "message": message})["task"]
    assert task["status"]["state"] == STATUSES["acked"], task
    assert task["artifacts"][0]["parts"][0]["data"] == {"longest": "A2A"}, task
    ok("workers.md file", "callers of A2A reach a worker")


def replaced(text, handle, by):
    """A worker with another `handle`."""
    changed, count = re.subn(handle, lambda _: by, text, flags=re.MULTILINE | re.DOTALL)
    assert count == 1, f"{count} places for another handle"
    return changed


def main():
    workers = {
        "python": ([sys.executable], "worker.py", lambda text: {"longest": max(text.split(), key=len)}),
        "node": (["node"], "worker.mjs", lambda text: {"words": len(text.split())}),
        "shell": (["bash"], "worker.sh", lambda text: {"letters": len(text)}),
    }
    long = {
        "python": replaced(block("worker.py"), r"^def handle.*?\n(?=\n)", block("handle.py")),
        "node": replaced(block("worker.mjs"), r"^async function handle.*?^}\n", block("handle.mjs")),
        "shell": replaced(
            block("worker.sh"),
            r"^handle\(\) [^\n]*\n",
            'handle() { for _ in $(seq "$(jq .payload.pages)"); do sleep 0.5; done; echo true; }\n',
        ),
    }
    # What a worker that was ended has started may still be busy there.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        (folder / "bin/sb").symlink_to(os.environ["SB"])
        check_commands(folder)
        check_file(folder)
        for kind, (command, program, result) in workers.items():
            check_worker(kind, folder, command, program, result)
            check_long(kind, folder, command, program, long[kind])


main()
