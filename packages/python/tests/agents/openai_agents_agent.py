"""An agent of OpenAI Agents: `start|resume|impatient FOLDER`. Prints `held HOLD`, or `said WORDS` and `recorded approved|rejected`."""

import asyncio
import sys
from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, Runner, RunState, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from agent import ASK, MODEL_URL, send_refund
from standfast_sdk import AsyncClient
from standfast_sdk.openai_agents import guard, run, settle

command, folder = sys.argv[1], Path(sys.argv[2])
kept = folder / "state.json"


async def main() -> None:
    set_tracing_disabled(True)
    client = AsyncClient(agent="billing")
    model = OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=MODEL_URL, api_key="none"))
    tool = function_tool(send_refund, failure_error_function=None)
    agent = Agent(name="billing", model=model, tools=[guard(tool, client, session=f"case-{folder.name}")])
    state = None if command == "start" else await RunState.from_string(agent, kept.read_text())
    if command == "impatient":
        # Somebody approves in the state what nobody approved at the server.
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(agent, state)
        state = await RunState.from_string(agent, kept.read_text())
        held = await settle(client, state)
        assert "Not executed" in result.final_output, result.final_output
    else:
        result = await run(agent, state or ASK, client=client, timeout=10 if state else 0)
        if result.interruptions:
            kept.write_text(result.to_state().to_string())
        held = await settle(client, result.to_state()) if result.interruptions else []
    for gate in held:
        print("held", gate.hold, flush=True)
    if not held:
        print("said", result.final_output, flush=True)
        print("recorded", "approved" if result.context_wrapper.is_tool_approved("send_refund", "call_1") else "rejected", flush=True)


asyncio.run(main())
