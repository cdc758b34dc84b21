"""Servers of the official Python SDK (0.3 line): one agent over JSON-RPC, HTTP+JSON and gRPC, each alone on a card.

Usage: remote_03.py. Says where they are on the standard output, and ends with the standard input.
"""

import asyncio

import grpc
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TextPart
from a2a.utils import new_task
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from script import Failure, Piece, Question, Turns, listener, play, serve


class Agent(AgentExecutor):
    """The agent of script.py as the SDK wants it."""

    def __init__(self):
        self.turns = Turns()

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        self.turns.add(text, context.message.message_id, context.task_id, context.context_id)
        continued = context.current_task is not None
        if not continued:
            await event_queue.enqueue_event(new_task(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        async for step in play(text, continued):
            parts = [Part(root=TextPart(text=step.text))]
            match step:
                case Piece(_, first, last):
                    await updater.add_artifact(parts, "result", append=not first, last_chunk=last)
                case Question():
                    return await updater.requires_input(updater.new_agent_message(parts), final=True)
                case Failure():
                    return await updater.failed(updater.new_agent_message(parts))
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Handler(DefaultRequestHandler):
    """The SDK's own, whose calls are noted."""

    async def on_message_send(self, params, context=None):
        self.agent_executor.turns.called("send", params.message.message_id)
        return await super().on_message_send(params, context)

    async def on_message_send_stream(self, params, context=None):
        self.agent_executor.turns.called("stream", params.message.message_id)
        async for event in super().on_message_send_stream(params, context):
            yield event


def card(binding, url):
    return AgentCard(
        name=f"Python 0.3 over {binding}",
        description="An agent of the official Python SDK.",
        version="1.0.0",
        url=url,
        preferred_transport=binding,
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="script", name="Script", description="Does what the text says.", tags=["test"])],
    )


async def main():
    apps, remotes = [], []
    for binding in ("JSONRPC", "HTTP+JSON", "GRPC"):
        listening, port = listener()
        base = f"http://127.0.0.1:{port}"
        agent, store = Agent(), InMemoryTaskStore()

        async def turns(_, agent=agent, store=store):
            async def state_of(task_id):
                task = await store.get(task_id)
                return task and task.status.state.value

            return JSONResponse(await agent.turns.shown(state_of))

        handler = Handler(agent, store)
        if binding == "JSONRPC":
            # The path that the card of such an agent is found beside, as older callers have it.
            at = f"{base}/a2a"
            app = A2AStarletteApplication(card(binding, at), handler).build(rpc_url="/a2a")
        elif binding == "HTTP+JSON":
            at = f"{base}/"
            app = A2ARESTFastAPIApplication(card(binding, base), handler).build()
        else:
            at = f"{base}/"
            server = grpc.aio.server()
            own = card(binding, f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            add_A2AServiceServicer_to_server(GrpcHandler(own, handler), server)
            await server.start()
            # The SDK serves the card of an agent that speaks gRPC by the application of another binding only.
            shown = own.model_dump(mode="json", by_alias=True, exclude_none=True)
            app = Starlette(routes=[Route("/.well-known/agent-card.json", lambda _, shown=shown: JSONResponse(shown))])
        app.router.routes.append(Route("/turns", turns))
        apps.append((app, listening))
        remotes.append({"name": "python-03", "binding": binding, "url": at, "turns": f"{base}/turns"})
    await serve(apps, remotes)


asyncio.run(main())
