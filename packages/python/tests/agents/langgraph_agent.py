"""A LangGraph agent: `start|resume|impatient FOLDER`, with MODE=async by `ainvoke`. Prints `held HOLD`, or `said WORDS` and `recorded STATUS`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from agent import ASK, MODEL_URL, send_refund
from standfast_sdk import Client
from standfast_sdk.langgraph import Approvals, held_gates, resume

command, folder = sys.argv[1], Path(sys.argv[2])
client = Client(agent="billing")
model = ChatOpenAI(model="m", base_url=MODEL_URL, api_key="none")
config = {"configurable": {"thread_id": f"thread-{folder.name}"}}
checkpoints = str(folder / "checkpoints.db")


def make(checkpointer: Any) -> Any:
    return create_agent(model, [send_refund], middleware=[Approvals(client)], checkpointer=checkpointer)


def given(waiting: Any) -> Any:
    if command == "start":
        return {"messages": [("user", ASK)]}
    if command == "impatient":
        # Somebody resumes what nobody approved at the server.
        return Command(resume={one.id: {"type": "approve"} for one in waiting})
    return resume(client, waiting, timeout=10) if waiting else None


async def run_async() -> Any:
    async with AsyncSqliteSaver.from_conn_string(checkpoints) as checkpointer:
        agent = make(checkpointer)
        return await agent.ainvoke(given((await agent.aget_state(config)).interrupts), config)


if os.environ.get("MODE") == "async":
    state = asyncio.run(run_async())
else:
    with SqliteSaver.from_conn_string(checkpoints) as checkpointer:
        agent = make(checkpointer)
        state = agent.invoke(given(agent.get_state(config).interrupts), config)
for gate in held_gates(state.get("__interrupt__", [])).values():
    print("held", client.look(gate).hold, flush=True)
if "__interrupt__" not in state:
    print("said", state["messages"][-1].content, flush=True)
    print("recorded", *(message.status for message in state["messages"] if message.type == "tool"), flush=True)
