"""The official Python SDK of the 0.3 line against a running server: the gateway, an agent, and the /v1/a2a surface.

Usage: client_03.py BASE_URL TOKEN. Prints one line per check and stops at the first failure.
"""

import asyncio
import sys
import uuid

import httpx

from a2a.client import A2ACardResolver, A2AClientJSONError, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    DeleteTaskPushNotificationConfigParams,
    DeleteTaskPushNotificationConfigRequest,
    DeleteTaskPushNotificationConfigSuccessResponse,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    ListTaskPushNotificationConfigParams,
    ListTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigSuccessResponse,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
)

from hook import Hook

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
PATIENCE = 20


def message(text, task=None, parts=()):
    return Message(
        message_id=str(uuid.uuid4()),
        role=Role.user,
        parts=[Part(root=TextPart(text=text)), *parts],
        task_id=task.id if task else None,
        context_id=task.context_id if task else None,
    )


def text_of(parts):
    return "".join(part.root.text for part in parts if part.root.kind == "text")


def reply_text(task):
    """What an agent said, where this surface puts it."""
    artifacts = "".join(text_of(artifact.parts) for artifact in task.artifacts or [])
    return artifacts or text_of(task.status.message.parts)


def webhook(url, name=None):
    """A configuration with secrets in it, which no answer may show."""
    secret = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="canary-credentials")
    return PushNotificationConfig(url=url, id=name, token="canary-token", authentication=secret)


def task_of(notice):
    """What a webhook was told: in 0.3 it is the task."""
    return Task.model_validate_json(notice.body)


def is_completed(notice):
    return task_of(notice).status.state == TaskState.completed


class Checks:
    """The checks of one surface."""

    def __init__(self, surface, http):
        self.surface = surface
        self.http = http

    def ok(self, name):
        print(f"ok python-0.3 {self.surface} {name}", flush=True)

    def client(self, card, streaming):
        return ClientFactory(ClientConfig(streaming=streaming, httpx_client=self.http)).create(card)

    async def send(self, client, message):
        """The task that a send ends with."""
        task = None
        async for event in client.send_message(message):
            assert not isinstance(event, Message), event
            task = event[0]
        return task

    async def wait(self, client, task_id, wanted):
        for _ in range(PATIENCE * 50):
            task = await client.get_task(TaskQueryParams(id=task_id))
            if task.status.state == wanted:
                return task
            await asyncio.sleep(0.02)
        raise AssertionError(f"{task_id} never reached {wanted}")

    async def run(self, cards):
        echo, stream, slow, ask = [await cards(agent) for agent in ("echo", "stream", "slow", "ask")]
        self.ok("card")

        blocking = self.client(echo, streaming=False)
        task = await self.send(blocking, message("hello"))
        assert task.status.state == TaskState.completed and reply_text(task) == "hello", task
        self.ok("send")
        read = await blocking.get_task(TaskQueryParams(id=task.id))
        assert read.status.state == TaskState.completed and read.id == task.id, read
        self.ok("get")
        try:
            await blocking.get_task(TaskQueryParams(id=str(uuid.uuid4())))
            raise AssertionError("an unknown task was found")
        except (A2AClientJSONRPCError, A2AClientJSONError) as error:
            assert "-32001" in repr(error) or error.error.code == -32001, error
        self.ok("unknown task")

        streaming = self.client(stream, streaming=True)
        states, texts = [], []
        async for task, update in streaming.send_message(message("4 30")):
            states.append(task.status.state)
            if update is not None and update.kind == "artifact-update":
                texts.append(text_of(update.artifact.parts))
        assert states[-1] == TaskState.completed and "chunk 4" in "".join(texts), (states, texts)
        assert len([text for text in texts if text]) >= 2, texts
        self.ok("stream")

        running = self.client(slow, streaming=True)
        async for task, _ in running.send_message(message("10000")):
            break
        canceled = await running.cancel_task(TaskIdParams(id=task.id))
        assert canceled.status.state == TaskState.canceled, canceled
        await self.wait(running, task.id, TaskState.canceled)
        self.ok("cancel")

        async for task, _ in streaming.send_message(message("20 50")):
            break
        pieces = []
        async for task, update in streaming.resubscribe(TaskIdParams(id=task.id)):
            if update is not None and update.kind == "artifact-update":
                pieces.append(text_of(update.artifact.parts))
        assert task.status.state == TaskState.completed and "chunk 20" in "".join(pieces), (task, pieces)
        self.ok("resubscribe")

        asking = self.client(ask, streaming=False)
        task = await self.send(asking, message("what"))
        assert task.status.state == TaskState.input_required, task
        done = await self.send(asking, message("this", task=task))
        assert done.id == task.id and done.status.state == TaskState.completed, done
        self.ok("continue")
        return blocking

    async def post(self, card, request, answer):
        """Calls a method that the SDK has types for, but no function."""
        sent = await self.http.post(card.url, json=request.model_dump(mode="json", exclude_none=True, by_alias=True))
        assert "canary" not in sent.text, sent.text
        return answer.model_validate_json(sent.content).result

    async def check_push(self, echo, ask):
        hook = Hook()
        config = ClientConfig(
            streaming=False, httpx_client=self.http, push_notification_configs=[webhook(hook.url("inline"))]
        )
        task = await self.send(ClientFactory(config).create(echo), message("hello webhook"))
        notices = await hook.until("inline", is_completed)
        for notice in notices:
            assert notice.headers["a2a-version"] == "0.3", notice
            assert notice.headers["x-a2a-notification-token"] == "canary-token", notice
            assert notice.headers["authorization"] == "Bearer canary-credentials", notice
        told = [task_of(notice) for notice in notices]
        assert {one.id for one in told} == {task.id} and not told[0].artifacts, told
        assert told[0].status.state == TaskState.submitted and reply_text(told[-1]) == "hello webhook", told
        assert told[-1] == await self.client(echo, streaming=False).get_task(TaskQueryParams(id=task.id))
        self.ok("webhook with a message")

        client = self.client(ask, streaming=False)
        task = await self.send(client, message("what"))
        for name in ("kept", "removed"):
            made = TaskPushNotificationConfig(task_id=task.id, push_notification_config=webhook(hook.url(name), name))
            shown = (await client.set_task_callback(made)).push_notification_config
            assert (shown.id, shown.url) == (name, hook.url(name)) and "canary" not in repr(shown), shown
        self.ok("set webhooks")
        for name in (None, "kept"):
            asked = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id=name)
            found = await client.get_task_callback(asked)
            assert found.push_notification_config.id == "kept" and "canary" not in repr(found), found
        self.ok("get a webhook, by its name and without")

        async def names():
            params = ListTaskPushNotificationConfigParams(id=task.id)
            request = ListTaskPushNotificationConfigRequest(id="list", params=params)
            found = await self.post(ask, request, ListTaskPushNotificationConfigSuccessResponse)
            return [one.push_notification_config.id for one in found]

        assert await names() == ["kept", "removed"]
        params = DeleteTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="removed")
        request = DeleteTaskPushNotificationConfigRequest(id="delete", params=params)
        assert await self.post(ask, request, DeleteTaskPushNotificationConfigSuccessResponse) is None
        assert await names() == ["kept"]
        self.ok("list and delete webhooks")
        await self.send(client, message("this", task=task))
        told = [task_of(notice) for notice in await hook.until("kept", is_completed)]
        assert told[0].status.state == TaskState.working and "this" in reply_text(told[-1]), told
        assert not hook.told("removed")
        self.ok("webhook of a task that goes on")


