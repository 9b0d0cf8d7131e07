"""What models write instead of JSON, in OpenAI Agents."""

from __future__ import annotations

import asyncio
import uuid

from agents import function_tool
from agents.tool_context import ToolContext

from standfast_sdk import AsyncClient, Client
from standfast_sdk.openai_agents import guard


def test_arguments_that_are_not_json_are_held_though_a_rule_allows_the_tool(client: Client, server) -> None:
    ran: list[str] = []
    session = f"case-{uuid.uuid4()}"

    def read_balance(account: str) -> str:
        """Reads a balance."""
        ran.append(account)
        return "40"

    async def call(text: str) -> str:
        asking = AsyncClient(server.url, agent="billing")
        tool = guard(function_tool(read_balance, failure_error_function=None), asking, session=session)
        context = ToolContext(None, tool_name="read_balance", tool_call_id=f"call {text}", tool_arguments=text)
        return str(await tool.on_invoke_tool(context, text))

    assert asyncio.run(call('{"account": "A-7"}')) == "40"
    said = asyncio.run(call('{"account": "B-8"'))
    assert "Not executed" in said and ran == ["A-7"]
    gates = [client.look(hold["run"]) for hold in client.holds(state="open", agent="gate")]
    assert [gate.arguments for gate in gates if gate.session == session] == ['{"account": "B-8"']
