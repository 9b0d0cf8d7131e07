"""Pydantic AI: a toolset that asks before its tools run.

    agent = Agent(model, toolsets=[Approvals(toolset, client, session=case)], output_type=[str, DeferredToolRequests])

A held call ends the run with `DeferredToolRequests`; keep the messages and its metadata, and resume with `results`. Each time a tool is
called the server is asked, whatever the framework was told, and the tool runs with the arguments that were approved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai import ApprovalRequired, DeferredToolResults, RunContext, ToolDenied, ToolFailed
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from .client import AsyncClient
from .errors import Denied, Held, NotAllowed
from .gate import to_json

#: The conversation: a name, or what makes one of the context of the run.
Session = str | Callable[[RunContext[Any]], str]


@dataclass
class Approvals(WrapperToolset[Any]):
    """The tools of a toolset behind gates."""

    client: AsyncClient
    session: Session
    lease: float | None = None

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Asks, and runs the tool if it may run."""
        session = self.session if isinstance(self.session, str) else self.session(ctx)
        asked = to_jsonable_python(tool_args)
        gate = await self.client.gate(name, asked, session=session, call=str(ctx.tool_call_id))

        async def run_approved(approved: Any) -> Any:
            args = tool.args_validator.validate_python(approved) if gate.is_edited else tool_args
            return await self.wrapped.call_tool(name, args, ctx, tool)

        try:
            result = await self.client.run(gate, run_approved, self.lease)
        except Held:
            raise ApprovalRequired(metadata={"standfast": gate.id, "url": gate.url, "hold": gate.hold}) from None
        except Denied as no:
            return ToolDenied(no.model_text)
        except NotAllowed as no:
            raise ToolFailed(no.model_text) from no
        if gate.is_edited and isinstance(result, str):
            return f"{result}\n\n(An approver changed the arguments; it ran with {to_json(gate.arguments)})"
        return result


async def results(client: AsyncClient, metadata: Mapping[str, Mapping[str, Any]], *, timeout: float = 0.0) -> DeferredToolResults | None:
    """What resumes the run, once somebody has decided about every call; none if that takes longer than `timeout` seconds. `metadata` is
    that of the `DeferredToolRequests` with which the run ended: plain JSON, to be kept with the messages.

    Arguments that an approver edited are not in it: the toolset is handed them by the server.
    """
    answers = DeferredToolResults()
    for call, asked in metadata.items():
        if "standfast" not in asked:
            continue
        gate = await client.look(asked["standfast"])
        if gate.is_held and timeout > 0:
            gate = await client.decided(gate, timeout)
        if gate.is_held:
            return None
        denied = gate.state in ("denied", "expired", "withdrawn")
        answers.approvals[call] = ToolDenied(gate.model_text) if denied else True
    return answers
