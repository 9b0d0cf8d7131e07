"""What workers of both engines do: ask for a refund, and pay it once it is allowed. Told by `STANDFAST`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx

URL = os.environ.get("STANDFAST", "")
ARGUMENTS = {"order": "A-7", "amount": 40}


def open_gate(workflow: str, callback: dict[str, Any]) -> str:
    """Asks, with whoever is told the decision; asked again it is the same gate."""
    body = {
        "tool": "send_refund", "arguments": ARGUMENTS, "agent": "refunds", "session": workflow, "call": "refund",
        "callback": callback,
    }
    return httpx.post(f"{URL}/api/v1/gates", json=body).raise_for_status().json()["gate"]


def pay(gate: dict[str, Any]) -> str:
    """Says that it begins, pays, says what came of it. A step that an engine repeats is refused the second start."""
    path = f"{URL}/api/v1/gates/{gate['gate']}"
    started = httpx.post(f"{path}/start", json={"digest": gate["digest"]})
    if started.status_code == 409:
        return "paid before"
    started.raise_for_status()
    amount = gate["arguments"]["amount"]
    with Path("paid.txt").open("a") as paid:
        paid.write(f"{amount}\n")
    outcome = {"attempt": started.json()["attempt"], "status": "succeeded", "result": {"paid": amount}}
    httpx.post(f"{path}/outcome", json=outcome).raise_for_status()
    return f"paid {amount}"
