"""strands-agents: an agent of a model that echoes word by word, made callable by Strands' A2AServer. Its answers come as
words of the status and once more as an artifact, as they do unless one asks for the other way; and in pieces of an artifact.

Usage: remote_strands.py. Says where they are on the standard output, and ends with the standard input.
"""

import asyncio
import re

from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer

from script import listener, serve, spoken


class Echo(Model):
    """A model that gives the last message back."""

    def update_config(self, **config):
        pass

    def get_config(self):
        return {}

    async def structured_output(self, *_, **__):
        raise NotImplementedError
        yield

    async def stream(self, messages, *_, **__):
        said = "".join(block.get("text", "") for block in messages[-1]["content"])
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        for word in re.findall(r"\s*\S+", spoken(said)):
            yield {"contentBlockDelta": {"delta": {"text": word}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def agent(_):
    return Agent(name="Echo", description="Gives back what it gets.", model=Echo(), callback_handler=None)


def main():
    apps, remotes = [], []
    for name, in_artifacts in (("strands-status", False), ("strands", True)):
        listening, port = listener()
        server = A2AServer(agent_factory=agent, port=port, skills=[], enable_a2a_compliant_streaming=in_artifacts)
        apps.append((server.to_starlette_app(), listening))
        remotes.append({"name": name, "binding": "JSONRPC", "url": f"http://127.0.0.1:{port}/"})
    asyncio.run(serve(apps, remotes))


main()
