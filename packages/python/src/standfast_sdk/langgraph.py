"""LangChain and LangGraph: a middleware that asks before tools run.

    agent = create_agent(model, tools, middleware=[Approvals(Client())], checkpointer=checkpointer)

A held call interrupts the graph; the checkpoint waits, not the process. Resuming decides nothing: the node asks the server again, which
knows whether somebody approved, and so neither the resume value nor a predicate lets a call run. Graphs that keep LangChain's own
middleware for approvals have `langchain.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.types import Command, Interrupt, interrupt

from .client import Client
from .errors import NotAllowed
from .gate import Gate, Started, to_json

Answer = ToolMessage | Command[Any]


@dataclass
class _ToolFailed(Exception):
    answer: ToolMessage  # The tool's error is a message for the model already.


class Approvals(AgentMiddleware[Any, Any, Any]):
    """Every tool of the agent, or those named by `tools`, asks the server before it runs. What it is asked is up to the server's policy."""

    def __init__(self, client: Client, *, tools: Iterable[str] | None = None, lease: float | None = None) -> None:
        super().__init__()
        self.client, self.names, self.lease = client, None if tools is None else frozenset(tools), lease

    def _asks(self, name: str) -> bool:
        return self.names is None or name in self.names

    def after_model(self, state: Any, runtime: Any) -> None:
        """The calls of one turn are asked about together: all of them are seen, or none."""
        calls = [call for call in getattr(state["messages"][-1], "tool_calls", None) or [] if self._asks(call["name"])]
        if len(calls) > 1:
            self.client.gates([_request(call) for call in calls])

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        await asyncio.to_thread(self.after_model, state, runtime)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]) -> Answer:
        if not (gate := self._decided(request)):
            return handler(request)
        if gate.has_result or gate.refusal():
            return _without_running(gate)
        try:
            with self.client.started(gate, self.lease) as call:
                call.result = _reported(answer := handler(_approved(request, gate)))
        except NotAllowed:  # The policy has become stricter in between: what is asked again says how.
            return self.wrap_tool_call(request, handler)
        except _ToolFailed as failed:
            return failed.answer
        return _with_note(answer, gate)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]) -> Answer:
        # The thread keeps the context, by which LangGraph knows where it interrupts.
        if not (gate := await asyncio.to_thread(self._decided, request)):
            return await handler(request)
        if gate.has_result or gate.refusal():
            return _without_running(gate)
        try:
            async with self._started(gate) as call:
                call.result = _reported(answer := await handler(_approved(request, gate)))
        except NotAllowed:
            return await self.awrap_tool_call(request, handler)
        except _ToolFailed as failed:
            return failed.answer
        return _with_note(answer, gate)

    @asynccontextmanager
    async def _started(self, gate: Gate) -> AsyncIterator[Started]:
        """`Client.started`, with no thread that waits while the tool runs: tools may be agents with tools."""
        block = self.client.started(gate, self.lease)
        call = await asyncio.to_thread(block.__enter__)
        try:
            yield call
        except BaseException as error:
            await asyncio.shield(asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__))
            raise
        await asyncio.to_thread(block.__exit__, None, None, None)

    def _decided(self, request: ToolCallRequest) -> Gate | None:
        if not self._asks(request.tool_call["name"]):
            return None
        gate = self.client.gate(**_request(request.tool_call))
        while gate.is_held:
            interrupt({"standfast": {"gate": gate.id, "hold": gate.hold, "url": gate.url, "tool": gate.tool, "arguments": gate.arguments}})
            gate = self.client.look(gate.id)
        return gate


def held_gates(interrupts: Iterable[Interrupt]) -> dict[str, str]:
    """The gates that a graph waits for, by the ids of its interrupts: `held_gates(graph.get_state(config).interrupts)`."""
    return {one.id: one.value["standfast"]["gate"] for one in interrupts if isinstance(one.value, dict) and "standfast" in one.value}


def resume(client: Client, interrupts: Iterable[Interrupt], *, timeout: float = 0.0) -> Command[Any] | None:
    """What resumes the graph, once somebody has decided about every call; none if that takes longer than `timeout` seconds."""
    held = held_gates(interrupts)
    if any(client.decided(client.look(gate), timeout).is_held for gate in held.values()):
        return None
    return Command(resume={interrupt: "decided" for interrupt in held})


def _request(call: Any) -> dict[str, Any]:
    session = str(get_config()["configurable"].get("thread_id") or "no-thread")
    return {"tool": call["name"], "arguments": call["args"], "session": session, "call": call["id"]}


def _approved(request: ToolCallRequest, gate: Gate) -> ToolCallRequest:
    return request.override(tool_call={**request.tool_call, "args": gate.arguments})


def _reported(answer: Answer) -> Any:
    if isinstance(answer, ToolMessage) and answer.status == "error":
        raise _ToolFailed(answer)
    return answer.content if isinstance(answer, ToolMessage) else "a command for the graph"


def _without_running(gate: Gate) -> ToolMessage:
    if gate.has_result:
        content = gate.result if isinstance(gate.result, (str, list)) else to_json(gate.result)
        return ToolMessage(content, tool_call_id=gate.call, name=gate.tool)
    return ToolMessage(gate.model_text, tool_call_id=gate.call, name=gate.tool, status="error")


def _with_note(answer: Answer, gate: Gate) -> Answer:
    if gate.is_edited and isinstance(answer, ToolMessage) and isinstance(answer.content, str):
        note = f"{answer.content}\n\n(An approver changed the arguments; it ran with {to_json(gate.arguments)})"
        return answer.model_copy(update={"content": note})
    return answer
