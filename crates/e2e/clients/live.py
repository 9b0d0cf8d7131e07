"""The official Python client gathers an artifact while the model says it, with the library's own function for that.

Called as `live.py BASE BINDING HALF WHOLE`. Prints `half` when it has that much, whereupon the model goes on; ends with
`ok`.
"""

import asyncio
import sys
import uuid

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import get_text_parts, new_data_part, new_text_part
from a2a.server.tasks.task_manager import append_artifact_to_task
from a2a.types import a2a_pb2 as pb

BASE, BINDING, HALF, WHOLE = sys.argv[1:5]


def request(*parts, task=None, **configuration):
    said = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=parts)
    if task is not None:
        said.task_id, said.context_id = task.id, task.context_id
    return pb.SendMessageRequest(message=said, configuration=pb.SendMessageConfiguration(**configuration))


def words(task):
    return "".join(text for artifact in task.artifacts for text in get_text_parts(artifact.parts))


async def main():
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        card = await A2ACardResolver(http, f"{BASE}/v1/agents/ops").get_agent_card()

        def client_of(streaming):
            config = ClientConfig(
                streaming=streaming,
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_protocol_bindings=[BINDING],
            )
            return ClientFactory(config).create(card)

        client, following = client_of(streaming=False), client_of(streaming=True)

        async def approve(task):
            approval = request(new_data_part({"decision": "approve"}), task=task, return_immediately=True)
            async for _ in client.send_message(approval):
                pass

        (sent,) = [answer async for answer in client.send_message(request(new_text_part("go")))]
        stream = following.subscribe(pb.SubscribeToTaskRequest(id=sent.task.id))
        task = (await anext(stream)).task
        await approve(task)
        has_half = False
        async for event in stream:
            kind = event.WhichOneof("payload")
            if kind == "artifact_update":
                append_artifact_to_task(task, event.artifact_update)
            else:
                task.status.CopyFrom(event.status_update.status)
            if task.status.state == pb.TASK_STATE_INPUT_REQUIRED:
                assert words(task) == "", f"words in front of a call are no result: {task}"
                await approve(task)
            if words(task) == HALF and not has_half:
                has_half = True
                print("half", flush=True)
        assert has_half and words(task) == WHOLE, task
        stored = await client.get_task(pb.GetTaskRequest(id=task.id))
        assert list(stored.artifacts) == list(task.artifacts), (stored, task)
        assert task.status.state == pb.TASK_STATE_COMPLETED, task
    print("ok", flush=True)


asyncio.run(main())
