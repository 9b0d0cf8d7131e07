"""Every example of docs/python.md, in order and as it stands, while somebody approves whatever is held."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import scripted_model

from standfast_sdk import Client, Problem

PAGE = Path(__file__).resolve().parents[3] / "docs/python.md"


def refund(order: str, amount: int) -> str:
    """Sends a refund."""
    return f"refunded {amount} for {order}"


def test_the_examples_of_the_guide(server, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from agents import set_default_openai_api, set_tracing_disabled

    set_default_openai_api("chat_completions")
    set_tracing_disabled(True)
    model = scripted_model.serve()
    models = {"OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.removesuffix("/v1"), "GOOGLE_API_KEY": "none"}
    for name, value in {"STANDFAST_URL": server.url, **models}.items():
        monkeypatch.setenv(name, value)
    over = threading.Event()

    def approve() -> None:
        while not over.wait(0.1):
            for hold in client.holds(state="open", agent="gate"):
                try:
                    client.resolve(hold["id"], "approve")
                except Problem:
                    pass

    threading.Thread(target=approve, daemon=True).start()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 10

    def send_refund(order: str, amount: int) -> str:
        """Sends a refund."""
        return refund(order, amount)

    names: dict[str, object] = {"tools": [send_refund], "refund": send_refund}
    try:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        over.set()
    said = capsys.readouterr().out
    assert said.count("refunded 40 for A-7") == 6
    for word in ("completed", "TASK_STATE_COMPLETED", "Tool Approval Required"):
        assert word in said, said
    assert names["receive"]("whsec_aaaa", {}, b"{}") == 400
