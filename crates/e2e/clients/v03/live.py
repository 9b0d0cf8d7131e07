"""The official Python client of A2A 0.3, which gathers artifacts by itself, while the model says one.

Called as `live.py BASE BINDING HALF WHOLE`. Prints `half` when it has that much, whereupon the model goes on; ends with
`ok`.
"""

import asyncio
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role, TaskIdParams, TaskState, TextPart

BASE, BINDING, HALF, WHOLE = sys.argv[1:5]


def message(part, task=None):
    ids = {"task_id": task.id, "context_id": task.context_id} if task else {}
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=part)], **ids)


def words(task):
    return "".join(part.root.text for artifact in task.artifacts or [] for part in artifact.parts)


async def main():
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        card = await A2ACardResolver(http, f"{BASE}/v1/agents/ops").get_agent_card()

        def client_of(**config):
            config = ClientConfig(httpx_client=http, supported_transports=[BINDING], **config)
            return ClientFactory(config).create(card)

        client, hasty = client_of(), client_of(streaming=False, polling=True)

        async def approve(task):
            async for _ in hasty.send_message(message(DataPart(data={"decision": "approve"}), task)):
                pass

        async for task, _ in client_of(streaming=False).send_message(message(TextPart(text="go"))):
            pass
        stream = client.resubscribe(TaskIdParams(id=task.id))
        await anext(stream)
        await approve(task)
        has_half = False
        async for task, update in stream:
            if update is not None and update.kind == "status-update":
                if update.status.state == TaskState.input_required:
                    assert words(task) == "", f"words in front of a call are no result: {task}"
                    await approve(task)
            if words(task) == HALF and not has_half:
                has_half = True
                print("half", flush=True)
        assert has_half and words(task) == WHOLE, task
        assert task.status.state == TaskState.completed, task
    print("ok", flush=True)


asyncio.run(main())
