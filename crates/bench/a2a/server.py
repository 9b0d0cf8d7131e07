"""The other side of the A2A bench: the official Python SDK's server, with agents that answer as ours do.

Called as `server.py STORE PLACE`. STORE is where tasks are kept: `memory`, or `sqlite`, a file in the folder PLACE that is
written as ours is (WAL, every commit synced). Prints where it listens; ends when its standard input does.
"""

import logging
import os
import sys
import threading

import uvicorn
from a2a.helpers.proto_helpers import new_data_part, new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette
from starlette.routing import Mount

STORE, PLACE = sys.argv[1], sys.argv[2]
DONE = "Done: 4.2 GB are free now."
PATH = "/var/lib/app/cache/2026-11-15/segment-000017"
QUESTION = (
    f"🔐 Tool Approval Required\n\nTool: delete_file\nInput: {PATH}\n\nPlease respond with one of: approve, deny, modify"
)
HOLD = {
    "interaction_type": "tool_approval",
    "tool_name": "delete_file",
    "tool_input": PATH,
    "options": ["approve", "deny", "modify"],
    "hold_id": "hold_1",
    "tool_call_id": "call_1",
}


async def ends(updater):
    await updater.add_artifact([new_text_part(DONE)])
    await updater.complete(updater.new_agent_message([new_text_part(DONE)]))


class Plain(AgentExecutor):
    """Answers at once."""

    async def execute(self, context, event_queue):
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        await ends(TaskUpdater(event_queue, task.id, task.context_id))

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Asks(Plain):
    """Asks first; any answer will do."""

    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
            updater = TaskUpdater(event_queue, task.id, task.context_id)
            await updater.requires_input(updater.new_agent_message([new_text_part(QUESTION), new_data_part(HOLD)]))
        else:
            updater = TaskUpdater(event_queue, task.id, task.context_id)
            await updater.start_work()
            await ends(updater)


def task_store():
    if STORE == "memory":
        return InMemoryTaskStore()
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy import event
    from sqlalchemy.ext.asyncio import create_async_engine

    file = os.path.join(PLACE, "tasks.db")
    engine = create_async_engine(f"sqlite+aiosqlite:///{file}", connect_args={"timeout": 60})

    @event.listens_for(engine.sync_engine, "connect")
    def connected(connection, _record):
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    return DatabaseTaskStore(engine)


def agent(name, executor, store):
    base = f"/v1/agents/{name}"
    card = pb.AgentCard(
        name=name,
        description="Answers.",
        version="1.0.0",
        supported_interfaces=[
            pb.AgentInterface(url=f"http://127.0.0.1{base}", protocol_binding="HTTP+JSON", protocol_version="1.0")
        ],
        capabilities=pb.AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[pb.AgentSkill(id="answer", name="answer", description="Answers.", tags=["answer"])],
    )
    handler = DefaultRequestHandler(agent_executor=executor, task_store=store, agent_card=card)
    return Mount(base, routes=create_rest_routes(handler))


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        # Its table is made at the first request otherwise, by several of them at once, and all but one fail.
        if STORE == "sqlite":
            await KEPT.initialize()
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"{host}:{port}", flush=True)


def ends_with_its_parent():
    sys.stdin.read()
    os._exit(0)


# The SDK leaves tasks behind, about which asyncio complains at length: that would cost time, and hide what matters.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
threading.Thread(target=ends_with_its_parent, daemon=True).start()
KEPT = task_store()
APP = Starlette(routes=[agent("plain", Plain(), KEPT), agent("ops", Asks(), KEPT)])
Server(uvicorn.Config(APP, host="127.0.0.1", port=0, log_level="error", backlog=4096)).run()
