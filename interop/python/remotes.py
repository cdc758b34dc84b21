"""Servers that others' libraries make, as remote agents of a Switchboard: what its callers see of them.

Usage: remotes.py BINARY [INSTALLED]. Starts the servers and a Switchboard whose agents.yaml names them, and calls each one
through it. Prints one line per check and goes on after a failure. INSTALLED is what `setup` has printed; without it `setup`
is run.

Every check compares whole texts, so that an answer that lost a piece and one that came twice both fail.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from script import QUESTION, REASON

PATIENCE = 20
# So many failures of one agent are told, and the others are not waited for.
ENOUGH = 5
# So many agents are called at a time: most of the time is waiting.
AT_ONCE = 12
HERE = Path(__file__).resolve().parent
# What is installed under a name, and the servers that run with it.
SERVERS = {
    "a2a-sdk": "python/remote_1x.py",
    "a2a-sdk-0.3": "python/remote_03.py",
    "a2a-js": "js/remote_1x.mjs",
    "a2a-js-0.3": "js-03/remote_03.mjs",
    "google-adk": "python/remote_adk.py",
    "strands-agents": "python/remote_strands.py",
    "beeai": "python/remote_beeai.py",
}
# A remote that is silent for so long is not listened to any more, but asked now and then.
WAITS = {"quiet": "1s", "poll": "500ms"}
SURFACES = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}
# Nobody in between, whatever the environment says.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wait_for(what, happened, patience=PATIENCE):
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if result := happened():
            return result
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def say(line):
    """In one piece: agents are checked at the same time, and whoever counts needs whole lines."""
    print(f"{line}\n", end="", flush=True)


def text_of(parts):
    return "".join(part.get("text", "") for part in parts)


def state_of(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


def said_by(status):
    return text_of(status.get("message", {}).get("parts", []))


def artifacts_of(task):
    return "".join(text_of(artifact["parts"]) for artifact in task.get("artifacts", []))


def whole_of(answer):
    """All that the answer of a send says: a message, or a task's artifacts and the message of its status."""
    if "message" in answer:
        return text_of(answer["message"]["parts"])
    return artifacts_of(answer["task"]) + said_by(answer["task"]["status"])


def same(seen, expected, *of):
    assert seen == expected, f"{seen!r} instead of {expected!r}" + "".join(f"\n    of {json.dumps(one)}" for one in of)


def new_text(word, *rest):
    """A text that no other turn has."""
    return " ".join((word, *rest, f"grüße, 世界 {secrets.token_hex(4)}"))


def pieces(number):
    """What a remote says in so many pieces."""
    return "".join(f"piece {piece} of {number}\n" for piece in range(1, number + 1))


class Stream:
    """What a stream of our server says, and when."""

    def __init__(self, answer):
        self.events = []
        for line in answer:
            if line.startswith(b"data:"):
                self.events.append((time.monotonic(), json.loads(line[5:])))

    def updates(self, kind):
        return [event[kind] for _, event in self.events if kind in event]

    @property
    def task_id(self):
        [first] = self.updates("task")[:1]
        return first["id"]

    @property
    def end(self):
        return self.updates("statusUpdate")[-1]["status"]

    @property
    def whole(self):
        """All that a caller would show of it: its artifacts and what its last word is; or its only message."""
        if messages := self.updates("message"):
            return "".join(text_of(message["parts"]) for message in messages)
        artifacts = {}
        for update in self.updates("artifactUpdate"):
            before = artifacts.get(update["artifact"]["artifactId"], "") if update.get("append") else ""
            artifacts[update["artifact"]["artifactId"]] = before + text_of(update["artifact"]["parts"])
        return "".join(artifacts.values()) + said_by(self.end)


