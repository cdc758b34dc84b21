"""The official Python SDK (1.x line) against a running server, over JSON-RPC and HTTP+JSON, and over
gRPC where the card names it.

Usage: client_1x.py BASE_URL TOKEN. Prints one line per check and stops at the first failure.
"""

import asyncio
import sys
import uuid

import grpc
import httpx
from google.protobuf.json_format import Parse

from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt import PyJWKSet

from hook import Hook

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
PATIENCE = 20
CHUNKS = "urn:switchboard:a2a:push-chunks:v1"


def ask(text, tenant="", task_id="", context_id="", at_once=False):
    """A request with one text part."""
    request = SendMessageRequest(
        tenant=tenant,
        message=Message(
            message_id=str(uuid.uuid4()),
            role=Role.ROLE_USER,
            parts=[Part(text=text)],
            task_id=task_id,
            context_id=context_id,
        ),
    )
    request.configuration.return_immediately = at_once
    return request


def text_of(parts):
    return "".join(part.text for part in parts)


def artifact_text(task):
    return "".join(text_of(artifact.parts) for artifact in task.artifacts)


def webhook(url, **fields):
    """A configuration with secrets in it, which no answer may show."""
    secret = AuthenticationInfo(scheme="Basic", credentials="canary-credentials")
    return TaskPushNotificationConfig(url=url, token="canary-token", authentication=secret, **fields)


def event_of(notice):
    """What a webhook was told; the SDK's types refuse what they do not know."""
    return Parse(notice.body, StreamResponse())


def is_completed(notice):
    return event_of(notice).status_update.status.state == TaskState.TASK_STATE_COMPLETED


def with_token(details):
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    metadata.add("authorization", f"Bearer {TOKEN}")
    return details._replace(metadata=metadata)


class Unary(grpc.aio.UnaryUnaryClientInterceptor):
    """Sends the token with every call."""

    async def intercept_unary_unary(self, proceed, details, request):
        return await proceed(with_token(details), request)


class Streaming(grpc.aio.UnaryStreamClientInterceptor):
    """The same for calls that are answered with a stream."""

    async def intercept_unary_stream(self, proceed, details, request):
        return await proceed(with_token(details), request)


def channel(target):
    return grpc.aio.insecure_channel(target, interceptors=[Unary(), Streaming()])


