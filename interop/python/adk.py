"""google-adk's RemoteA2aAgent calls a command agent, as an ADK program would.

Usage: adk.py BASE_URL TOKEN. Prints one line per check and stops at the first failure.
"""

import asyncio
import sys

import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]


async def ask(agent_id, *turns):
    """The text of the agent's answers, one a turn, in one session."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(headers=headers, timeout=20) as http:
        card = f"{BASE}/a2a/agents/{agent_id}/.well-known/agent-card.json"
        agent = RemoteA2aAgent(name=agent_id, agent_card=card, httpx_client=http)
        runner = InMemoryRunner(agent=agent, app_name="interop")
        session = await runner.session_service.create_session(app_name="interop", user_id="someone")
        answers = []
        for turn in turns:
            message = types.Content(role="user", parts=[types.Part(text=turn)])
            texts = []
            async for event in runner.run_async(user_id="someone", session_id=session.id, new_message=message):
                assert not event.error_message, event.error_message
                for part in (event.content.parts or []) if event.content else []:
                    # A question comes as a call of a function that only the user can answer.
                    texts.append(str(part.function_call.args) if part.function_call else part.text or "")
            answers.append("\n".join(texts))
        return answers


def check(name, passed, seen):
    if not passed:
        sys.exit(f"failed: adk {name}: {seen!r}")
    print(f"ok adk JSONRPC {name}")


async def main():
    (answer,) = await ask("count", "the cat and the dog")
    check("a command agent's chunks arrive", "2 the" in answer and "1 dog" in answer, answer)
    check("a command agent's reply arrives", "5 words, 4 different ones" in answer, answer)
    (answer,) = await ask("upper", "quiet")
    check("a text program's output arrives", "QUIET" in answer, answer)
    question, answer = await ask("count", "!", "one two")
    check("a question comes back", "Which text shall I count?" in question, question)
    check("the answer continues it", "2 words" in answer, answer)


asyncio.run(main())
