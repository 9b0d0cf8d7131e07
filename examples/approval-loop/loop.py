"""Talks to an agent over A2A and asks you whatever it asks, until its task has ended.

    pip install -r requirements.txt
    python loop.py http://127.0.0.1:8080/v1/agents/ops "Clean up the disk"

Where the server wants keys, STANDFAST_KEY has yours.
"""

import asyncio
import os
import sys
import uuid

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import get_data_parts, get_text_parts, new_data_part, new_text_part
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import A2AError


async def send(client, parts, task=None):
    """Sends a message, to the task if there is one, and waits until input is required or it has ended."""
    ids = {"task_id": task.id, "context_id": task.context_id} if task else {}
    message = a2a.Message(message_id=str(uuid.uuid4()), role=a2a.ROLE_USER, parts=parts, **ids)
    try:
        (response,) = [one async for one in client.send_message(a2a.SendMessageRequest(message=message))]
        task = response.task
    except A2AError as refused:
        # Somebody else was faster, the time is up, or the arguments are wrong: the task says what is left to decide.
        if not task:
            raise
        print(refused)
        task = await client.get_task(a2a.GetTaskRequest(id=task.id))
    while task.status.state in (a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING):
        await asyncio.sleep(1)
        task = await client.get_task(a2a.GetTaskRequest(id=task.id))
    return task


def decide(asked):
    """What you decide about one question, as the data part that says so. It names the question."""
    said = input(f"{'/'.join(asked.get('options', []))}> ").strip()
    if asked["interaction_type"] == "input":
        decision = {"answer": said}
    elif said == "modify":
        decision = {"decision": said, "modified_input": input("arguments, as JSON> ")}
    else:
        decision = {"decision": said}
    return new_data_part({**decision, "hold_id": asked["hold_id"]})


async def main(url, words):
    key = os.environ.get("STANDFAST_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # A person may take longer than any timeout of HTTP: the task waits, not the connection.
    async with httpx.AsyncClient(timeout=600, headers=headers) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
        task = await send(client, [new_text_part(words)])
        while task.status.state == a2a.TASK_STATE_INPUT_REQUIRED:
            print("\n".join(get_text_parts(task.status.message.parts)))
            decisions = [decide(asked) for asked in get_data_parts(task.status.message.parts)]
            task = await send(client, decisions, task)
        print(a2a.TaskState.Name(task.status.state))
        print("\n".join(get_text_parts(task.status.message.parts)))


asyncio.run(main(*sys.argv[1:3]))
