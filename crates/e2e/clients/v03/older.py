"""The official Python client of A2A 0.3 against a server: everything a client does, on the binding that is named.

Called as `older.py BASE BINDING`. Prints `restart` and waits for a line when the server is to be killed and started again
at the same address; ends with `ok`.
"""

import asyncio
import json
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import httpx
from a2a.client import A2ACardResolver, A2AClientHTTPError, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import (
    DataPart,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
)

BASE, BINDING = sys.argv[1:3]
DONE = "written"
# How a refusal looks: this client tells those of gRPC as they are.
REFUSALS = (A2AClientError, grpc.aio.AioRpcError)


def text(words):
    return Part(root=TextPart(text=words))


def data(value):
    return Part(root=DataPart(data=value))


def message(*parts, task=None):
    ids = {"task_id": task.id, "context_id": task.context_id} if task else {}
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=list(parts), **ids)


async def client_of(agent, http, **config):
    card = await A2ACardResolver(http, f"{BASE}/v1/agents/{agent}").get_agent_card()
    # A proxy that the environment names is not for this machine.
    channel = lambda url: grpc.aio.insecure_channel(url, options=[("grpc.enable_http_proxy", 0)])
    config = ClientConfig(
        httpx_client=http, grpc_channel_factory=channel, supported_transports=[BINDING], **config
    )
    return ClientFactory(config).create(card)


async def hears(client, said):
    """What a stream tells, event by event, and the last event. The client changes one task from event to event."""
    heard = []
    async for event in client.send_message(said):
        heard.append(told(event))
    return heard, event


async def task_after(client, said):
    _, (task, update) = await hears(client, said)
    assert update is None, update
    return task


def question(task):
    assert task.status.state == TaskState.input_required, task
    (asked,) = [part.root.data for part in task.status.message.parts if part.root.kind == "data"]
    return asked


def told(event):
    task, update = event
    if update is None:
        return f"task {task.status.state.value}"
    return update.status.state.value if update.kind == "status-update" else "artifact"


async def refused(awaited, *words):
    try:
        await awaited
    except REFUSALS as error:
        assert any(word in str(error) for word in words), error
    else:
        raise AssertionError(f"this should have been refused: {words}")


async def sends_and_decides(client):
    task = await task_after(client, message(text("write it")))
    asked = question(task)
    assert asked["interaction_type"] == "tool_approval" and asked["tool_name"] == "write_file", asked
    assert task.status.message.parts[0].root.text.startswith("🔐 Tool Approval Required"), task
    still = await task_after(client, message(text("what does it write?"), task=task))
    assert question(still) == asked, "what is no decision leaves the task waiting"
    approved = await task_after(client, message(text("approve"), data({"decision": "approve"}), task=task))
    assert approved.status.state == TaskState.completed, approved
    assert approved.artifacts[0].parts[0].root.text == DONE, approved

    task = await task_after(client, message(text("once more")))
    denied = await task_after(client, message(data({"decision": "deny", "reason": "no"}), task=task))
    assert denied.status.state == TaskState.completed, denied

    task = await task_after(client, message(text("once more")))
    arguments = {"path": "c.txt", "content": "z"}
    decision = {"decision": "modify", "modified_input": arguments, "hold_id": question(task)["hold_id"]}
    modified = await task_after(client, message(data(decision), task=task))
    assert modified.status.state == TaskState.completed, modified
    # Over HTTP+JSON this client tells the status and nothing of the body.
    await refused(task_after(client, message(data({"decision": "approve"}), task=task)), "has ended", "400")


