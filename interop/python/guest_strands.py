"""strands-agents: its A2AAgent calls agents. It speaks 0.3, always streams, and knows no second turn.

Usage: guest_strands.py BASE_URL TOKEN. Prints one line per check and stops at the first failure.
"""

import asyncio

import httpx
from a2a.client import ClientConfig
from a2a.client.errors import A2AClientError
from a2a.types import TaskArtifactUpdateEvent
from strands.agent.a2a_agent import A2AAgent

from guests import ASK_FOR_CHUNKS, COUNT, COUNTED, COUNTS, PATIENCE, WHOLE, Checks, headers, url

checks = Checks("strands-agents", "strands-agents", "a2a-sdk")


async def ask(agent, text):
    """The pieces as they come, the texts of the result, and why it ended."""
    pieces, result = [], None
    async for event in agent.stream_async(text):
        if "result" in event:
            result = event["result"]
        elif isinstance(event["event"], tuple) and isinstance(event["event"][1], TaskArtifactUpdateEvent):
            parts = event["event"][1].artifact.parts
            pieces.append("".join(part.root.text for part in parts if part.root.kind == "text"))
    return pieces, [block["text"] for block in result.message["content"]], result.stop_reason


async def main():
    async with httpx.AsyncClient(headers=headers(), timeout=PATIENCE) as http:

        def agent(agent_id):
            return A2AAgent(url(agent_id), client_config=ClientConfig(httpx_client=http))

        echo = agent("echo")
        checks.same("discover", (await echo.get_agent_card()).name, "Echo")
        checks.same("send", str(await echo.invoke_async("hello")), "hello\n")
        checks.same("stream", await ask(echo, "hello"), (["hello"], ["hello"], "end_turn"))
        checks.same("again", str(await echo.invoke_async("hello again")), "hello again\n")
        pieces, blocks, _ = await ask(agent("stream"), ASK_FOR_CHUNKS)
        checks.streamed("stream in chunks", pieces, WHOLE)
        checks.same("the result is whole", "".join(blocks), WHOLE)
        pieces, blocks, _ = await ask(agent("upper"), "quiet")
        checks.same("a text program", ("".join(pieces), "".join(blocks)), ("QUIET", "QUIET"))
        pieces, blocks, _ = await ask(agent("count"), COUNTED)
        checks.same("stream of a command agent", "".join(pieces), COUNTS)
        checks.same("its message is the result", blocks, [COUNT])
        checks.same("a direct message", (await ask(agent("message"), "hello"))[1], ["hello"])
        _, blocks, ended = await ask(agent("ask"), "what is it")
        checks.same("a question comes back", (blocks, ended), (["What is your answer?"], "interrupt"))

    async with httpx.AsyncClient(headers=headers("sb_wrong"), timeout=PATIENCE) as http:
        try:
            seen = await ask(A2AAgent(url("echo"), client_config=ClientConfig(httpx_client=http)), "hello")
        except A2AClientError:
            seen = "an error"
        checks.same("a wrong token is an error", seen, "an error")


asyncio.run(main())
