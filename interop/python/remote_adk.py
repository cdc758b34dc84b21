"""google-adk: an agent of a model that echoes, made callable by ADK's own `to_a2a`.

Usage: remote_adk.py. Says where it is on the standard output, and ends with the standard input.
"""

import asyncio

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types

from script import listener, serve, spoken


class Echo(BaseLlm):
    """A model that gives the last message back."""

    async def generate_content_async(self, llm_request, stream=False):
        said = "".join(part.text or "" for part in llm_request.contents[-1].parts)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=spoken(said))]))


def main():
    listening, port = listener()
    agent = LlmAgent(name="echo", description="Gives back what it gets.", model=Echo(model="echo"))
    app = to_a2a(agent, host="127.0.0.1", port=port)
    remotes = [{"name": "google-adk", "binding": "JSONRPC", "url": f"http://127.0.0.1:{port}/"}]
    asyncio.run(serve([(app, listening)], remotes))


main()