async def gets_and_cancels(client, polling):
    task = await task_after(polling, message(text("go")))
    for _ in range(300):
        found = await client.get_task(TaskQueryParams(id=task.id, history_length=1))
        if found.status.state == TaskState.input_required:
            break
        await asyncio.sleep(0.1)
    assert question(found) and len(found.history) == 1, found
    canceled = await client.cancel_task(TaskIdParams(id=task.id))
    assert canceled.status.state == TaskState.canceled, canceled
    await refused(client.get_task(TaskQueryParams(id="run_x")), "Task not found", "404")
    config = TaskPushNotificationConfig(
        task_id=task.id, push_notification_config=PushNotificationConfig(id="c", url="http://127.0.0.1:9/a")
    )
    kept = await client.set_task_callback(config)
    assert kept.push_notification_config.url == "http://127.0.0.1:9/a", kept
    found = GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="c")
    assert (await client.get_task_callback(found)).push_notification_config.id == "c"
    card = await client.get_card()
    # Nobody is authenticated here, so there is no extended card: it is the public one.
    assert card.name == "ops" and not card.supports_authenticated_extended_card, card


async def streams(client):
    heard, (task, last) = await hears(client, message(text("go")))
    assert heard == ["task working", "input-required"], heard
    assert last.final, "it was the last event of this stream"
    heard, _ = await hears(client, message(data({"decision": "approve"}), task=task))
    assert heard[0].startswith("task ") and heard[-1].endswith("completed"), heard


async def resubscribes_across_a_restart(client):
    _, (task, _) = await hears(client, message(text("go")))
    first = client.resubscribe(TaskIdParams(id=task.id))
    assert told(await anext(first)) == "task input-required"
    print("restart", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        async for _ in first:
            raise AssertionError("nothing happened before the server was killed")
    except (httpx.HTTPError, A2AClientHTTPError, grpc.aio.AioRpcError):
        pass
    second = client.resubscribe(TaskIdParams(id=task.id))
    assert told(await anext(second)) == "task input-required"
    await hears(client, message(data({"decision": "approve"}), task=task))
    # How many deltas of the reply there are differs each time.
    rest = [told(one) async for one in second if told(one) != "artifact" or one[1].last_chunk]
    assert rest == ["working", "artifact", "completed"], rest
    over = [told(one) async for one in client.resubscribe(TaskIdParams(id=task.id))]
    assert over == ["task completed"], over


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it gets about a task, read with the client's own types, by the path it was told at."""

    got = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        Receiver.got.append((self.path, self.headers["x-a2a-notification-token"], Task.model_validate(json.loads(body))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def told_at(path):
    got = [(token, task) for at, token, task in Receiver.got if at == path]
    assert all(token == path.strip("/") for token, _ in got), got
    return [task for _, task in got]


async def is_pushed_to(http):
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()

    def config(name):
        return PushNotificationConfig(id=name, url=f"http://127.0.0.1:{receiver.server_port}/{name}", token=name)

    # One that comes with every message, and one that is named later.
    client = await client_of("ops", http, streaming=False, push_notification_configs=[config("inline")])
    task = await task_after(client, message(text("go")))
    later = TaskPushNotificationConfig(task_id=task.id, push_notification_config=config("later"))
    await client.set_task_callback(later)
    await task_after(client, message(data({"decision": "approve"}), task=task))
    for path, words in [("/inline", ["working", "input-required", "working", "completed"]), ("/later", None)]:
        for _ in range(600):
            tasks = told_at(path)
            if tasks and tasks[-1].status.state == TaskState.completed:
                break
            await asyncio.sleep(0.1)
        heard = [one.status.state.value for one in tasks]
        assert heard == words or (words is None and heard[-2:] == ["working", "completed"]), (path, heard)
        assert tasks[-1].id == task.id and tasks[-1].artifacts[0].parts[0].root.text == DONE, tasks[-1]
    receiver.shutdown()


async def main():
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        plain = await client_of("ops", http, streaming=False)
        await sends_and_decides(plain)
        await gets_and_cancels(plain, await client_of("ops", http, streaming=False, polling=True))
        streaming = await client_of("ops", http, streaming=True)
        await streams(streaming)
        await resubscribes_across_a_restart(streaming)
        await is_pushed_to(http)
    print("ok", flush=True)


asyncio.run(main())
