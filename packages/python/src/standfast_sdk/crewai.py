"""CrewAI: tools that ask before they run.

    approvals = Approvals(client, session=case)
    agent = Agent(role=…, tools=approvals.guard([send_refund]))
    result = approvals.run(crew.kickoff, timeout=60)

A held call stops the crew with `Paused`, a deliberate stop for CrewAI: nothing is retried, no answer is made up, and the process may end.
Kicked off again in the same session, the crew starts over and asks the model again; its call finds the gate that it had, and runs with the
arguments that were approved. What ran before does not run again: what it returned is handed out.

CrewAI tells tools nothing by which the model names its calls. The n-th call of a task with the same tool and arguments is the same
call, so a session is one piece of work, and other arguments are another question.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from crewai.hooks import HookAborted, InterceptionPoint, ToolCallHookContext, get_hooks, register_hook
from crewai.tools import BaseTool, ToolFailure
from pydantic import PrivateAttr
from pydantic_core import to_jsonable_python

from .client import Client
from .errors import NotAllowed, StandfastError
from .gate import Gate, to_json

T = TypeVar("T")

# The task that a tool is called for, from the hook before the call to the tool.
_task: ContextVar[str] = ContextVar("standfast_task", default="")


class Paused(HookAborted):
    """The crew was stopped because a call is held. The gate stays open."""

    def __init__(self, failure: ToolFailure) -> None:
        super().__init__(failure.message, source="standfast")
        self.gate_id, self.hold, self.url = (failure.details[name] for name in ("standfast", "hold", "url"))


class _ToolFailed(Exception):
    """The tool returned a `ToolFailure`, its only argument: the server records that it failed, and CrewAI gets what it returned."""


class Approvals:
    """Guards the tools of crews for one piece of work."""

    def __init__(self, client: Client, *, session: str, lease: float | None = None) -> None:
        self.client, self.session, self.lease = client, session, lease
        #: The gates that the last kickoff was stopped for, by their ids.
        self.held: dict[str, Gate] = {}
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def guard(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        """The tools behind gates."""
        for point, hook in ((InterceptionPoint.PRE_TOOL_CALL, _note_task), (InterceptionPoint.POST_TOOL_CALL, _stop_if_held)):
            if hook not in get_hooks(point):
                register_hook(point, hook)
        return [_guard(tool, self) for tool in tools]

    def run(self, kickoff: Callable[[], T], *, timeout: float = 0.0) -> T:
        """Kicks off, and again whenever somebody has decided about every call that it was stopped for. Raises `Paused` when that takes longer
        than `timeout` seconds: do the same later, in any process.
        """
        while True:
            self.start_over()
            try:
                return kickoff()
            except Paused:
                gates = [self.client.decided(gate, timeout) for gate in self.held.values()]
                if any(gate.is_held for gate in gates):
                    raise

    def start_over(self) -> None:
        """Counts calls from the first one on, as each kickoff does that `run` makes."""
        self.held.clear()
        self._calls.clear()

    def ask(self, tool: str, arguments: Any) -> Gate:
        """The gate of a call."""
        which = hashlib.sha256(f"{_task.get()}:{tool}:{to_json(arguments)}".encode()).hexdigest()
        with self._lock:
            self._calls[which] += 1
            call = f"{which[:32]}-{self._calls[which]}"
        gate = self.client.gate(tool, arguments, session=self.session, call=call)
        if gate.is_held:
            self.held[gate.id] = gate
        return gate


class GuardedTool(BaseTool):
    """A tool behind a gate."""

    _guarded: tuple[BaseTool, Approvals] | None = PrivateAttr(None)

    def _run(self, **arguments: Any) -> Any:
        if not self._guarded:
            raise StandfastError(f"{self.name} comes from a checkpoint and knows no server: guard it again")
        tool, approvals = self._guarded
        gate = approvals.ask(self.name, to_jsonable_python(arguments))

        def run_approved(approved: Any) -> Any:
            result = tool.run(**(approved if gate.is_edited else arguments))
            if isinstance(result, ToolFailure):
                raise _ToolFailed(result)
            return result

        try:
            result = approvals.client.run(gate, run_approved, approvals.lease)
        except NotAllowed as no:
            details = {"standfast": no.gate.id, "hold": no.gate.hold, "url": no.gate.url}
            return ToolFailure(message=no.model_text, code=no.gate.state, details=details)
        except _ToolFailed as failed:
            return failed.args[0]
        if gate.is_edited and isinstance(result, str):
            return f"{result}\n\n(An approver changed the arguments; it ran with {to_json(gate.arguments)})"
        return result


def _guard(tool: BaseTool, approvals: Approvals) -> GuardedTool:
    guarded = GuardedTool(
        name=tool.name, description=tool.description, args_schema=tool.args_schema, result_schema=tool.result_schema,
        result_as_answer=tool.result_as_answer, tool_failure_policy=tool.tool_failure_policy, cache_function=_never_cache,
    )
    guarded._guarded = (tool, approvals)
    return guarded


def _never_cache(arguments: Any = None, result: Any = None) -> bool:
    """Each call is a question of its own; and CrewAI would answer the next one with a failure, too."""
    return False


def _note_task(context: ToolCallHookContext) -> None:
    _task.set(context.task.key if context.task else "")


def _stop_if_held(context: ToolCallHookContext) -> None:
    result = context.raw_tool_result
    if isinstance(result, ToolFailure) and result.code == "held" and "standfast" in result.details:
        raise Paused(result)
