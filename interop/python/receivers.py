"""The programs of docs/push.md with a running server: its commands make webhooks, its receivers take what is genuine
and refuse the rest, and the reference library of the Standard Webhooks verifies the same.

Usage: receivers.py BASE_URL TOKEN. Prints one line per check and stops at the first failure.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

from hook import Hook, Notice

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
PAGE = (Path(__file__).parent / "../../docs/push.md").read_text()
PATIENCE = 20
# Nobody in between, whatever the environment says.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ok(kind, name):
    print(f"ok {kind} {name}", flush=True)


def block(name):
    """The block of the page whose fence has this name."""
    return re.search(rf"^```\w+ {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def call(path, body=None):
    headers = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with opener.open(urllib.request.Request(BASE + path, data, headers), timeout=PATIENCE) as answer:
        return json.load(answer)


def send(agent, text, url=None):
    """Sends a message, with a webhook; gives the task's id."""
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}]}
    configuration = {"taskPushNotificationConfig": {"url": url}} if url else {}
    return call("/a2a/message:send", {"tenant": agent, "message": message, "configuration": configuration})["task"]["id"]


def deliver(url, notice):
    """Posts a notification as the server does; gives the status."""
    try:
        return opener.open(urllib.request.Request(url, notice.body, notice.headers), timeout=PATIENCE).status
    except urllib.error.HTTPError as error:
        return error.code


def wait_for(what, happened):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if result := happened():
            return result
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def settled(task):
    """What became of the webhook that came with a message, once nothing is owed to it."""
    state = call(f"/v1/push/{task}/{task}")
    return state if state["told"] == state["owed"] else None


def is_completed(notice):
    return b"TASK_STATE_COMPLETED" in notice.body


class Program:
    """A receiver of the page, while it runs."""

    def __init__(self, folder, command, name, secret):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (folder / name).write_text(block(name))
        self.url = f"http://127.0.0.1:{port}/hook"
        self.output = folder / f"{name}.out"
        environment = {**os.environ, "SECRET": secret, "PORT": str(port)}
        self.process = subprocess.Popen([*command, folder / name], env=environment, stdout=self.output.open("w"))
        wait_for(f"{name} listens", lambda: self.listens(port))

    def listens(self, port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def taken(self):
        """What it has printed: names and contents."""
        return [line.split(" ", 1) for line in self.output.read_text().splitlines()]

    def stop(self):
        self.process.kill()
        self.process.wait()


def check_receiver(kind, program, genuine, reference):
    task = send("echo", "hello receiver", program.url)
    wait_for("the delivery", lambda: "TASK_STATE_COMPLETED" in program.output.read_text())
    state = wait_for("settling", lambda: settled(task))
    assert [one["status"] for one in state["attempts"]] == [204] * len(program.taken()), state
    contents = [json.loads(content) for _, content in program.taken()]
    assert contents[0]["task"]["id"] == task and "hello receiver" in str(contents), contents
    ok(kind, "takes what the server delivers")

    before = len(program.taken())
    assert deliver(program.url, genuine) == 204
    assert deliver(program.url, genuine) == 204
    names = [name for name, _ in program.taken()]
    assert names[before:] == [genuine.headers["webhook-id"]], names
    ok(kind, "takes a repetition and does nothing")

    def signed(minutes):
        """The same under a name of its own, signed so long after now."""
        at = datetime.now(timezone.utc) + timedelta(minutes=minutes)
        name = f"msg_{minutes}"
        signature = reference.sign(name, at, genuine.body.decode())
        return signed_by(name, str(int(at.timestamp())), signature)

    def signed_by(name, at, signature, body=genuine.body):
        return Notice({"webhook-id": name, "webhook-timestamp": at, "webhook-signature": signature}, body)

    fresh = signed(0)
    name, at, right = (fresh.headers[f"webhook-{part}"] for part in ("id", "timestamp", "signature"))
    wrong = Webhook("whsec_" + "A" * 44).sign(name, datetime.now(timezone.utc), genuine.body.decode())
    refused = {
        "a changed body": signed_by(name, at, right, genuine.body.replace(b"hello", b"hallo")),
        "a wrong signature": signed_by(name, at, wrong),
        "no signature": signed_by(name, at, ""),
        "another version of signatures": signed_by(name, at, right.replace("v1,", "v2,")),
        "another id": signed_by("msg_other", at, right),
        "another timestamp": signed_by(name, str(int(at) - 1), right),
        "an old timestamp": signed(-6),
        "a timestamp to come": signed(6),
    }
    before = len(program.taken())
    for what, notice in refused.items():
        assert deliver(program.url, notice) == 401, what
        ok(kind, f"refuses {what}")
    assert len(program.taken()) == before, program.taken()
    assert deliver(program.url, signed_by(name, at, f"{wrong} {right}")) == 204
    assert [taken for taken, _ in program.taken()][before:] == [name]
    ok(kind, "takes one of several signatures")


def check_reference(genuine, reference):
    assert reference.verify(genuine.body, genuine.headers) == json.loads(genuine.body)
    for headers, body in [
        (genuine.headers, genuine.body + b" "),
        ({**genuine.headers, "webhook-id": "msg_new"}, genuine.body),
    ]:
        try:
            reference.verify(body, headers)
            raise AssertionError("a changed notification verifies")
        except WebhookVerificationError:
            pass
    ok("webhooks python", "the reference library verifies what is delivered")


def check_commands(hook):
    """The commands of the page make what they say."""
    task = send("ask", "what is it")
    environment = {**os.environ, "SERVER": BASE, "TOKEN": TOKEN, "TASK": task, "HOOK": hook.url("page"), "NO_PROXY": "*"}
    subprocess.run(["bash", "-euc", block("configure")], env=environment, check=True, stdout=subprocess.DEVNULL)
    configs = call(f"/a2a/tasks/{task}/pushNotificationConfigs")["configs"]
    assert sorted(config["id"] for config in configs) == ["by-03", "by-http", "by-rpc"], configs
    wait_for("the notification", lambda: any(map(is_completed, hook.told("page"))))
    ok("push.md commands", "make webhooks")


async def check_rotation(hook, genuine, old):
    """During the overlap both secrets verify; without one only the new one does."""
    new = Webhook(call("/v1/push/secret/rotate", {"overlapSeconds": 600})["secret"])
    send("echo", "signed twice", hook.url("rotated"))
    came = (await hook.until("rotated", is_completed))[-1]
    for secret in (old, new):
        secret.verify(came.body, came.headers)
    try:
        new.verify(genuine.body, genuine.headers)
        raise AssertionError("the new secret verifies what was signed before it")
    except WebhookVerificationError:
        pass
    ok("webhooks rotation", "receivers verify with the secret before and with the new one")


async def main():
    hook = Hook()
    secret = call("/v1/push/secret")["secret"]
    reference = Webhook(secret)
    send("echo", "hello webhook", hook.url("genuine"))
    # The artifact, which comes before the end.
    came = (await hook.until("genuine", is_completed))[-2]
    assert b"hello webhook" in came.body, came
    genuine = Notice({name: value for name, value in came.headers.items() if name.startswith("webhook-")}, came.body)
    check_reference(genuine, reference)
    check_commands(hook)
    await check_rotation(hook, genuine, reference)
    programs = {"push.md python": ([sys.executable], "receiver.py"), "push.md node": (["node"], "receiver.mjs")}
    with tempfile.TemporaryDirectory() as folder:
        for kind, (command, name) in programs.items():
            program = Program(Path(folder), command, name, secret)
            try:
                check_receiver(kind, program, genuine, reference)
            finally:
                program.stop()


asyncio.run(main())
