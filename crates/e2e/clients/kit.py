"""The official Python client as a conformance kit uses it: every beginning of a message, on the binding that is named.

Called as `kit.py BASE BINDING`; ends with `ok`.
"""

import asyncio
import uuid

import httpx
from a2a.helpers.proto_helpers import get_data_parts, get_text_parts, new_text_part
from a2a.types import a2a_pb2 as pb

from asking import client_of, responses, task_after

WORDS = {
    "tck-complete-task": "Hello from TCK",
    "tck-delayed-complete": "Done after delay",
    "tck-long-running": "Done after a long run",
    "tck-artifact-text": "Generated text content",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
    "tck-stream-ordering-001": "Ordered output",
    "tck-stream-artifact-text": "Streamed text content",
    "tck-stream-artifact-chunked": "chunk-1 chunk-2",
    "tck-stream-basic": "Streamed content",
    "tck-stream-chunked": "chunk one chunk two chunk three",
    "test-resubscribe-message-id": "Done after a resubscription",
    "anything-else": "Unhandled message, completed",
}
STATES = {
    "tck-input-required": pb.TASK_STATE_INPUT_REQUIRED,
    "tck-multi-turn": pb.TASK_STATE_INPUT_REQUIRED,
    "tck-auth-required": pb.TASK_STATE_AUTH_REQUIRED,
    "tck-reject-task": pb.TASK_STATE_REJECTED,
    "tck-task-failure": pb.TASK_STATE_FAILED,
}


def message(prefix, text="hello", task=None):
    said = pb.Message(message_id=f"{prefix}-{uuid.uuid4()}", role=pb.ROLE_USER, parts=[new_text_part(text)])
    if task is not None:
        said.task_id = task.id
    return said


async def completes(client, prefix, words):
    task = await task_after(client, message(prefix))
    assert task.status.state == pb.TASK_STATE_COMPLETED, (prefix, task)
    assert get_text_parts(task.artifacts[0].parts) == [words], (prefix, task)
    assert get_text_parts(task.status.message.parts) == [words], (prefix, task)


async def reaches(client, prefix, state):
    task = await task_after(client, message(prefix))
    assert task.status.state == state, (prefix, task)
    assert get_text_parts(task.status.message.parts), (prefix, "a status says why")


async def makes(client):
    for prefix in ("tck-artifact-file", "tck-stream-artifact-file"):
        (part,) = (await task_after(client, message(prefix))).artifacts[0].parts
        assert (part.raw, part.filename, part.media_type) == (b"tck", "output.txt", "text/plain"), part
    (part,) = (await task_after(client, message("tck-artifact-file-url"))).artifacts[0].parts
    assert (part.url, part.filename) == ("https://example.com/output.txt", "output.txt"), part
    task = await task_after(client, message("tck-artifact-data"))
    assert get_data_parts(task.artifacts[0].parts) == [{"key": "value", "count": 42}], task
    silent = await task_after(client, message("tck-stream-002"))
    assert silent.status.state == pb.TASK_STATE_COMPLETED and not silent.artifacts, silent


async def says_directly(client):
    (response,) = await responses(client, message("tck-message-response"))
    assert response.WhichOneof("payload") == "message", response
    assert response.message.role == pb.ROLE_AGENT and not response.message.task_id, response


async def goes_on(client):
    task = await task_after(client, message("tck-input-required"))
    again = await task_after(client, message("tck-input-required", "once more", task))
    assert (again.id, again.status.state) == (task.id, pb.TASK_STATE_INPUT_REQUIRED), again
    done = await task_after(client, message("tck-complete-task", "the end", task))
    assert done.status.state == pb.TASK_STATE_COMPLETED, done
    said = [text for one in done.history if one.role == pb.ROLE_USER for text in get_text_parts(one.parts)]
    assert said == ["hello", "once more", "the end"], said


async def is_cancelled(client):
    task = await task_after(client, message("tck-cancel"), return_immediately=True)
    assert task.status.state in (pb.TASK_STATE_SUBMITTED, pb.TASK_STATE_WORKING), task
    over = await client.cancel_task(pb.CancelTaskRequest(id=task.id))
    assert over.status.state == pb.TASK_STATE_CANCELED, over


async def streams(client):
    for prefix in ("tck-stream-001", "tck-stream-basic", "tck-stream-chunked"):
        events = await responses(client, message(prefix))
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[0] == "task" and kinds[-1] == "status_update" and "artifact_update" in kinds, (prefix, kinds)
        assert events[-1].status_update.status.state == pb.TASK_STATE_COMPLETED, (prefix, events)
    (event,) = await responses(client, message("tck-message-response"))
    assert event.WhichOneof("payload") == "message", event


async def main():
    async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
        client = await client_of("conformance", http, streaming=False)
        await asyncio.gather(
            *(completes(client, prefix, words) for prefix, words in WORDS.items()),
            *(reaches(client, prefix, state) for prefix, state in STATES.items()),
            makes(client),
            says_directly(client),
            goes_on(client),
            is_cancelled(client),
        )
        await streams(await client_of("conformance", http, streaming=True))
    print("ok")


asyncio.run(main())
