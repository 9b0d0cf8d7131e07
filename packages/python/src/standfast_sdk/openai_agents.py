"""OpenAI Agents: tools that ask before they run.

    agent = Agent(name="billing", tools=[guard(send_refund, client, session=case)])
    result = await run(agent, "Refund A-7", client=client)

A guarded tool always interrupts the run (`needs_approval` is the constant true, no predicate that is evaluated again). The decision is the
server's: it is asked when the run is resumed, and again when the tool is invoked, which runs with the arguments that were approved.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from agents import Agent, FunctionTool, Runner, RunState
from agents.items import ToolApprovalItem
from agents.result import RunResult
from agents.tool_context import ToolContext

from .client import AsyncClient
from .errors import NotAllowed
from .gate import Gate, to_json

#: The conversation: a name, or what makes one of the context of the run.
Session = str | Callable[[Any], str]

# By tool: what its interruptions are asked about with.
_SESSIONS = "standfast_session"


def guard(tool: FunctionTool, client: AsyncClient, *, session: Session, lease: float | None = None) -> FunctionTool:
    """The tool behind a gate. Give it `failure_error_function=None`, so that its errors are reported as errors and not as words."""

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        gate = await client.gate(tool.name, _arguments(arguments), session=_named(session, context), call=context.tool_call_id)

        async def run_approved(approved: Any) -> Any:
            text = to_json(approved) if gate.is_edited else arguments
            return await tool.on_invoke_tool(context, text)

        try:
            return _with_note(await client.run(gate, run_approved, lease), gate)
        except NotAllowed as no:
            return no.model_text

    guarded = copy.copy(tool)
    guarded.needs_approval = True
    guarded.on_invoke_tool = invoke
    setattr(guarded, _SESSIONS, session)
    return guarded


async def settle(client: AsyncClient, state: RunState[Any, Any], *, timeout: float = 0.0) -> list[Gate]:
    """Carries what was decided into a state: waits up to `timeout` seconds for each call. Returns the gates that still wait."""
    held = []
    for item in state.get_interruptions():
        session = _session_of(item, state)
        if session is None:
            continue
        raw: Any = item.raw_item
        gate = await client.gate(str(item.tool_name), _arguments(raw.arguments), session=session, call=raw.call_id)
        if gate.is_held and timeout > 0:
            gate = await client.decided(gate, timeout)
        if gate.is_held:
            held.append(gate)
        elif gate.state in ("denied", "expired", "withdrawn"):
            state.reject(item, rejection_message=gate.model_text)
        else:
            state.approve(item)
    return held


async def run(agent: Agent[Any], input: Any, *, client: AsyncClient, timeout: float = 0.0, **more: Any) -> RunResult:
    """`Runner.run` until the end, or until somebody has to decide: then keep `result.to_state().to_string()`, and give this the state of
    `RunState.from_string` later. The process need not wait.
    """
    if isinstance(input, RunState) and await settle(client, input, timeout=timeout):
        timeout = 0.0
    result = await Runner.run(agent, input, **more)
    while result.interruptions:
        state = result.to_state()
        if await settle(client, state, timeout=timeout) or not any(_session_of(item, state) for item in result.interruptions):
            return result
        result = await Runner.run(agent, state, **more)
    return result


def _session_of(item: ToolApprovalItem, state: RunState[Any, Any]) -> str | None:
    tools = [tool for tool in getattr(item.agent, "tools", []) if tool.name == item.tool_name]
    session = getattr(tools[0], _SESSIONS, None) if tools else None
    return None if session is None else _named(session, state._context)


def _named(session: Session, context: Any) -> str:
    return session if isinstance(session, str) else session(context)


def _arguments(text: str) -> Any:
    """What is no JSON is asked about as the text that it is."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _with_note(result: Any, gate: Gate) -> Any:
    if gate.is_edited and isinstance(result, str):
        return f"{result}\n\n(An approver changed the arguments; it ran with {to_json(gate.arguments)})"
    return result