class Switchboard:
    """A server of the given binary, and its callers."""

    def __init__(self, binary, home, agents):
        self.token = f"sb_remotes-{secrets.token_hex(16)}"
        config = home / "config"
        config.mkdir(parents=True)
        # The remotes are on this machine.
        settings = ['[egress]', 'allow = ["127.0.0.0/8"]', "[outbound]", *(f'{key} = "{value}"' for key, value in WAITS.items())]
        (config / "switchboard.toml").write_text("\n".join(settings) + "\n")
        lines = ["agents:"]
        for agent in agents:
            lines += [f"  - name: {agent.id}", *(f"    {key}: {json.dumps(value)}" for key, value in agent.entry.items())]
        (config / "agents.yaml").write_text("\n".join(lines) + "\n")
        # What the caller's environment says of another server is not meant for this one.
        self.variables = {key: value for key, value in os.environ.items() if not key.startswith("SB_")}
        self.variables |= {"HOME": str(home), "SB_BOOTSTRAP_TOKEN": self.token}
        self.command = [binary, "serve", "--listen", "127.0.0.1:0"]
        self.command += ["--data-dir", home / "data", "--config", config / "switchboard.toml"]
        self.output, self.log = home / "stdout", home / "stderr"
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command, env=self.variables, stdout=self.output.open("w"), stderr=self.log.open("a")
        )

        def address():
            assert self.process.poll() is None, f"the server has ended:\n{self.log.read_text()}"
            lines = self.output.read_text().splitlines()
            return next((line.removeprefix("listening on ") for line in lines if line.startswith("listening on ")), None)

        self.base = wait_for("that the server listens", address)

    def crash(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)

    def open(self, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "A2A-Version": "1.0", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            return opener.open(urllib.request.Request(self.base + path, data, headers), timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {json.dumps(body)}: {error.code} {error.read().decode()}") from None

    def unreachable(self, agents):
        """What it knows of the remotes that it has not reached."""
        found = {remote["name"]: remote for remote in self.call("/v1/remotes")["remotes"]}
        missing = [agent.id for agent in agents if not found.get(agent.id, {}).get("reachable")]
        return {name: found.get(name) for name in missing}

    def call(self, path, body=None, status=200):
        with self.open(path, body) as answer:
            same(answer.status, status)
            return json.load(answer)


class Cards:
    """The cards of the remotes once more, as those of agents that do not stream: whoever believes them has to send and wait."""

    def __init__(self):
        cards = self.cards = {}

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                card = json.dumps(cards[self.path]).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(card)))
                self.end_headers()
                self.wfile.write(card)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def without_streaming(self, remote):
        """The remote with such a card."""
        place = remote.get("card") or remote["url"].removesuffix("/").removesuffix("/a2a") + "/.well-known/agent-card.json"

        def fetched():
            try:
                with opener.open(place, timeout=PATIENCE) as answer:
                    return json.load(answer)
            except urllib.error.URLError:
                return None

        card = wait_for(f"that {place} answers", fetched)
        card["capabilities"]["streaming"] = False
        path = f"/{remote['name']}/{SURFACES[remote['binding']]}.json"
        self.cards[path] = card
        return {**remote, "card": f"http://127.0.0.1:{self.server.server_address[1]}{path}"}


class Agent:
    """A remote as one agent of our server."""

    def __init__(self, remote, streaming=True):
        self.remote = remote
        self.name = remote["name"]
        self.binding = remote["binding"]
        self.id = f"{self.name}-{SURFACES[self.binding]}" + ("" if streaming else "-blocking")
        self.version = "1.0" if self.name in ("python-1x", "js-1x", "google-adk") else "0.3"
        self.streaming = streaming
        # Those with a script of behaviours show their turns; a framework's agent does nothing but echo.
        self.scripted = "turns" in remote
        self.entry = {key: remote[key] for key in ("url", "card") if key in remote}

    def turns(self, text):
        """The turns with this text that the remote was given."""
        with opener.open(self.remote["turns"], timeout=PATIENCE) as answer:
            return [turn for turn in json.load(answer) if turn["text"] == text]

    def turn(self, text):
        """The one turn with this text: whoever says it twice has sent it twice."""
        turns = self.turns(text)
        same([turn["call"] for turn in turns], ["stream" if self.streaming else "send"], turns)
        return turns[0]


