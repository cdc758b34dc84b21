"""beeai-framework: its A2AServer with an agent of a model that echoes, whose answer is the message of a completed task, and
with a runnable without a model, whose answer is a message that names a task nobody has.

Usage: remote_beeai.py. Says where they are on the standard output, and ends with the standard input.
"""

import json
import threading

from beeai_framework.adapters.a2a import A2AServer, A2AServerConfig
from beeai_framework.agents.requirement import RequirementAgent
from beeai_framework.backend import AssistantMessage, ChatModel, ChatModelOutput, MessageToolCallContent, UserMessage
from beeai_framework.emitter import Emitter
from beeai_framework.memory import UnconstrainedMemory
from beeai_framework.runnable import Runnable, RunnableOutput, runnable_entry
from beeai_framework.serve.utils import LRUMemoryManager

from script import announce, listener, spoken


def echo(messages):
    return spoken([message for message in messages if isinstance(message, UserMessage)][-1].text)


class Echo(ChatModel):
    """A model that gives the last message back, by the tool that BeeAI's agents end with."""

    model_id = "echo"
    provider_id = "openai"

    async def _create(self, input, run):
        answer = json.dumps({"response": echo(input.messages)})
        call = MessageToolCallContent(id="call", tool_name="final_answer", args=answer)
        return ChatModelOutput(output=[AssistantMessage([call])], finish_reason="tool_calls")

    async def _create_stream(self, input, run):
        yield await self._create(input, run)


class Bare(Runnable):
    """The same without a model."""

    @runnable_entry
    async def run(self, input, /, **_):
        return RunnableOutput(output=[AssistantMessage(echo(input))])

    @property
    def emitter(self):
        return Emitter.root().child(namespace=["bare"])


def main():
    agent = RequirementAgent(llm=Echo(), memory=UnconstrainedMemory(), name="Echo", description="Gives back what it gets.")
    remotes = []
    for name, served in (("beeai", agent), ("beeai-message", Bare())):
        # The framework binds the port by itself.
        listening, port = listener()
        listening.close()
        config = A2AServerConfig(host="127.0.0.1", port=port)
        server = A2AServer(config=config, memory_manager=LRUMemoryManager(maxsize=100)).register(served)
        threading.Thread(target=server.serve, daemon=True).start()
        remotes.append({"name": name, "binding": "JSONRPC", "url": f"http://127.0.0.1:{port}/"})
    announce(remotes)
    threading.Event().wait()


main()
