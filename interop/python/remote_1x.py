"""Servers of the official Python SDK (1.x line): one agent over JSON-RPC, HTTP+JSON and gRPC, each alone on a card.

Usage: remote_1x.py. Says where they are on the standard output, and ends with the standard input.
"""

import asyncio

import grpc
from a2a.auth.user import UnauthenticatedUser
from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
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
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            begun = Task(id=context.task_id, context_id=context.context_id, status=status, history=[context.message])
            await event_queue.enqueue_event(begun)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        async for step in play(text, continued):
            parts = [Part(text=step.text)]
            match step:
                case Piece(_, first, last):
                    await updater.add_artifact(parts, "result", append=not first, last_chunk=last)
                case Question():
                    return await updater.requires_input(updater.new_agent_message(parts))
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
        name=f"Python 1.x over {binding}",
        description="An agent of the official Python SDK.",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding=binding, protocol_version="1.0")],
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
                task = await store.get(task_id, ServerCallContext(user=UnauthenticatedUser()))
                return task and TaskState.Name(task.status.state)

            return JSONResponse(await agent.turns.shown(state_of))

        if binding == "GRPC":
            server = grpc.aio.server()
            grpc_port = server.add_insecure_port("127.0.0.1:0")
            own = card(binding, f"127.0.0.1:{grpc_port}")
        else:
            # The path of the one is where the SDK puts it by itself, that of the other is somewhere else.
            url = base if binding == "JSONRPC" else f"{base}/rest"
            own = card(binding, url)
        handler = Handler(agent, store, own)
        routes = [*create_agent_card_routes(own), Route("/turns", turns)]
        if binding == "JSONRPC":
            routes += create_jsonrpc_routes(handler, "/")
        elif binding == "HTTP+JSON":
            routes += create_rest_routes(handler, path_prefix="/rest")
        else:
            add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
            await server.start()
        apps.append((Starlette(routes=routes), listening))
        remotes.append({"name": "python-1x", "binding": binding, "url": f"{base}/", "turns": f"{base}/turns"})
    await serve(apps, remotes)


asyncio.run(main())
