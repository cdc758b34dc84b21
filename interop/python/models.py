"""Models behind a server that others wrote, LiteLLM's proxy: what callers of a Switchboard get of them, by OpenAI's chat completions
and by Anthropic's messages.

Usage: models.py BINARY, with an interpreter that has LiteLLM. Starts the proxy with answers that it makes up, and a Switchboard
whose agents think with them. Prints one line per check and goes on after a failure. Nothing here leaves this machine.

Every check has a provider and a key of its own, so that one that fails opens nobody else's circuit, and the proxy's callback for
keys counts how often each was asked.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PATIENCE = 60
# The proxy takes its time to start.
START = 80
SAID = "Grüße, 世界: this is an answer in several pieces."
# Who may ask once in so many seconds is told so.
WINDOW = 6
# A picture of one point.
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHAPES = {"chat": "openai", "messages": "anthropic"}
# Nobody in between, whatever the environment says.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

AUTH = '''
import json
from litellm.proxy._types import ProxyException, UserAPIKeyAuth

async def check(request, api_key: str) -> UserAPIKeyAuth:
    with open("asked.jsonl", "a") as log:
        log.write(json.dumps({"key": api_key, "path": request.url.path}) + "\\n")
    if not (api_key or "").startswith("sk-known-"):
        message = f"Authentication Error, Invalid proxy server token passed. key={api_key}"
        raise ProxyException(message=message, type="auth_error", param="key", code=401)
    return UserAPIKeyAuth(api_key=api_key, rpm_limit=1 if "-paced-" in api_key else None)
'''


def wait_for(what, happened, patience=PATIENCE):
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if result := happened():
            return result
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen")


def same(seen, expected):
    assert seen == expected, f"{seen!r} instead of {expected!r}"


def holds(text, *parts):
    for part in parts:
        assert part in text, f"{text!r} does not say {part!r}"


class Proxy:
    """LiteLLM's, with models that say what they are made to."""

    def __init__(self, home):
        self.home = home
        self.log = home / "log"
        self.asked = home / "asked.jsonl"
        self.asked.touch()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        key = f"sk-known-{secrets.token_hex(8)}"

        def model(name, says=None, of=None, **more):
            # None of them knows another place to ask.
            params = {"model": of or f"openai/{name}", "api_base": f"{self.url}/v1", "api_key": key, **more}
            return {"model_name": name, "litellm_params": params | ({"mock_response": says} if says else {})}

        models = [
            model("talk", SAID),
            # What is made up comes as one body where Anthropic's streams; what comes from elsewhere, such as here, is a stream.
            model("relayed", of="hosted_vllm/talk"),
            model("limited", "litellm.RateLimitError"),
            model("long", "litellm.ContextWindowExceededError"),
            model("down", "litellm.InternalServerError"),
            model("overloaded", "Exception: mock_streaming_error"),
            model("overloaded-relayed", of="hosted_vllm/overloaded"),
            model("strict", SAID, of="openai/o3-mini"),
            model("strict-relayed", of="hosted_vllm/strict"),
            *(model("cooling", "litellm.InternalServerError", of=f"openai/{one}", cooldown_time=120) for one in "ab"),
        ]
        # One that has failed is asked again: the attempts are ours to make. Those of `cooling` alone are spared.
        config = {
            "model_list": models,
            "router_settings": {"num_retries": 0, "allowed_fails": 0, "disable_cooldowns": False, "cooldown_time": 0.001},
            "litellm_settings": {"telemetry": False, "num_retries": 0},
            "general_settings": {"master_key": key, "custom_auth": "interop_auth.check"},
        }
        (home / "config.yaml").write_text(json.dumps(config))
        (home / "interop_auth.py").write_text(AUTH)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("SB_", "LITELLM_"))}
        # Prices are not looked up elsewhere.
        variables |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_RATE_LIMIT_WINDOW_SIZE": str(WINDOW), "HOME": str(home)}
        command = [Path(sys.executable).parent / "litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
        self.process = subprocess.Popen(command, cwd=home, env=variables, stdout=self.log.open("w"), stderr=subprocess.STDOUT)

    def ready(self):
        def answers():
            assert self.process.poll() is None, f"the proxy has ended:\n{self.log.read_text()[-4000:]}"
            try:
                return opener.open(f"{self.url}/health/liveliness", timeout=1).status == 200
            except OSError:
                return False

        wait_for("that the proxy answers", answers, START)

    def times(self, key):
        """How often somebody came with this key."""
        return sum(json.loads(line)["key"] == key for line in self.asked.read_text().splitlines())

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Case:
    """A check of one shape: its agent, its provider and its key."""

    def __init__(self, shape, check, name, model):
        self.shape, self.check, self.name, self.model = shape, check, f"{shape}-{name}", model
        self.key = f"{'sk-wrong' if name == 'wrong-key' else 'sk-known'}-{name}-{secrets.token_hex(8)}"
        self.variable = f"KEY_{self.name.upper().replace('-', '_')}"

    def provider(self, proxy):
        url = proxy.url if self.shape == "messages" else f"{proxy.url}/v1"
        url += "/nowhere" if self.name.endswith("wrong-path") else ""
        lines = [f"[providers.{self.name}]", f'api = "{SHAPES[self.shape]}"', f'url = "{url}"', "images = true"]
        if self.name.endswith("own-key"):
            return [*lines, 'key_env = "NOBODYS"', f"[providers.{self.name}.tenants.default]", f'key_env = "{self.variable}"']
        return [*lines, f'key_env = "{self.variable}"']

    def agent(self):
        return f'kind = "llm"\n[llm]\nrole = "tester"\nmodel = "{self.name}/{self.model}"\ntemperature = 0.25\nmax_tokens = 64\n'


class Switchboard:
    """A server of the given binary whose agents think with the proxy's models."""

    def __init__(self, binary, home, proxy, cases):
        self.token = f"sb_models-{secrets.token_hex(16)}"
        config = home / "config"
        (config / "agents").mkdir(parents=True)
        (config / "switchboard.toml").write_text("")
        (config / "models.toml").write_text("\n".join(line for case in cases for line in case.provider(proxy)) + "\n")
        for case in cases:
            (config / "agents" / f"{case.name}.toml").write_text(case.agent())
        variables = {name: value for name, value in os.environ.items() if not name.startswith("SB_")}
        variables |= {"HOME": str(home), "SB_BOOTSTRAP_TOKEN": self.token, "NOBODYS": "sk-wrong-nobody"}
        variables |= {case.variable: case.key for case in cases}
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", home / "data"]
        self.output, self.log = home / "stdout", home / "stderr"
        self.process = subprocess.Popen(
            [*command, "--config", config / "switchboard.toml"], env=variables, stdout=self.output.open("w"), stderr=self.log.open("w")
        )

        def address():
            assert self.process.poll() is None, f"the server has ended:\n{self.log.read_text()}"
            lines = self.output.read_text().splitlines()
            return next((line.removeprefix("listening on ") for line in lines if line.startswith("listening on ")), None)

        self.base = wait_for("that the server listens", address)

    def open(self, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "A2A-Version": "1.0", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            return opener.open(urllib.request.Request(self.base + path, data, headers), timeout=PATIENCE)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {json.dumps(body)}: {error.code} {error.read().decode()}") from None

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Turn:
    """One message to an agent, and all that came of it."""

    def __init__(self, server, case, *parts):
        begun = time.monotonic()
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": "Say something."}, *parts]}
        with server.open(f"/a2a/agents/{case.name}/message:stream", {"message": message}) as answer:
            events = [json.loads(line[5:]) for line in answer if line.startswith(b"data:")]
        self.took = time.monotonic() - begun
        statuses = [event["statusUpdate"]["status"] for event in events if "statusUpdate" in event]
        texts = [event["artifactUpdate"]["artifact"]["parts"] for event in events if "artifactUpdate" in event]
        self.text = "".join(part.get("text", "") for parts in texts for part in parts)
        self.state = statuses[-1]["state"].removeprefix("TASK_STATE_")
        self.said = "".join(part.get("text", "") for part in statuses[-1].get("message", {}).get("parts", []))
        task = next(event["task"]["id"] for event in events if "task" in event)
        with server.open(f"/v1/requests/{task}/events?since_seq=0") as answer:
            lines = [line.decode() for line in answer]
        names = [line[7:].strip() for line in lines if line.startswith("event: ")]
        values = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        self.usage = [value for name, value in zip(names, values) if name == "token_usage"]


def answered(turn, usage):
    same((turn.state, turn.text), ("COMPLETED", SAID))
    same(len(turn.usage), 1)
    seen = turn.usage[0]
    assert seen["input_tokens"] > 0 and (usage is None or seen["output_tokens"] == usage), f"{seen}"


def failed(turn, *words):
    same(turn.state, "FAILED")
    holds(turn.said, *words)


def talks(server, proxy, case):
    """A text in several pieces, whole, with the tokens that the proxy counts (a made-up number where all is made up)."""
    answered(Turn(server, case), 503 if case.shape == "messages" else 17)
    same(proxy.times(case.key), 1)


def streams(server, proxy, case):
    answered(Turn(server, case), 17)
    same(proxy.times(case.key), 1)


def sees(server, proxy, case):
    answered(Turn(server, case, {"raw": PICTURE, "mediaType": "image/png"}), None)


def learns(server, proxy, case):
    """A model that takes no temperature is asked again without, and the next time at once."""
    answered(Turn(server, case), None)
    asked = proxy.times(case.key)
    answered(Turn(server, case), None)
    same((asked, proxy.times(case.key)), (2, 3))


def is_limited(server, proxy, case):
    failed(Turn(server, case), f"{case.name}: too many requests (429): litellm.RateLimitError", "(after 4 attempts)")
    same(proxy.times(case.key), 4)


def is_paced(server, proxy, case):
    """The proxy lets this key ask once in a while and says how long that is; whoever waits so long is answered."""
    answered(Turn(server, case), None)
    second = Turn(server, case)
    answered(second, None)
    assert WINDOW <= second.took < 5 * WINDOW, f"{second.took} s"
    same(proxy.times(case.key), 3)


def is_put_off(server, proxy, case):
    """Two attempts fail; then the proxy wants to be left alone for two minutes, and nobody waits for that."""
    turn = Turn(server, case)
    failed(turn, f"{case.name}: too many requests (429): ", "it wants to be asked again in 1")
    assert turn.took < 20, f"{turn.took} s"
    same(proxy.times(case.key), 3)


def is_too_long(server, proxy, case):
    failed(Turn(server, case), f"{case.name}: the request is too long for the model (400): litellm.ContextWindowExceededError")
    same(proxy.times(case.key), 1)


def is_down(server, proxy, case):
    """Four attempts, then one more opens the circuit, and then nobody is called."""
    failed(Turn(server, case), f"{case.name}: the provider cannot answer (500): litellm.InternalServerError", "(after 4 attempts)")
    failed(Turn(server, case), f"{case.name}: the provider cannot answer (500): ")
    failed(Turn(server, case), f"{case.name}: too many calls have failed, so that nobody is called for ")
    same(proxy.times(case.key), 5)


def is_overloaded(server, proxy, case):
    failed(Turn(server, case), f"{case.name}: the provider cannot answer (529): ", "This is a mock error raised mid-stream")
    same(proxy.times(case.key), 4)


def is_unknown(server, proxy, case):
    failed(Turn(server, case), f"{case.name}: the request was refused (400): ", "Invalid model name passed in model=nobody")
    same(proxy.times(case.key), 1)


def is_refused(server, proxy, case):
    """The proxy repeats the key in its error; nobody else does."""
    turn = Turn(server, case)
    failed(turn, f"{case.name}: the key was refused (401): Authentication Error")
    same(proxy.times(case.key), 1)
    assert case.key not in turn.said and case.key not in server.log.read_text(), "the key was told"


def is_lost(server, proxy, case):
    failed(Turn(server, case), f"{case.name}: there is no such model, or nothing at this URL (404)")


def main():
    binary = Path(sys.argv[1]).resolve()
    cases = []
    for shape in SHAPES:
        relayed = "-relayed" if shape == "messages" else ""
        for check, name, model in [
            (talks, "text", "talk"),
            (streams, "stream", "relayed"),
            (streams, "own-key", "relayed"),
            (sees, "picture", "talk"),
            (learns, "strict", f"strict{relayed}"),
            (is_limited, "rate-limit", "limited"),
            (is_too_long, "too-long", "long"),
            (is_down, "down", "down"),
            (is_overloaded, "overloaded", f"overloaded{relayed}"),
            (is_unknown, "unknown-model", "nobody"),
            (is_refused, "wrong-key", "talk"),
            (is_lost, "wrong-path", "talk"),
        ]:
            cases.append(Case(shape, check, name, model))
    # The proxy says when to come back only in one of its two shapes.
    cases += [Case("chat", is_paced, "paced", "talk"), Case("chat", is_put_off, "put-off", "cooling")]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("proxy", "home")]
        for place in places:
            place.mkdir()
        proxy = Proxy(places[0])
        server = None
        try:
            server = Switchboard(binary, places[1], proxy, cases)
            proxy.ready()

            def run(case):
                try:
                    case.check(server, proxy, case)
                except Exception as error:  # noqa: BLE001: whatever it is, the others go on
                    print(f"failed: litellm {case.name}: {error}\n", end="", flush=True)
                    return 1
                print(f"ok litellm {case.shape} {case.name.removeprefix(case.shape + '-')}\n", end="", flush=True)
                return 0

            with ThreadPoolExecutor(8) as pool:
                wrong = sum(pool.map(run, cases))
        finally:
            if server:
                server.stop()
            proxy.stop()
        if wrong:
            for log in (server.log, proxy.log):
                print(f"--- end of {log} ---\n{log.read_text()[-6000:]}", file=sys.stderr)
            sys.exit(f"{wrong} checks have failed")


main()
