"""The official Python client names receivers of push notifications, and reads what they get with its own types.

Called as `pushed.py BASE BINDING`; ends with `ok`.
"""

import asyncio
import json
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import new_data_part, new_text_part
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import TaskNotFoundError
from google.protobuf.json_format import ParseDict

BASE, BINDING = sys.argv[1:3]
GOT = []


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        GOT.append((dict(self.headers), json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def told(body):
    response = ParseDict(body, pb.StreamResponse())
    kind = response.WhichOneof("payload")
    if kind == "task":
        return f"task {pb.TaskState.Name(response.task.status.state)}"
    if kind == "status_update":
        return pb.TaskState.Name(response.status_update.status.state)
    return kind


def message(*parts, task=None):
    said = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=parts)
    if task is not None:
        said.task_id, said.context_id = task.id, task.context_id
    return said


async def task_after(client, said, **configuration):
    request = pb.SendMessageRequest(message=said, configuration=pb.SendMessageConfiguration(**configuration))
    (response,) = [response async for response in client.send_message(request)]
    return response.task


async def main():
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{receiver.server_port}/a2a"
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        card = await A2ACardResolver(http, f"{BASE}/v1/agents/ops").get_agent_card()
        assert card.capabilities.push_notifications, card
        config = ClientConfig(
            streaming=False,
            httpx_client=http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[BINDING],
        )
        client = ClientFactory(config).create(card)
        authentication = pb.AuthenticationInfo(scheme="Bearer", credentials="secret")
        inline = pb.TaskPushNotificationConfig(url=url, token="token", authentication=authentication)
        task = await task_after(client, message(new_text_part("please")), task_push_notification_config=inline)
        second = pb.TaskPushNotificationConfig(task_id=task.id, id="second", url=url)
        made = await client.create_task_push_notification_config(second)
        assert (made.id, made.url, made.task_id) == ("second", url, task.id), made
        get = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="second")
        assert (await client.get_task_push_notification_config(get)).id == "second"
        listed = await client.list_task_push_notification_configs(
            pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )
        assert len(listed.configs) == 2, listed
        delete = pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="second")
        await client.delete_task_push_notification_config(delete)
        await client.delete_task_push_notification_config(delete)
        try:
            await client.get_task_push_notification_config(get)
        except TaskNotFoundError:
            pass
        else:
            raise AssertionError("it was deleted")
        await task_after(client, message(new_data_part({"decision": "approve"}), task=task))
        for _ in range(600):
            if GOT and told(GOT[-1][1]) == "TASK_STATE_COMPLETED":
                break
            await asyncio.sleep(0.1)
        words = [told(body) for _, body in GOT]
        assert words == [
            "task TASK_STATE_WORKING",
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_WORKING",
            "artifact_update",
            "TASK_STATE_COMPLETED",
        ], words
        for headers, _ in GOT:
            named = {name.lower(): value for name, value in headers.items()}
            assert named["authorization"] == "Bearer secret", named
            assert named["x-a2a-notification-token"] == "token", named
    print("ok", flush=True)


asyncio.run(main())
