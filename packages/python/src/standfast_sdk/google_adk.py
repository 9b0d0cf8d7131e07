"""Google ADK: tools that ask before they run.

    agent = LlmAgent(model=…, name="billing", tools=[GuardedTool(send_refund, client)])

A held call asks for a confirmation, and the session waits. A confirmation decides nothing: the tool asks the server again when it is run,
and runs with the arguments that were approved. Resume with `confirmations`, which waits for the decision: ADK asks once, so a call that
is confirmed before anybody decided does not run, and the model gets that as the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from google.adk.events import Event
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from .client import AsyncClient
from .errors import NotAllowed
from .gate import Gate, to_json

#: What ADK calls the function by which it asks for confirmations.
REQUEST = "adk_request_confirmation"


class GuardedTool(FunctionTool):
    """A function behind a gate."""

    def __init__(self, func: Callable[..., Any], client: AsyncClient, *, lease: float | None = None) -> None:
        super().__init__(func)
        self.client, self.lease = client, lease

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Asks, and runs the function if it may run."""
        gate = await self.client.gate(self.name, args, session=tool_context.session.id, call=str(tool_context.function_call_id))
        if gate.is_held and not tool_context.tool_confirmation:
            payload = {"standfast": gate.id, "hold": gate.hold, "url": gate.url}
            tool_context.request_confirmation(hint=gate.model_text, payload=payload)
            tool_context.actions.skip_summarization = True
            return {"error": gate.model_text}
        run_function = super().run_async

        async def run_approved(approved: Any) -> Any:
            return await run_function(args=approved, tool_context=tool_context)

        try:
            result = await self.client.run(gate, run_approved, self.lease)
        except NotAllowed as no:
            return {"error": no.model_text}
        if gate.is_edited:
            note = f"an approver changed the arguments; it ran with {to_json(gate.arguments)}"
            return {**result, "note": note} if isinstance(result, dict) else {"result": result, "note": note}
        return result


async def waiting(client: AsyncClient, events: Iterable[Event]) -> dict[str, Gate]:
    """The gates that the events of a session wait for, by the ids of ADK's requests."""
    asked: dict[str, str] = {}
    for event in events:
        for call in event.get_function_calls():
            payload = ((call.args or {}).get("toolConfirmation") or {}).get("payload") or {}
            if call.name == REQUEST and call.id and "standfast" in payload:
                asked[call.id] = payload["standfast"]
        for response in event.get_function_responses():
            asked.pop(str(response.id), None)
    return {request: await client.look(gate) for request, gate in asked.items()}


async def confirmations(client: AsyncClient, events: Iterable[Event], *, timeout: float = 0.0) -> types.Content | None:
    """The message that resumes a session, once somebody has decided about every call; none if that takes longer than `timeout` seconds."""
    parts = []
    for request, gate in (await waiting(client, events)).items():
        gate = await client.decided(gate, timeout) if gate.is_held and timeout > 0 else gate
        if gate.is_held:
            return None
        response = types.FunctionResponse(id=request, name=REQUEST, response={"confirmed": True, "payload": {"standfast": gate.id}})
        parts.append(types.Part(function_response=response))
    return types.Content(role="user", parts=parts) if parts else None
