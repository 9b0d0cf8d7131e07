"""A LangGraph agent: `langgraph_agent.py start|resume|impatient FOLDER` with STANDFAST_URL and MODEL_URL. Prints `held HOLD` or `said WORDS`."""

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from agent import MODEL_URL, send_refund
from standfast_sdk import Client
from standfast_sdk.langgraph import Approvals, held_gates, resume

command, folder = sys.argv[1], Path(sys.argv[2])
client = Client(agent="billing")
model = ChatOpenAI(model="m", base_url=MODEL_URL, api_key="none")
config = {"configurable": {"thread_id": f"thread-{folder.name}"}}
with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as checkpointer:
    agent = create_agent(model, [send_refund], middleware=[Approvals(client)], checkpointer=checkpointer)
    if command == "start":
        state = agent.invoke({"messages": [("user", "Refund A-7")]}, config)
    elif command == "impatient":
        waiting = agent.get_state(config).interrupts
        state = agent.invoke(Command(resume={one.id: {"type": "approve"} for one in waiting}), config)
    else:
        waiting = agent.get_state(config).interrupts
        state = agent.invoke(resume(client, waiting, timeout=10) if waiting else None, config)
    for gate in held_gates(state.get("__interrupt__", [])).values():
        print("held", client.look(gate).hold, flush=True)
    if "__interrupt__" not in state:
        print("said", state["messages"][-1].content, flush=True)
