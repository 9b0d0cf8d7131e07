"""An agent with LangChain's own middleware: `start|resume FOLDER`, with MODE=batched or MODE=per_call. Prints `held HOLD`, or `said WORDS` and
`recorded STATUS`.
"""

import os
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver

from agent import ASK, MODEL_URL, send_refund
from standfast_sdk import Client
from standfast_sdk.langchain import decisions

command, folder = sys.argv[1], Path(sys.argv[2])
client = Client(agent="billing")
thread = f"thread-{folder.name}"
config = {"configurable": {"thread_id": thread}}
middleware = HumanInTheLoopMiddleware({"send_refund": True}, interrupt_mode=os.environ["MODE"])

with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as checkpointer:
    model = ChatOpenAI(model="m", base_url=MODEL_URL, api_key="none")
    agent = create_agent(model, [send_refund], middleware=[middleware], checkpointer=checkpointer)
    if command == "start":
        agent.invoke({"messages": [("user", ASK)]}, config)
    while waiting := agent.get_state(config).interrupts:
        answer = decisions(client, waiting, session=thread, timeout=10.0 if command == "resume" else 0.0)
        if answer is None:
            break
        agent.invoke(answer, config)
    state = agent.get_state(config)

if state.interrupts:
    for hold in client.holds(state="open", agent="gate"):
        if client.look(hold["run"]).session == thread:
            print("held", hold["id"], flush=True)
else:
    messages = state.values["messages"]
    print("said", messages[-1].content, flush=True)
    print("recorded", *(message.status for message in messages if message.type == "tool"), flush=True)