async def main():
    async with httpx.AsyncClient(
        headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE, trust_env=False
    ) as http:
        gateway_card = await A2ACardResolver(http, BASE).get_agent_card()
        assert gateway_card.preferred_transport == "JSONRPC", gateway_card

        async def agent_endpoint(agent):
            """The gateway's card, at the endpoint of one agent."""
            return gateway_card.model_copy(update={"url": f"{BASE}/a2a/agents/{agent}/jsonrpc"})

        async def own_card(agent):
            return await A2ACardResolver(http, f"{BASE}/v1/a2a/agents/{agent}", "/agent-card.json").get_agent_card()

        checks = Checks("gateway", http)
        task = await checks.send(checks.client(gateway_card, streaming=False), message("hello gateway"))
        assert reply_text(task) == "hello gateway", task
        checks.ok("send to the default agent")

        checks = Checks("agent", http)
        echo = await checks.run(agent_endpoint)
        file = FilePart(file=FileWithBytes(bytes="AAEC/w==", name="b.bin", mime_type="application/octet-stream"))
        data = DataPart(data={"a": [1, "two", None, {"b": True}]})
        task = await checks.send(echo, message("text", parts=[Part(root=file), Part(root=data)]))
        kinds = [part.root for part in task.artifacts[0].parts]
        assert kinds[1].file.bytes == "AAEC/w==" and kinds[1].file.name == "b.bin", kinds
        assert kinds[2].data == data.data, kinds
        checks.ok("all kinds of parts")
        await checks.check_push(await agent_endpoint("echo"), await agent_endpoint("ask"))

        await Checks("v1", http).run(own_card)


asyncio.run(main())
