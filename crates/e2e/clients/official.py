"""The official Python client against a server: everything a client does, on the binding that is named.

Called as `official.py BASE BINDING`. Prints `restart` and waits for a line when the server is to be killed and started
again at the same address; ends with `ok`.
"""

import asyncio
import sys
import uuid

import httpx
from a2a.helpers.proto_helpers import get_data_parts, get_text_parts, new_data_part, new_text_part
from a2a.types import a2a_pb2 as pb

from asking import client_of, responses, task_after

DONE = "I have dealt with the old cache."


def message(*parts, task=None):
    said = pb.Message(message_id=str(uuid.uuid4()), role=pb.ROLE_USER, parts=parts)
    if task is not None:
        said.task_id, said.context_id = task.id, task.context_id
    return said


def question(task):
    assert task.status.state == pb.TASK_STATE_INPUT_REQUIRED, task
    (data,) = get_data_parts(task.status.message.parts)
    return data


def told(response):
    kind = response.WhichOneof("payload")
    if kind == "task":
        return f"task {pb.TaskState.Name(response.task.status.state)}"
    if kind == "status_update":
        return pb.TaskState.Name(response.status_update.status.state)
    return kind


def is_live(response):
    """Whether it is a delta of the reply; how many there are differs each time."""
    return response.WhichOneof("payload") == "artifact_update" and not response.artifact_update.last_chunk


async def sends_and_decides(client):
    task = await task_after(client, message(new_text_part("Delete all temporary files")))
    asked = question(task)
    assert asked["interaction_type"] == "tool_approval" and asked["tool_name"] == "delete_file", asked
    assert get_text_parts(task.status.message.parts)[0].startswith("🔐 Tool Approval Required"), task

    still = await task_after(client, message(new_text_part("what does it delete?"), task=task))
    assert question(still) == asked, "what is no decision leaves the task waiting"

    approved = await task_after(client, message(new_data_part({"decision": "approve"}), task=task))
    assert approved.status.state == pb.TASK_STATE_COMPLETED, approved
    assert get_text_parts(approved.artifacts[0].parts) == [DONE], approved

    task = await task_after(client, message(new_text_part("once more")))
    denied = await task_after(client, message(new_text_part("deny"), task=task))
    assert denied.status.state == pb.TASK_STATE_COMPLETED, denied

    task = await task_after(client, message(new_text_part("once more")))
    decision = {"decision": "modify", "modified_input": {"path": "/srv/else"}, "hold_id": question(task)["hold_id"]}
    modified = await task_after(client, message(new_data_part(decision), task=task))
    assert modified.status.state == pb.TASK_STATE_COMPLETED, modified
    wrong = message(new_data_part({"decision": "modify", "modified_input": "{"}), task=task)
    try:
        await task_after(client, wrong)
    except Exception as error:  # noqa: BLE001, the kinds of errors differ by binding
        assert "has ended" in str(error), error
    else:
        raise AssertionError("a finished task takes no message")


async def gets_lists_and_cancels(client):
    task = await task_after(client, message(new_text_part("go")), return_immediately=True)
    for _ in range(300):
        found = await client.get_task(pb.GetTaskRequest(id=task.id, history_length=1))
        if found.status.state == pb.TASK_STATE_INPUT_REQUIRED:
            break
        await asyncio.sleep(0.1)
    assert question(found) and len(found.history) == 1, found
    waiting = await client.list_tasks(pb.ListTasksRequest(status=pb.TASK_STATE_INPUT_REQUIRED))
    assert [one.id for one in waiting.tasks] == [task.id], waiting
    everything = await client.list_tasks(pb.ListTasksRequest(page_size=2))
    assert len(everything.tasks) == 2 and everything.next_page_token and everything.total_size > 2, everything
    canceled = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert canceled.status.state == pb.TASK_STATE_CANCELED, canceled


async def streams(client):
    heard = await responses(client, message(new_text_part("go")))
    assert [told(one) for one in heard] == ["task TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"], heard
    task = heard[0].task
    heard = await responses(client, message(new_data_part({"decision": "approve"}), task=task))
    assert told(heard[0]).startswith("task ") and told(heard[-1]).endswith("TASK_STATE_COMPLETED"), heard


async def subscribes_across_a_restart(client):
    heard = await responses(client, message(new_text_part("go")))
    task = heard[0].task
    first = client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
    assert told(await anext(first)) == "task TASK_STATE_INPUT_REQUIRED"
    print("restart", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        async for _ in first:
            raise AssertionError("nothing happened before the server was killed")
    except httpx.HTTPError:
        pass
    except Exception as error:  # noqa: BLE001, the client has its own errors for a broken connection
        assert not isinstance(error, AssertionError), error
    second = client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
    assert told(await anext(second)) == "task TASK_STATE_INPUT_REQUIRED"
    await responses(client, message(new_data_part({"decision": "approve"}), task=task))
    rest = [told(one) async for one in second if not is_live(one)]
    assert rest == ["TASK_STATE_WORKING", "artifact_update", "TASK_STATE_COMPLETED"], rest


async def main():
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        plain = await client_of("ops", http, streaming=False)
        await sends_and_decides(plain)
        await gets_lists_and_cancels(plain)
        streaming = await client_of("ops", http, streaming=True)
        await streams(streaming)
        await subscribes_across_a_restart(streaming)
    print("ok", flush=True)


asyncio.run(main())
