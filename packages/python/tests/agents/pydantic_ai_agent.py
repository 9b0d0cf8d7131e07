"""An agent of Pydantic AI: `start|resume|impatient FOLDER`. Prints `held HOLD`, or `said WORDS` and `recorded OUTCOME`."""

import asyncio
import json
import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, FunctionToolset, ModelMessagesTypeAdapter
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from agent import ASK, MODEL_URL, send_refund
from standfast_sdk import AsyncClient
from standfast_sdk.pydantic_ai import Approvals, results

command, folder = sys.argv[1], Path(sys.argv[2])
kept, gates = folder / "messages.json", folder / "gates.json"


async def main() -> None:
    client = AsyncClient(agent="billing")
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=MODEL_URL, api_key="none"))
    tools = Approvals(FunctionToolset([send_refund]), client, session=f"case-{folder.name}")
    agent = Agent(model, toolsets=[tools], output_type=[str, DeferredToolRequests])
    if command == "start":
        result = await agent.run(ASK)
    else:
        messages = ModelMessagesTypeAdapter.validate_json(kept.read_bytes())
        metadata = json.loads(gates.read_text())
        impatient = DeferredToolResults(approvals={"call_1": True})
        answers = impatient if command == "impatient" else await results(client, metadata, timeout=10)
        result = await agent.run(message_history=messages, deferred_tool_results=answers)
    if isinstance(result.output, DeferredToolRequests):
        if command == "start":
            kept.write_bytes(result.all_messages_json())
            gates.write_text(json.dumps(result.output.metadata))
        for one in result.output.metadata.values():
            print("held", one["hold"], flush=True)
    else:
        print("said", result.output, flush=True)
        parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
        print("recorded", *(part.outcome for part in parts), flush=True)


asyncio.run(main())
