"""A service of Restate: it waits in an awakeable, which the callback of a gate resolves. Told its port and the address of the ingress."""

import asyncio
import sys
from typing import Any

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

import refunds

port, ingress = sys.argv[1:]
service = restate.Service("refunds")


@service.handler()
async def refund(ctx: restate.Context, order: str) -> str:
    name, decided = ctx.awakeable(type_hint=dict)
    callback = {"url": f"{ingress}/restate/awakeables/{name}/resolve"}

    async def ask() -> str:
        return await asyncio.to_thread(refunds.open_gate, order, callback)

    await ctx.run_typed("ask", ask)
    gate: dict[str, Any] = await decided
    if not gate["decision"]["allowed"]:
        return f"not paid: {gate['decision']['reason']}"

    async def pays() -> str:
        return await asyncio.to_thread(refunds.pay, gate)

    return await ctx.run_typed("pay", pays)


config = Config()
config.bind = [f"127.0.0.1:{port}"]
asyncio.run(serve(restate.app([service]), config))
