"""LangChain and LangGraph: a middleware that asks before tools run, and answers for LangChain's own human-in-the-loop middleware.

    agent = create_agent(model, tools, middleware=[Approvals(Client())], checkpointer=checkpointer)

A held call interrupts the graph; the checkpoint waits, not the process. Resuming decides nothing: the node asks the server again, which
knows whether somebody approved, and so neither the resume value nor a predicate lets a call run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langgraph.config import get_config
from langgraph.types import Command, Interrupt, interrupt

from .client import Client
from .gate import Gate, to_json

Answer = ToolMessage | Command[Any]


class _ToolFailed(Exception):
    """The tool's error is a message for the model already: the one argument."""


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
        if not self._asks(request.tool_call["name"]):
            return handler(request)
        gate = self._decided(request)
        if gate.has_result or gate.refusal():
            return _without_running(gate)
        try:
            with self.client.started(gate, self.lease) as call:
                answer = handler(_approved(request, gate))
                call.result = _reported(answer)
        except _ToolFailed as failed:
            return cast(ToolMessage, failed.args[0])
        return _with_note(answer, gate)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]) -> Answer:
        loop = asyncio.get_running_loop()

        def handle(approved: ToolCallRequest) -> Answer:
            return asyncio.run_coroutine_threadsafe(handler(approved), loop).result()  # type: ignore[arg-type]

        # The thread keeps the context, by which LangGraph knows where it interrupts.
        return await asyncio.to_thread(self.wrap_tool_call, request, handle)

    def _decided(self, request: ToolCallRequest) -> Gate:
        gate = self.client.gate(**_request(request.tool_call))
        while gate.is_held:
            interrupt({"standfast": {"gate": gate.id, "hold": gate.hold, "url": gate.url, "tool": gate.tool, "arguments": gate.arguments}})
            gate = self.client.look(gate.id)
        return gate


def held_gates(interrupts: Iterable[Interrupt]) -> dict[str, str]:
    """The gates that a graph waits for, by the ids of its interrupts: `held_gates(graph.get_state(config).interrupts)`."""
    return {one.id: one.value["standfast"]["gate"] for one in interrupts if isinstance(one.value, dict) and "standfast" in one.value}


def resume(client: Client, interrupts: Iterable[Interrupt], timeout: float | None = None) -> Command[Any] | None:
    """What resumes the graph, once somebody has decided about every call; none if that takes longer than `timeout` seconds."""
    held = held_gates(interrupts)
    if any(client.decided(client.look(gate), timeout).is_held for gate in held.values()):
        return None
    return Command(resume={interrupt: "decided" for interrupt in held})


def decisions(client: Client, interrupts: Iterable[Interrupt], *, session: str, timeout: float | None = None) -> Command[Any] | None:
    """For graphs that keep LangChain's `HumanInTheLoopMiddleware`: asks the server about its requests, batched and per call, and returns
    the command that answers them; none while somebody has to decide. LangChain runs the call, so receipts say that its end was not reported.
    """
    answers: dict[str, Any] = {}
    for one in interrupts:
        batched = "action_requests" in one.value
        asked = one.value["action_requests"] if batched else [one.value]
        calls = [one.value.get("tool_call_id") or f"{one.id}:{no}" for no in range(len(asked))]
        gates = client.gates([
            {"tool": action["name"], "arguments": action["args"], "session": session, "call": call} for action, call in zip(asked, calls)
        ])
        gates = [client.decided(gate, timeout) if gate.is_held else gate for gate in gates]
        if any(gate.is_held for gate in gates):
            return None
        decided = [_decision(gate) for gate in gates]
        answers[one.id] = {"decisions": decided} if batched else decided[0]
    return Command(resume=answers)


def _decision(gate: Gate) -> dict[str, Any]:
    if gate.refusal():
        return {"type": "reject", "message": gate.model_text}
    if gate.is_edited:
        return {"type": "edit", "edited_action": {"name": gate.tool, "args": gate.arguments}}
    return {"type": "approve"}


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
