"""Microsoft's agent-framework-a2a: A2AAgent calls agents, by card and by URL alone.

Usage: guest_agent_framework.py BASE_URL TOKEN. Prints one line per check and stops at the first failure.
"""

import asyncio

import httpx
from a2a.client import A2ACardResolver
from a2a.client.errors import A2AClientError
from agent_framework_a2a import A2AAgent

from guests import ASK_FOR_CHUNKS, COUNT, COUNTED, COUNTS, PATIENCE, WHOLE, Checks, headers, url

checks = Checks("agent-framework", "agent-framework-a2a", "agent-framework-core", "a2a-sdk")


async def by_card(agent_id, http):
    return A2AAgent(agent_card=await A2ACardResolver(http, url(agent_id)).get_agent_card(), http_client=http)


async def by_url(agent_id, http):
    return A2AAgent(url=url(agent_id), http_client=http)


async def send(agent, text, **options):
    return (await agent.run(text, **options)).text


async def stream(agent, text, **options):
    """The pieces as they come, and the answer that they make."""
    response = agent.run(text, stream=True, **options)
    pieces = [update.text async for update in response if update.text]
    return pieces, (await response.get_final_response()).text


async def main():
    async with httpx.AsyncClient(headers=headers(), timeout=PATIENCE) as http:
        for find, way in ((by_card, "by card"), (by_url, "by URL alone")):
            agent = await find("echo", http)
            checks.same(f"send {way}", await send(agent, "hello"), "hello")
            checks.same(f"stream {way}", await stream(agent, "hello"), (["hello"], "hello"))
            agent = await find("stream", http)
            checks.same(f"a reply of chunks {way}", await send(agent, ASK_FOR_CHUNKS), WHOLE)
            pieces, answer = await stream(agent, ASK_FOR_CHUNKS)
            checks.same(f"what is streamed is the answer {way}", ("".join(pieces), answer), (WHOLE, WHOLE))
            # Without a card it does not know that the agent can stream, and asks for the whole.
            checks.same(f"chunks {way}", len(pieces) > 1, find is by_card)
            agent = await find("upper", http)
            checks.same(f"a text program {way}", await stream(agent, "quiet"), (["QUIET"], "QUIET"))
            agent = await find("message", http)
            checks.same(f"a direct message {way}", await stream(agent, "hello"), (["hello"], "hello"))

        async with httpx.AsyncClient(timeout=PATIENCE) as nobody:
            card = await A2ACardResolver(nobody, url("count")).get_agent_card()
        agent = A2AAgent(agent_card=card, http_client=http)
        checks.same("discover without a token", agent.name, "Word counter")
        checks.same("a command agent", await send(agent, COUNTED), COUNTS)
        _, answer = await stream(agent, COUNTED)
        checks.same("stream of a command agent", answer, COUNTS + COUNT)

        agent = await by_card("recall", http)
        session = agent.create_session()
        first = await send(agent, "one", session=session)
        _, second = await stream(agent, "two", session=session)
        checks.same("second turn", (first, second), ("one", "one / two"))
        agent = await by_card("ask", http)
        session = agent.create_session()
        question = await agent.run("what is it", session=session)
        asked = [request.text for request in question.user_input_requests]
        checks.same("a question comes back", asked, ["What is your answer?"])
        checks.same("its answer continues it", await send(agent, "forty-two", session=session), "forty-two")

    async with httpx.AsyncClient(headers=headers("sb_wrong"), timeout=PATIENCE) as http:
        try:
            seen = await send(await by_card("echo", http), "hello")
        except A2AClientError:
            seen = "an error"
        checks.same("a wrong token is an error", seen, "an error")


asyncio.run(main())
