"""Each adapter with its real framework, a scripted model on loopback, and the product.

An agent is a program of its own. It is killed while its call is held, or in the middle of it, and started again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import scripted_model

from standfast_sdk import Client

AGENTS = Path(__file__).parent / "agents"
#: The adapters, and by which word their frameworks record that a call was denied.
ADAPTERS = {"google_adk": "error", "langgraph": "error", "langgraph-async": "error", "openai_agents": "rejected", "pydantic_ai": "denied"}


@pytest.fixture(scope="session")
def model() -> str:
    return scripted_model.serve()


@pytest.fixture
def denied(agent_name: str) -> str:
    return f"recorded {ADAPTERS[agent_name]}"


@pytest.fixture(params=ADAPTERS)
def agent_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def agent(agent_name: str, tmp_path: Path, server, model: str):
    """Runs a step of the agent as a process of its own, which is gone afterwards; what it said."""
    program_name, _, mode = agent_name.partition("-")

    def step(command: str, **environment: str) -> str:
        environment = {**os.environ, "STANDFAST_URL": server.url, "MODEL_URL": model, "MODE": mode, **environment}
        program = [sys.executable, str(AGENTS / f"{program_name}_agent.py"), command, str(tmp_path)]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode != 0 and "DIE" not in environment:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout.strip()

    return step


def effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


def held(said: str) -> str:
    word, hold = said.split()
    assert word == "held", said
    return hold


def test_held_killed_restarted_approved_ran_once(agent, denied: str, client: Client, server, tmp_path: Path) -> None:
    """The process of the agent is gone, the server is killed; the approval finds both, and the call runs once."""
    hold = held(agent("start"))
    assert effects(tmp_path) == []
    server.restart()
    client.resolve(hold, "approve")
    said = agent("resume")
    assert "refunded 40 for A-7" in said and denied not in said
    assert effects(tmp_path) == ["A-7 40"]


def test_denied(agent, denied: str, client: Client, tmp_path: Path) -> None:
    """The framework knows it as a denial, or as an error where it has no such word, and the model gets the reason."""
    client.resolve(held(agent("start")), "deny", reason="no refunds today")
    said = agent("resume")
    assert "no refunds today" in said and denied in said
    assert effects(tmp_path) == []


def test_denied_by_a_rule(agent, denied: str, tmp_path: Path) -> None:
    """Nobody is asked, nothing waits."""
    said = agent("start", ASK="Refund everything")
    assert "ask finance" in said and denied in said
    assert effects(tmp_path) == []


def test_edited(agent, client: Client, tmp_path: Path) -> None:
    client.resolve(held(agent("start")), "approve", arguments={"order": "A-7", "amount": 10})
    assert "refunded 10 for A-7" in agent("resume")
    assert effects(tmp_path) == ["A-7 10"]


def test_two_calls_of_one_turn(agent, client: Client, tmp_path: Path) -> None:
    for line in agent("start", ASK="Refund both").splitlines():
        client.resolve(held(line), "approve")
    said = agent("resume")
    assert "refunded 40 for A-7" in said and "refunded 50 for B-8" in said
    assert sorted(effects(tmp_path)) == ["A-7 40", "B-8 50"]


def test_killed_in_the_middle_is_never_run_again(agent, client: Client, tmp_path: Path) -> None:
    """The tool had its effect, and the process died before it could say so: nobody runs it a second time."""
    client.resolve(held(agent("start")), "approve")
    agent("resume", DIE="after the effect")
    assert effects(tmp_path) == ["A-7 40"]
    agent("resume")
    assert effects(tmp_path) == ["A-7 40"]


def test_resumed_before_anybody_decided_is_still_held(agent, client: Client, tmp_path: Path) -> None:
    """Resuming is not approving: the call is still held, or, where the framework asks only once, the model gets a result that says it did not run."""
    hold = held(agent("start"))
    said = agent("impatient")
    assert said == f"held {hold}" or "Not executed" in said
    assert effects(tmp_path) == []
