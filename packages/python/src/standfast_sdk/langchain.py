"""LangChain's own `HumanInTheLoopMiddleware`: its requests become gates, and what was decided there is its answer.

    graph.invoke(decisions(client, graph.get_state(config).interrupts, session=thread), config)

LangChain runs the calls, and nobody tells the server that they began or ended: a process that dies in the middle of a call runs it again, and
receipts say *not reported*. Its predicates (`when`) are evaluated again on resume. The middleware of `langgraph.py` has neither fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph.types import Command, Interrupt

from .client import Client
from .gate import Gate


def decisions(client: Client, interrupts: Iterable[Interrupt], *, session: str, timeout: float = 0.0) -> Command[Any] | None:
    """Asks the server about the requests of the middleware, batched and per call, and returns the command that answers them; none if
    somebody still has to decide after `timeout` seconds. Interrupts of others are left to them.
    """
    asked = [(one, calls) for one in interrupts if (calls := _calls(one))]
    gates = client.gates([{**call, "session": session} for _, calls in asked for call in calls]) if asked else []
    gates = [client.decided(gate, timeout) if gate.is_held else gate for gate in gates]
    if any(gate.is_held for gate in gates):
        return None
    decided = iter([_decision(gate) for gate in gates])
    answers: dict[str, Any] = {}
    for one, calls in asked:
        its = [next(decided) for _ in calls]
        answers[one.id] = {"decisions": its} if "action_requests" in one.value else its[0]
    return Command(resume=answers)


def _calls(one: Interrupt) -> list[dict[str, Any]]:
    """What an interrupt asks about: the calls of a turn, or one call, or nothing that is known here."""
    request = one.value if isinstance(one.value, dict) else {}
    if request.get("type") == "tool_approval":
        return [{"tool": request["name"], "arguments": request["args"], "call": request["tool_call_id"]}]
    actions = request.get("action_requests", [])
    return [{"tool": action["name"], "arguments": action["args"], "call": f"{one.id}:{no}"} for no, action in enumerate(actions)]


def _decision(gate: Gate) -> dict[str, Any]:
    if gate.refusal():
        return {"type": "reject", "message": gate.model_text}
    if gate.is_edited:
        return {"type": "edit", "edited_action": {"name": gate.tool, "args": gate.arguments}}
    return {"type": "approve"}