class Caller:
    """Somebody who calls an agent of our server."""

    def __init__(self, server, agent):
        self.server = server
        self.agent = agent
        self.at = f"/a2a/agents/{agent.id}"

    def request(self, text, before=None, at_once=False):
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
        if before:
            message |= {"taskId": before["id"], "contextId": before["contextId"]}
        return {"message": message, "configuration": {"returnImmediately": at_once}}

    def send(self, text, **how):
        return self.server.call(f"{self.at}/message:send", self.request(text, **how))

    def stream(self, text, **how):
        with self.server.open(f"{self.at}/message:stream", self.request(text, **how)) as answer:
            return Stream(answer)

    def task(self, task_id):
        return self.server.call(f"{self.at}/tasks/{task_id}")

    def cancel(self, task_id):
        return self.server.call(f"{self.at}/tasks/{task_id}:cancel", {})

    def chat(self, message, status=200, **members):
        return self.server.call("/v1/chat", {"agent": self.agent.id, "message": message, **members}, status)


class Checks:
    """The checks of one agent."""

    def __init__(self, server, agent):
        self.server = server
        self.agent = agent
        self.caller = Caller(server, agent)

    def run(self, *checks):
        """How many of them have failed."""
        failed = 0
        for check in checks:
            try:
                check()
            except Exception as error:
                failed += 1
                why = error if isinstance(error, AssertionError) and str(error) else traceback.format_exc()
                say(f"failed: {self.agent.id} {check.__name__}: {why}")
                if failed == ENOUGH:
                    break
        return failed

    def run_all(self):
        checks = [self.check_discovery, self.check_echo, self.check_echo_in_a_stream, self.check_chat]
        if self.agent.scripted:
            checks += [self.check_work, self.check_question, self.check_question_in_a_stream]
            checks += [self.check_cancel, self.check_cancel_in_a_stream, self.check_failure, self.check_failure_in_a_stream]
            checks += [self.check_chat_of_two_turns, self.check_chat_that_fails, self.check_chat_that_is_pending]
            if self.agent.streaming:
                checks += [self.check_stream, self.check_pause, self.check_chat_events]
        return self.run(*checks)

    def ok(self, what):
        way = "" if self.agent.streaming else ", without streaming"
        say(f"ok to-{self.agent.name} {self.agent.binding} {what}{way}")

    def check_discovery(self):
        found = self.server.call(f"/v1/remotes/{self.agent.id}")
        seen = [found[key] for key in ("type", "cardAvailable", "streaming", "binding", "protocolVersion")]
        same(seen, ["a2a", True, self.agent.streaming, self.agent.binding, self.agent.version], found)
        self.ok("discovery")

    def check_echoed(self, seen, text, *of):
        # Strands ends its answers with a line of its own.
        same(seen.removesuffix("\n"), text.removeprefix("echo "), *of)
        if self.agent.scripted:
            self.agent.turn(text)

    def check_echo(self):
        text = new_text("echo")
        answer = self.caller.send(text)
        self.check_echoed(whole_of(answer), text, answer)
        if "task" in answer:
            same(state_of(answer["task"]), "COMPLETED", answer)
            kept = self.caller.task(answer["task"]["id"])
            self.check_echoed(whole_of({"task": kept}), text, kept)
        self.ok("echo")

    def check_echo_in_a_stream(self):
        text = new_text("echo")
        stream = self.caller.stream(text)
        self.check_echoed(stream.whole, text, stream.events)
        if not stream.updates("message"):
            same(stream.end["state"], "TASK_STATE_COMPLETED", stream.events)
            kept = self.caller.task(stream.task_id)
            self.check_echoed(whole_of({"task": kept}), text, kept)
        self.ok("echo in a stream")

    def check_stream(self):
        """Pieces arrive in order, some of them before the end, and are the whole."""
        number = 6
        text = new_text("stream", str(number))
        whole = pieces(number)
        stream = self.caller.stream(text)
        same(stream.whole, whole, stream.events)
        same(stream.end["state"], "TASK_STATE_COMPLETED", stream.events)
        updates = stream.updates("artifactUpdate")
        rest = len(updates) - 1
        same(len({update["artifact"]["artifactId"] for update in updates}), 1, stream.events)
        same([update.get("append", False) for update in updates], [False] + [True] * rest, stream.events)
        same([update.get("lastChunk", False) for update in updates], [False] * rest + [True], stream.events)
        [first, *_] = [when for when, event in stream.events if "artifactUpdate" in event]
        early = stream.events[-1][0] - first
        assert rest >= 2 and early > 0.15, f"{rest + 1} pieces, the first {early:.3f} s before the end"
        kept = self.caller.task(stream.task_id)
        same(whole_of({"task": kept}), whole, kept)
        self.agent.turn(text)
        self.ok("stream of pieces")
        answer = self.caller.send(new_text("stream", str(number)))
        same(whole_of(answer), whole, answer)
        self.ok("pieces as one answer")

    def check_pause(self):
        """What a remote says after a silence, when nobody listens any more, is neither missed nor said twice."""
        text = new_text("pause", "3")
        stream = self.caller.stream(text)
        same((stream.end["state"], stream.whole), ("TASK_STATE_COMPLETED", pieces(2)), stream.events)
        kept = self.caller.task(stream.task_id)
        same(whole_of({"task": kept}), stream.whole, kept)
        self.agent.turn(text)
        self.ok("pieces before and after a silence")

    def check_work(self):
        """A task that takes its time is followed to its end, and one that takes longer is asked for."""
        for seconds, what in (("0.5", "work that is followed"), ("3", "work that is asked for")):
            text = new_text("slow", seconds)
            answer = self.caller.send(text)
            same((state_of(answer["task"]), whole_of(answer)), ("COMPLETED", f"slept {seconds}"), answer)
            self.agent.turn(text)
            self.ok(what)

    def check_answered(self, question, city, answered):
        """Both turns were of one task of the remote."""
        asked, told = self.agent.turn(question), self.agent.turn(city)
        same((told["taskId"], told["contextId"]), (asked["taskId"], asked["contextId"]), asked, told)
        same((state_of(answered), artifacts_of(answered)), ("COMPLETED", f"city: {city}"), answered)

    def check_question(self):
        question, city = new_text("ask"), new_text("Rome")
        asked = self.caller.send(question)["task"]
        same((state_of(asked), whole_of({"task": asked})), ("INPUT_REQUIRED", QUESTION), asked)
        answered = self.caller.send(city, before=asked)["task"]
        same(answered["id"], asked["id"])
        self.check_answered(question, city, answered)
        same(whole_of({"task": answered}), f"city: {city}", answered)
        self.ok("question and answer")

    def check_question_in_a_stream(self):
        question, city = new_text("ask"), new_text("Rome")
        stream = self.caller.stream(question)
        same((stream.end["state"], stream.whole), ("TASK_STATE_INPUT_REQUIRED", QUESTION), stream.events)
        asked = self.caller.task(stream.task_id)
        stream = self.caller.stream(city, before=asked)
        same((stream.end["state"], stream.whole), ("TASK_STATE_COMPLETED", f"city: {city}"), stream.events)
        self.check_answered(question, city, self.caller.task(asked["id"]))
        self.ok("question and answer in streams")

    def check_canceled(self, task_id, text):
        """Ours ends as canceled, and so does that of the remote, in the store of its library."""
        wait_for("the remote's turn", lambda: self.agent.turns(text))
        begun = time.monotonic()
        canceled = self.caller.cancel(task_id)
        took = time.monotonic() - begun
        same(state_of(canceled), "CANCELED", canceled)
        assert took < 5, f"canceled after {took:.1f} s"

        def is_canceled():
            return self.agent.turn(text)["state"].lower().endswith("canceled")

        wait_for("the cancel of the remote's task", is_canceled, 5)
        same(state_of(self.caller.task(task_id)), "CANCELED")

    def check_cancel(self):
        text = new_text("slow", "30")
        task = self.caller.send(text, at_once=True)["task"]
        self.check_canceled(task["id"], text)
        self.ok("cancel")
        text = new_text("slow", "30")
        task = self.caller.send(text, at_once=True)["task"]
        # Nobody listens to it any more by now.
        time.sleep(2)
        self.check_canceled(task["id"], text)
        self.ok("cancel of work that is asked for")

    def check_cancel_in_a_stream(self):
        text = new_text("slow", "30")
        with self.server.open(f"{self.caller.at}/message:stream", self.caller.request(text)) as answer:
            first = next(line for line in answer if line.startswith(b"data:"))
            self.check_canceled(json.loads(first[5:])["task"]["id"], text)
            stream = Stream(answer)
        same(stream.end["state"], "TASK_STATE_CANCELED", stream.events)
        self.ok("cancel of a stream")

    def check_failure(self):
        text = new_text("fail")
        answer = self.caller.send(text)
        same((state_of(answer["task"]), whole_of(answer)), ("FAILED", REASON), answer)
        self.agent.turn(text)
        self.ok("failure")

    def check_failure_in_a_stream(self):
        text = new_text("fail")
        stream = self.caller.stream(text)
        same((stream.end["state"], stream.whole), ("TASK_STATE_FAILED", REASON), stream.events)
        self.agent.turn(text)
        self.ok("failure in a stream")

    def check_chatted(self, answer, state, response):
        same([answer["taskState"], answer["agent"]], [state, self.agent.id], answer)
        same(answer["response"].removesuffix("\n"), response, answer)

    def check_chat(self):
        text = new_text("echo")
        answer = self.caller.chat(text)
        self.check_chatted(answer, "completed", text.removeprefix("echo "))
        self.check_echoed(answer["response"], text, answer)
        if self.agent.scripted and "remote" in answer:
            turn = self.agent.turn(text)
            same(answer["remote"], {"taskId": turn["taskId"], "contextId": turn["contextId"]}, answer)
        self.ok("chat")

    def check_chat_of_two_turns(self):
        question, city = new_text("ask"), new_text("Rome")
        asked = self.caller.chat(question)
        self.check_chatted(asked, "input-required", QUESTION)
        ids = {key: asked[key] for key in ("contextId", "taskId")}
        answered = self.caller.chat(city, **ids)
        self.check_chatted(answered, "completed", f"city: {city}")
        same({key: answered[key] for key in ids}, ids, answered)
        self.check_answered(question, city, self.caller.task(asked["taskId"]))
        # What has ended is not continued: the next message is a task of its own in the same context.
        text = new_text("echo")
        next_one = self.caller.chat(text, **ids)
        self.check_chatted(next_one, "completed", text.removeprefix("echo "))
        assert next_one["taskId"] != ids["taskId"] and next_one["contextId"] == ids["contextId"], next_one
        same(self.agent.turn(text)["contextId"], self.agent.turn(question)["contextId"])
        self.ok("chat of several turns")

    def check_chat_that_fails(self):
        self.check_chatted(self.caller.chat(new_text("fail")), "failed", REASON)
        self.ok("chat that fails")

    def check_chat_that_is_pending(self):
        text = new_text("slow", "0.5")
        pending = self.caller.chat(text, status=202, returnImmediately=True)
        same((pending["pending"], pending["response"]), (True, None), pending)

        def answered():
            with self.server.open(pending["pollUrl"]) as answer:
                return answer.status == 200 and json.load(answer)

        self.check_chatted(wait_for("the answer", answered), "completed", "slept 0.5")
        self.agent.turn(text)
        self.ok("chat that is pending")

    def check_chat_events(self):
        """What a remote says while it works is told, in order."""
        pending = self.caller.chat(new_text("stream", "6"), status=202, returnImmediately=True)
        with self.server.open(f"{pending['pollUrl']}/events") as answer:
            lines = [line.decode().rstrip("\n") for line in answer]
        names = {line.removeprefix("event:").strip() for line in lines if line.startswith("event:")}
        same(names, {"agent.chat.inbound"}, lines)
        events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
        told = "".join(event["text"] for event in events if event["type"] == "artifact")
        same(told, pieces(6), events)
        same((events[-1]["type"], events[-1]["state"]), ("status", "completed"), events)
        self.ok("chat events")

    def begin_long_work(self):
        """Work that our server will not live to see the end of: of one that falls silent, and of one that goes on talking."""
        self.long_work = {}
        for kind, text, whole in (
            ("silent", new_text("pause", "4"), pieces(2)),
            ("talking", new_text("stream", "100"), pieces(100)),
        ):
            task = self.caller.send(text, at_once=True)["task"]
            self.long_work[kind] = (text, whole, task["id"])
        for text, _, _ in self.long_work.values():
            wait_for("the remote's turn", lambda: self.agent.turns(text))

    def check_silent_work(self):
        self.check_long_work("silent")

    def check_talking_work(self):
        self.check_long_work("talking")

    def check_long_work(self, kind):
        """It is taken up where it was, and not sent again."""
        text, whole, task_id = self.long_work[kind]

        def ended():
            task = self.caller.task(task_id)
            return task if state_of(task) not in ("SUBMITTED", "WORKING") else None

        task = wait_for("the end of the work", ended)
        same((state_of(task), whole_of({"task": task})), ("COMPLETED", whole))
        self.agent.turn(text)
        self.ok(f"{kind} work that outlives the server")


