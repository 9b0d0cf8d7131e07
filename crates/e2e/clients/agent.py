"""A remote agent made with the official Python SDK: it asks which account, then pays from it.

Called as `agent.py PORT BINDING FILE`. Each payment is a line in FILE, so that everyone sees what ran and how often.
Prints where it listens.
"""

import sys

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as pb
from starlette.applications import Starlette

PORT, BINDING, FILE = int(sys.argv[1]), sys.argv[2], sys.argv[3]


class Pays(AgentExecutor):
    async def execute(self, context, event_queue):
        begins = context.current_task is None
        task = context.current_task or new_task_from_user_message(context.message)
        if begins:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        said = context.get_user_input()
        if begins and "refuse" in said:
            await updater.reject(updater.new_agent_message([new_text_part("not my work")]))
        elif begins:
            question = updater.new_agent_message([new_text_part("Which account shall pay?")])
            await updater.requires_input(question)
        else:
            with open(FILE, "a", encoding="utf-8") as paid:
                paid.write(said + "\n")
            await updater.add_artifact([new_text_part(f"paid from {said}")])
            await updater.complete()

    async def cancel(self, context, event_queue):
        with open(FILE, "a", encoding="utf-8") as paid:
            paid.write("canceled\n")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


CARD = pb.AgentCard(
    name="Paying agent",
    description="Pays bills.",
    version="1.0.0",
    supported_interfaces=[
        pb.AgentInterface(url=f"http://127.0.0.1:{PORT}/a2a", protocol_binding=BINDING, protocol_version="1.0")
    ],
    capabilities=pb.AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[pb.AgentSkill(id="pay", name="pay", description="Pays bills.", tags=["pay"])],
)
HANDLER = DefaultRequestHandler(agent_executor=Pays(), task_store=InMemoryTaskStore(), agent_card=CARD)
ROUTES = create_agent_card_routes(CARD)
if BINDING == "JSONRPC":
    ROUTES += create_jsonrpc_routes(HANDLER, "/a2a")
else:
    ROUTES += create_rest_routes(HANDLER, path_prefix="/a2a")


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(f"listens on http://127.0.0.1:{PORT}", flush=True)


Server(uvicorn.Config(Starlette(routes=ROUTES), host="127.0.0.1", port=PORT, log_level="error")).run()
