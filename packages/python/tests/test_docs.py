"""Every example of docs/python.md, in order and as it stands, while somebody approves whatever is held. That of CrewAI has tests of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scripted_model

PAGE = Path(__file__).resolve().parents[3] / "docs/python.md"


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def refund(order: str, amount: int) -> str:
    """Sends a refund."""
    return f"refunded {amount} for {order}"


def test_the_examples_of_the_guide(server, approver: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from agents import set_default_openai_api, set_tracing_disabled

    set_default_openai_api("chat_completions")
    set_tracing_disabled(True)
    model = scripted_model.serve()
    models = {"OPENAI_BASE_URL": model, "OPENAI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.removesuffix("/v1"), "GOOGLE_API_KEY": "none"}
    for name, value in {"STANDFAST_URL": server.url, **models}.items():
        monkeypatch.setenv(name, value)
    blocks = [block for block in examples() if "crewai" not in block]
    assert len(blocks) == 10

    def send_refund(order: str, amount: int) -> str:
        """Sends a refund."""
        return refund(order, amount)

    names: dict[str, object] = {"tools": [send_refund], "refund": send_refund}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert said.count("refunded 40 for A-7") == 6
    for word in ("completed", "TASK_STATE_COMPLETED", "Tool Approval Required"):
        assert word in said, said
    assert names["receive"]("whsec_aaaa", {}, b"{}") == 400