class Checks:
    """The checks of one binding."""

    def __init__(self, binding):
        self.binding = binding
        self.count = 0
        self.http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=PATIENCE,
            trust_env=False,
        )

    def ok(self, name):
        self.count += 1
        print(f"ok python {self.binding} {name}", flush=True)

    def client(self, card, streaming=True):
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            grpc_channel_factory=channel,
            supported_protocol_bindings=[self.binding],
            use_client_preference=True,
        )
        return ClientFactory(config).create(card)

    async def events(self, stream):
        return [event async for event in stream]

    async def send(self, client, request):
        """The one event of a send that does not stream."""
        events = await self.events(client.send_message(request))
        assert len(events) == 1, events
        return events[0]

    async def wait(self, client, task_id, state):
        for _ in range(PATIENCE * 50):
            task = await client.get_task(GetTaskRequest(id=task_id))
            if task.status.state == state:
                return task
            await asyncio.sleep(0.02)
        raise AssertionError(f"{task_id} never reached {state}")

    async def run(self):
        async with httpx.AsyncClient(trust_env=False) as nobody:
            card = await A2ACardResolver(nobody, BASE).get_agent_card()
        bindings = {i.protocol_binding: i.url for i in card.supported_interfaces}
        assert bindings["JSONRPC"] == f"{BASE}/a2a/jsonrpc", bindings
        assert bindings["HTTP+JSON"] == f"{BASE}/a2a", bindings
        assert card.capabilities.streaming
        assert "bearerAuth" in card.security_schemes
        self.ok("public card")

        streaming = self.client(card)
        blocking = self.client(card, streaming=False)

        extended = await self.client(card).get_extended_agent_card(GetExtendedAgentCardRequest())
        assert {"echo", "ask", "slow"} <= {skill.id for skill in extended.skills}, extended
        self.ok("extended card")

        # Agents name gRPC on their extended cards alone.
        path = "extendedAgentCard" if self.binding == "GRPC" else ".well-known/agent-card.json"
        resolver = A2ACardResolver(self.http, f"{BASE}/a2a/agents/ask", agent_card_path=path)
        asking_card = await resolver.get_agent_card()
        asking = self.client(asking_card, streaming=False)
        self.ok("agent card")

        await self.check_signatures(card, extended)
        await self.check_send(blocking)
        await self.check_parts(blocking)
        await self.check_stream(streaming)
        await self.check_list(blocking)
        await self.check_cancel(blocking)
        await self.check_subscribe(streaming, blocking)
        await self.check_continue(asking, blocking)
        await self.check_direct_reply(streaming, blocking)
        await self.check_push_inline(streaming, blocking)
        await self.check_push_operations(blocking)
        await self.check_errors(blocking)
        await self.http.aclose()

    async def check_signatures(self, card, extended):
        """The SDK's own verifier, with the keys that the cards point to."""
        used = set()

        def key_of(kid, jku):
            assert jku == f"{BASE}/.well-known/jwks.json", jku
            used.add(kid)
            return keys[kid]

        keys = PyJWKSet.from_dict((await self.http.get(f"{BASE}/.well-known/jwks.json")).json())
        verify = create_signature_verifier(key_of, ["ES256", "EdDSA"])
        # With the fields of 0.3 beside those of 1.0, and without.
        both = await A2ACardResolver(self.http, f"{BASE}/a2a/agents/ask").get_agent_card(
            http_kwargs={"headers": {"A2A-Version": "0.3"}}
        )
        pure = await A2ACardResolver(self.http, f"{BASE}/a2a/agents/ask").get_agent_card(
            http_kwargs={"headers": {"A2A-Version": "1.0"}}
        )
        assert [s.signature for s in both.signatures] != [s.signature for s in pure.signatures]
        for name, signed in {"gateway": card, "extended": extended, "agent": pure, "agent in both": both}.items():
            verify(signed)
            changed = type(signed)()
            changed.CopyFrom(signed)
            changed.description += " "
            try:
                verify(changed)
                raise AssertionError(f"{name}: a changed card verifies")
            except InvalidSignaturesError:
                pass
        assert len(used) == 1, used
        self.ok("signatures")

    async def check_send(self, client):
        event = await self.send(client, ask("hello python"))
        task = event.task
        assert task.status.state == TaskState.TASK_STATE_COMPLETED, event
        assert artifact_text(task) == "hello python", task
        assert task.id and task.context_id and task.status.HasField("timestamp")
        self.ok("send to the default agent")
        assert (await self.send(client, ask("by name", tenant="echo"))).task.artifacts
        self.ok("send to a named agent")

        read = await client.get_task(GetTaskRequest(id=task.id))
        assert read == task, (read, task)
        assert read.history[0].role == Role.ROLE_USER
        short = await client.get_task(GetTaskRequest(id=task.id, history_length=0))
        assert not short.history
        self.ok("get")

    async def check_parts(self, client):
        request = ask("text", tenant="echo")
        request.message.parts.append(Part(raw=bytes(range(256)), filename="b.bin", media_type="application/octet-stream"))
        request.message.parts.append(Part(url="https://example.com/x.png", media_type="image/png"))
        data = Part(media_type="application/json")
        data.data.struct_value.update({"a": [1, "two", None, {"b": True}]})
        request.message.parts.append(data)
        request.message.metadata.update({"from": "python"})
        task = (await self.send(client, request)).task
        assert list(task.artifacts[0].parts) == list(request.message.parts), task
        assert task.history[0].metadata == request.message.metadata
        self.ok("all kinds of parts")

    async def check_stream(self, client):
        events = await self.events(client.send_message(ask("4 30", tenant="stream")))
        assert events[0].HasField("task"), events
        task_id = events[0].task.id
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, events
        chunks = [e.artifact_update for e in events if e.HasField("artifact_update")]
        assert len(chunks) >= 2 and not chunks[0].append and all(c.append for c in chunks[1:]), events
        task = await client.get_task(GetTaskRequest(id=task_id))
        assert artifact_text(task) == "".join(text_of(c.artifact.parts) for c in chunks)
        self.ok("stream")

    async def check_list(self, client):
        context = str(uuid.uuid4())
        ids = []
        for n in range(3):
            ids.append((await self.send(client, ask(f"task {n}", "echo", context_id=context))).task.id)
        seen, token = [], ""
        while True:
            page = await client.list_tasks(
                ListTasksRequest(context_id=context, page_size=2, page_token=token)
            )
            assert page.total_size == 3, page
            assert all(not task.artifacts for task in page.tasks)
            seen += [task.id for task in page.tasks]
            token = page.next_page_token
            if not token:
                break
        assert seen == ids[::-1], (seen, ids)
        done = ListTasksRequest(
            context_id=context,
            status=TaskState.TASK_STATE_COMPLETED,
            include_artifacts=True,
            history_length=1,
        )
        page = await client.list_tasks(done)
        assert len(page.tasks) == 3 and all(task.artifacts for task in page.tasks)
        done.status = TaskState.TASK_STATE_FAILED
        assert not (await client.list_tasks(done)).tasks
        self.ok("list")

    async def check_cancel(self, client):
        task = (await self.send(client, ask("20000", "slow", at_once=True))).task
        assert task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        self.ok("return immediately")
        canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert canceled.id == task.id
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED, canceled
        self.ok("cancel")

    async def check_subscribe(self, streaming, blocking):
        task = (await self.send(blocking, ask("700", "slow", at_once=True))).task
        events = await self.events(streaming.subscribe(SubscribeToTaskRequest(id=task.id)))
        assert events[0].task.id == task.id, events
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED, events
        self.ok("subscribe")

    async def check_continue(self, asking, gateway):
        asked = (await self.send(asking, ask("what is it"))).task
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED, asked
        assert text_of(asked.status.message.parts)
        done = (await self.send(asking, ask("forty-two", task_id=asked.id, context_id=asked.context_id))).task
        assert done.id == asked.id
        assert done.status.state == TaskState.TASK_STATE_COMPLETED, done
        assert "forty-two" in artifact_text(done), done
        self.ok("continue an input-required task")
        asked = (await self.send(gateway, ask("what is it", tenant="ask"))).task
        done = (await self.send(gateway, ask("forty-three", task_id=asked.id))).task
        assert done.status.state == TaskState.TASK_STATE_COMPLETED, done
        self.ok("continue at the gateway")

    async def check_direct_reply(self, streaming, blocking):
        event = await self.send(blocking, ask("hello", tenant="message"))
        assert event.HasField("message"), event
        assert "hello" in text_of(event.message.parts)
        self.ok("direct message")
        events = await self.events(streaming.send_message(ask("hello", tenant="message")))
        assert len(events) == 1 and events[0].HasField("message"), events
        self.ok("direct message in a stream")

    async def check_push_inline(self, streaming, blocking):
        """Webhooks that come with a message."""
        hook = Hook()
        request = ask("hello webhook", tenant="echo")
        request.configuration.task_push_notification_config.CopyFrom(webhook(hook.url("inline")))
        task = (await self.send(blocking, request)).task
        notices = await hook.until("inline", is_completed)
        for notice in notices:
            headers = notice.headers
            assert headers["content-type"] == "application/a2a+json", headers
            assert headers["a2a-version"] == "1.0", headers
            assert headers["authorization"] == "Basic canary-credentials", headers
            assert headers["x-a2a-notification-token"] == "canary-token", headers
        assert len({notice.headers["webhook-id"] for notice in notices}) == len(notices)
        events = [event_of(notice) for notice in notices]
        assert events[0].task.id == task.id, events
        whole = [e.artifact_update for e in events if e.HasField("artifact_update")]
        assert [text_of(update.artifact.parts) for update in whole] == ["hello webhook"], events
        self.ok("webhook with a message")
        named = GetTaskPushNotificationConfigRequest(task_id=task.id, id=task.id)
        found = await blocking.get_task_push_notification_config(named)
        assert found.url == hook.url("inline") and "canary" not in str(found), found
        self.ok("webhook with a message has the name of its task")

        request = ask("4 30", tenant="stream")
        request.configuration.task_push_notification_config.CopyFrom(webhook(hook.url("chunks")))
        context = ClientCallContext(service_parameters={"A2A-Extensions": CHUNKS})
        streamed = await self.events(streaming.send_message(request, context=context))
        told = [event_of(notice) for notice in await hook.until("chunks", is_completed)]
        chunks, wanted = ([e.artifact_update for e in events if e.HasField("artifact_update")] for events in (told, streamed))
        assert chunks == wanted and len(chunks) >= 2, (told, streamed)
        self.ok("webhook that is told every chunk of a stream")

    async def check_push_operations(self, client):
        """Webhooks of a task that is there, made and removed."""
        hook = Hook()
        task = (await self.send(client, ask("what is it", tenant="ask"))).task
        made = []
        for name in ("kept", "removed"):
            config = webhook(hook.url(name), task_id=task.id, id=name)
            made.append(await client.create_task_push_notification_config(config))
            assert (made[-1].id, made[-1].task_id, made[-1].url) == (name, task.id, hook.url(name)), made
        unnamed = await client.create_task_push_notification_config(webhook(hook.url("x"), task_id=task.id))
        assert uuid.UUID(unnamed.id), unnamed
        assert "canary" not in str([made, unnamed]) and made[0].authentication.scheme == "Basic", made
        self.ok("create webhooks")
        kept = GetTaskPushNotificationConfigRequest(task_id=task.id, id="kept")
        assert await client.get_task_push_notification_config(kept) == made[0]
        self.ok("get a webhook")

        async def names(size):
            found, token = [], ""
            while True:
                request = ListTaskPushNotificationConfigsRequest(task_id=task.id, page_size=size, page_token=token)
                page = await client.list_task_push_notification_configs(request)
                assert "canary" not in str(page), page
                found += [config.id for config in page.configs]
                token = page.next_page_token
                if not token:
                    return sorted(found)

        assert await names(50) == await names(2) == sorted(["kept", "removed", unnamed.id])
        self.ok("list webhooks")
        for name in ("removed", unnamed.id, "removed"):
            gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=name)
            await client.delete_task_push_notification_config(gone)
        assert await names(50) == ["kept"]
        self.ok("delete webhooks")
        await self.send(client, ask("forty-two", task_id=task.id))
        events = [event_of(notice) for notice in await hook.until("kept", is_completed)]
        assert events[0].status_update.status.state == TaskState.TASK_STATE_WORKING, events
        assert any("forty-two" in text_of(e.artifact_update.artifact.parts) for e in events), events
        assert not hook.told("removed") and not hook.told("x")
        self.ok("webhook of a task that goes on")
        for expected, call in [
            (TaskNotFoundError, client.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(task_id=task.id, id="removed"))),
            (InvalidParamsError, client.create_task_push_notification_config(
                webhook("http://169.254.169.254/latest", task_id=task.id))),
        ]:
            try:
                await call
            except expected:
                self.ok(f"webhook {expected.__name__}")
            else:
                raise AssertionError(f"no {expected.__name__}")

    async def check_errors(self, client):
        done = (await self.send(client, ask("hello"))).task
        for expected, call in [
            (TaskNotFoundError, lambda: client.get_task(GetTaskRequest(id="unknown"))),
            (TaskNotCancelableError, lambda: client.cancel_task(CancelTaskRequest(id=done.id))),
            (UnsupportedOperationError, lambda: self.send(client, ask("more", task_id=done.id))),
        ]:
            try:
                await call()
            except expected:
                self.ok(f"error {expected.__name__}")
            else:
                raise AssertionError(f"no {expected.__name__}")


async def main():
    total = 0
    async with httpx.AsyncClient(trust_env=False) as nobody:
        card = await A2ACardResolver(nobody, BASE).get_agent_card()
    offered = {i.protocol_binding for i in card.supported_interfaces}
    bindings = (TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON, TransportProtocol.GRPC)
    for binding in (binding for binding in bindings if binding in offered):
        checks = Checks(str(binding.value if hasattr(binding, "value") else binding))
        await asyncio.wait_for(checks.run(), 120)
        total += checks.count
    print(f"{total} checks of the Python SDK passed")


asyncio.run(main())
