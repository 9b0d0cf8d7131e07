"""The official client for Python uses what the official everything server has, and writes down what it got: one line of JSON.

Told where the server is: an address.
"""

import asyncio
import json
import re
import sys

import mcp.types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def sampled(context, params):
    return types.CreateMessageResult(
        role="assistant", model="none", content=types.TextContent(type="text", text="sampled é")
    )


async def elicited(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ann", "check": True})


async def roots(context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv", name="srv")])


async def main(address):
    got = {}
    logged = []

    async def log(params):
        logged.append(params.level)

    async with streamablehttp_client(address) as (read, write, _):
        async with ClientSession(
            read, write, sampling_callback=sampled, elicitation_callback=elicited,
            list_roots_callback=roots, logging_callback=log,
        ) as session:
            got["server"] = await session.initialize()

            async def note(name, work):
                try:
                    got[name] = await work
                except Exception as error:
                    got[name] = {"failed": str(error)}

            await note("roots first", session.call_tool("get-roots-list", {}))
            await note("tools", session.list_tools())
            await note("prompts", session.list_prompts())
            await note("prompt", session.get_prompt("args-prompt", {"city": "Wien"}))
            await note("resources", session.list_resources())
            await note("templates", session.list_resource_templates())
            await note("resource", session.read_resource("demo://resource/static/document/features.md"))
            await note("complete", session.complete(
                types.PromptReference(type="ref/prompt", name="completable-prompt"),
                {"name": "department", "value": "E"},
            ))
            await note("echo", session.call_tool("echo", {"message": "9007199254740993 é"}))
            await note("structured", session.call_tool("get-structured-content", {"location": "New York"}))
            await note("sampling", session.call_tool("trigger-sampling-request", {"prompt": "hello"}))
            await note("elicitation", session.call_tool("trigger-elicitation-request", {}))
            steps = []

            async def progress(step, total, message):
                steps.append([step, total, message])

            await note("long", session.call_tool(
                "trigger-long-running-operation", {"duration": 1, "steps": 4}, progress_callback=progress
            ))
            got["steps"] = sorted({tuple(step) for step in steps if step[0] < step[1]})
            await note("logging on", session.call_tool("toggle-simulated-logging", {}))
            for _ in range(600):
                if logged:
                    break
                await asyncio.sleep(0.05)
            got["logged"] = bool(logged)

    def plain(value):
        if hasattr(value, "model_dump"):
            return value.model_dump(mode="json", by_alias=True)
        return value

    text = json.dumps({name: plain(value) for name, value in got.items()}, sort_keys=True)
    print(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text), flush=True)


asyncio.run(main(sys.argv[1]))
