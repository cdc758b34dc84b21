"""The echo agent on the official Python SDK, in memory as it comes: working, one artifact, completed."""

import socket
import sys

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette


class Echo(AgentExecutor):
    """Says back what it was told."""

    async def execute(self, context, event_queue):
        # The SDK wants a task before anything else is said about it.
        await event_queue.enqueue_event(context.current_task or new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await updater.add_artifact([new_text_part(context.get_user_input())], last_chunk=True)
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def card(origin):
    skill = AgentSkill(id="echo", name="Echo", description="Says back what it was told.", tags=["echo"])
    return AgentCard(
        name="Echo",
        description="Says back what it was told.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=f"{origin}/", protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=origin, protocol_binding="HTTP+JSON", protocol_version="1.0"),
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )


def main():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), backlog=1024)
    # Accepted connections inherit it; uvloop sets it again.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    agent_card = card(origin)
    handler = DefaultRequestHandlerV2(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=agent_card)
    routes = [
        *create_agent_card_routes(agent_card),
        *create_jsonrpc_routes(handler, "/"),
        *create_rest_routes(handler),
    ]
    print(f"listening on {origin}", flush=True)
    config = uvicorn.Config(
        Starlette(routes=routes), loop="uvloop", http="httptools", log_level="warning", access_log=False
    )
    uvicorn.Server(config).run(sockets=[listener])


main()
