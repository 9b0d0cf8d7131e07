"""An agent of Google ADK: `start|resume|impatient FOLDER`. Prints `held HOLD`, or `said WORDS` and `recorded MEMBER` of the last response."""

import asyncio
import os
import sys
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from agent import ASK, MODEL_URL, send_refund
from standfast_sdk import AsyncClient
from standfast_sdk.google_adk import REQUEST, GuardedTool, confirmations, waiting

command, folder = sys.argv[1], Path(sys.argv[2])
os.environ |= {"GOOGLE_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": MODEL_URL.removesuffix("/v1")}
ids = {"app_name": "billing", "user_id": "ann", "session_id": f"case-{folder.name}"}


async def main() -> None:
    client = AsyncClient(agent="billing")
    sessions = SqliteSessionService(str(folder / "sessions.db"))
    agent = LlmAgent(name="billing", model="gemini-scripted", tools=[GuardedTool(send_refund, client)])
    runner = Runner(app_name="billing", agent=agent, session_service=sessions)
    if command == "start":
        await sessions.create_session(**ids)
        message = types.Content(role="user", parts=[types.Part(text=ASK)])
    else:
        events = (await sessions.get_session(**ids)).events
        if command == "resume":
            message = await confirmations(client, events, timeout=10)
        else:
            # Somebody confirms in the session what nobody approved at the server.
            answers = [types.FunctionResponse(id=one, name=REQUEST, response={"confirmed": True}) for one in await waiting(client, events)]
            message = types.Content(role="user", parts=[types.Part(function_response=one) for one in answers])
    said, recorded = "", []
    if message:
        async for event in runner.run_async(user_id="ann", session_id=ids["session_id"], new_message=message):
            recorded += [member for one in event.get_function_responses() for member in one.response]
            said = "".join(part.text or "" for part in event.content.parts) if event.content and event.content.parts else said
    gates = await waiting(client, (await sessions.get_session(**ids)).events)
    held = {gate.hold for gate in gates.values() if gate.is_held}
    for hold in held:
        print("held", hold, flush=True)
    if not held:
        print("said", said, flush=True)
        print("recorded", *recorded, flush=True)


asyncio.run(main())