class Servers:
    """The servers of the libraries that are installed, while they run."""

    def __init__(self, folder, installed):
        places = dict(line.split(" ", 1) for line in installed.splitlines())
        self.running = {}
        for name, program in SERVERS.items():
            if places[name] == "-":
                continue
            source = HERE.parent / program
            if source.suffix == ".mjs":
                # A module finds what is installed where it stands itself.
                for file in (source, HERE.parent / "script.mjs"):
                    shutil.copy(file, places[name])
                command = ["node", Path(places[name]) / source.name]
            else:
                command = [places[name], "-B", "-W", "ignore", source]
            log = (folder / f"{name}.log").open("w")
            self.running[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.remotes = []
        for name, process in self.running.items():
            line = process.stdout.readline()
            assert line, f"{name} does not run:\n{(folder / f'{name}.log').read_text()}"
            self.remotes += json.loads(line)

    def stop(self):
        for process in self.running.values():
            process.stdin.close()
        for process in self.running.values():
            process.wait(PATIENCE)


def crash(server, checks):
    """Kills the server while remotes work for it, and looks at what the next one makes of that. How many checks have failed."""
    checks = [one for one in checks if one.agent.scripted]
    begun = [one for one in checks if not one.run(one.begin_long_work)]
    # A remote that has not even answered cannot always be asked what became of a message, and then the caller decides.
    time.sleep(0.5)
    server.crash()
    server.start()
    return len(checks) - len(begun) + sum(one.run(one.check_silent_work, one.check_talking_work) for one in begun)


def install():
    return subprocess.run([HERE.parent / "setup"], stdout=subprocess.PIPE, text=True, check=True).stdout


def main():
    binary, *installed = sys.argv[1:]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(Path(folder), *installed or [install()])
        cards = Cards()
        agents = []
        for remote in servers.remotes:
            agents += [Agent(remote), Agent(cards.without_streaming(remote), streaming=False)]
        server = Switchboard(Path(binary).resolve(), Path(folder) / "home", agents)
        try:
            until = time.monotonic() + PATIENCE
            while unreachable := server.unreachable(agents):
                if time.monotonic() > until:
                    raise AssertionError(f"not reachable: {json.dumps(unreachable, indent=1)}")
                time.sleep(0.1)
            checks = [Checks(server, agent) for agent in agents]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                failed += sum(pool.map(Checks.run_all, checks))
            failed += crash(server, checks)
        except AssertionError as error:
            failed += 1
            say(f"failed: {error}")
        finally:
            server.stop()
            servers.stop()
        if failed:
            print(f"--- end of the server's log ---\n{server.log.read_text()[-8000:]}", file=sys.stderr)
            sys.exit(f"{failed} checks have failed")


main()
