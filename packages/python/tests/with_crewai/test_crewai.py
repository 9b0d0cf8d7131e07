"""The cases of every adapter for CrewAI's, in the environment of `requirements.txt` beside this file; and what only CrewAI has."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

import pytest  # noqa: E402
import scripted_model  # noqa: E402
from crewai import LLM, Agent, BaseLLM, Crew, Task  # noqa: E402
from crewai.tools import BaseTool, ToolFailure, tool  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402
from test_adapters import *  # noqa: E402, F403
from test_docs import PAGE, examples  # noqa: E402

from standfast_sdk import Client, StandfastError  # noqa: E402
from standfast_sdk.crewai import Approvals, GuardedTool, Paused  # noqa: E402


@pytest.fixture
def agent_name() -> str:
    return "crewai"


@pytest.fixture
def denied() -> str:
    return "recorded denied"


@pytest.fixture
def approvals(client: Client) -> Approvals:
    return Approvals(client, session=f"case-{uuid.uuid4()}")


class Speaker(BaseLLM):
    """A model without function calling: its calls are words."""

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        said = str(messages)
        if "refunded" in said or "Not executed" in said:
            return "Thought: I now know the final answer\nFinal Answer: " + ("refunded" if "refunded" in said else "Not executed")
        return 'Thought: I refund\nAction: send_refund\nAction Input: {"order": "A-7", "amount": 40}'

    def supports_function_calling(self) -> bool:
        return False


@pytest.mark.parametrize("way", ["kickoff", "kickoff_async", "akickoff", "agent", "words"])
def test_every_way_in_which_crewai_calls_tools(approvals: Approvals, client: Client, way: str) -> None:
    """Held, and stopped; approved, and ran once; kicked off once more, and handed out."""
    ran = []

    @tool("send_refund")
    def send_refund(order: str, amount: int) -> str:
        """Sends a refund."""
        ran.append((order, amount))
        return f"refunded {amount} for {order}"

    llm = Speaker(model="m") if way == "words" else LLM(model="openai/m", base_url=scripted_model.serve(), api_key="none")
    billing = Agent(role="billing", goal="refund", backstory="none", llm=llm, tools=approvals.guard([send_refund]))
    crew = Crew(agents=[billing], tasks=[Task(description="Refund A-7", expected_output="words", agent=billing)])
    kickoffs = {
        "kickoff": crew.kickoff, "words": crew.kickoff, "agent": lambda: billing.kickoff("Refund A-7"),
        "kickoff_async": lambda: asyncio.run(crew.kickoff_async()), "akickoff": lambda: asyncio.run(crew.akickoff()),
    }
    with pytest.raises(Paused) as pause:
        approvals.run(kickoffs[way])
    assert list(approvals.held) == [pause.value.gate_id] and ran == []
    client.resolve(pause.value.hold, "approve")
    for _ in range(2):
        assert "refunded" in approvals.run(kickoffs[way]).raw
    assert ran == [("A-7", 40)]


def test_the_same_call_again_is_another_question(approvals: Approvals) -> None:
    """Until the crew starts over: then each call finds its own gate."""
    first, second = [approvals.ask("pay_out", {"n": 1}).id for _ in range(2)]
    other = approvals.ask("pay_out", {"n": 2}).id
    assert len({first, second, other}) == 3 and set(approvals.held) == {first, second, other}
    approvals.start_over()
    assert [approvals.ask("pay_out", {"n": n}).id for n in (2, 1, 1)] == [other, first, second]
    assert all(gate.is_held for gate in approvals.held.values()), "none takes the place of another"


def test_a_tool_that_fails_is_reported_and_not_run_again(approvals: Approvals, client: Client) -> None:
    ran = []

    @tool("change_plan")
    def change_plan(plan: str) -> object:
        """Changes the plan."""
        ran.append(plan)
        if plan == "gold":
            raise RuntimeError("no gold left")
        return ToolFailure(message="no such plan", code="unknown_plan")

    (guarded,) = approvals.guard([change_plan])
    assert guarded.run(plan="tin").code == "unknown_plan"
    with pytest.raises(RuntimeError, match="no gold left"):
        guarded.run(plan="gold")
    approvals.start_over()
    for plan in ("tin", "gold"):
        failure = guarded.run(plan=plan)
        assert isinstance(failure, ToolFailure) and failure.code == "done"
        assert client.look(failure.details["standfast"]).outcome["ok"] is False
    assert ran == ["tin", "gold"]


def test_without_a_server_nothing_runs() -> None:
    import standfast_sdk.client as module

    pauses, module.PAUSES = module.PAUSES, (0.01,)
    try:
        (guarded,) = Approvals(Client("http://127.0.0.1:9"), session="none").guard([never()])
        with pytest.raises(StandfastError, match="did not answer"):
            guarded.run()
    finally:
        module.PAUSES = pauses


def test_what_comes_from_a_checkpoint_refuses_to_run(approvals: Approvals) -> None:
    (guarded,) = approvals.guard([never()])
    (restored,) = TypeAdapter(list[BaseTool]).validate_python([guarded.model_dump(mode="json")])
    assert isinstance(restored, GuardedTool)
    with pytest.raises(StandfastError, match="guard it again"):
        restored.run()


def never() -> BaseTool:
    @tool("read_balance")
    def read_balance() -> str:
        """Reads the balance."""
        pytest.fail("it ran")

    return read_balance


def test_the_example_of_the_guide(server, approver: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"STANDFAST_URL": server.url, "OPENAI_BASE_URL": scripted_model.serve(), "OPENAI_API_KEY": "none"}.items():
        monkeypatch.setenv(name, value)
    (block,) = [block for block in examples() if "crewai" in block]
    exec(compile(block, str(PAGE), "exec"), {})
    assert "The tool said: refunded 40 for A-7" in capsys.readouterr().out
