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
ADAPTERS = ["google_adk", "langgraph", "openai_agents", "pydantic_ai"]


@pytest.fixture(scope="session")
def model() -> str:
    return scripted_model.serve()


@pytest.fixture(params=ADAPTERS)
def agent(request: pytest.FixtureRequest, tmp_path: Path, server, model: str):
    """Runs a step of the agent as a process of its own, which is gone afterwards; what it said."""

    def step(command: str, **environment: str) -> str:
        environment = {**os.environ, "STANDFAST_URL": server.url, "MODEL_URL": model, **environment}
        program = [sys.executable, str(AGENTS / f"{request.param}_agent.py"), command, str(tmp_path)]
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


def test_held_killed_restarted_approved_ran_once(agent, client: Client, server, tmp_path: Path) -> None:
    """The process of the agent is gone, the server is killed; the approval finds both, and the call runs once."""
    hold = held(agent("start"))
    assert effects(tmp_path) == []
    server.restart()
    client.resolve(hold, "approve")
    assert "refunded 40 for A-7" in agent("resume")
    assert effects(tmp_path) == ["A-7 40"]


def test_denied(agent, client: Client, tmp_path: Path) -> None:
    client.resolve(held(agent("start")), "deny", reason="no refunds today")
    assert "no refunds today" in agent("resume")
    assert effects(tmp_path) == []


def test_edited(agent, client: Client, tmp_path: Path) -> None:
    client.resolve(held(agent("start")), "approve", arguments={"order": "A-7", "amount": 10})
    assert "refunded 10 for A-7" in agent("resume")
    assert effects(tmp_path) == ["A-7 10"]


def test_killed_in_the_middle_is_never_run_again(agent, client: Client, tmp_path: Path) -> None:
    """The tool had its effect, and the process died before it could say so: nobody runs it a second time."""
    client.resolve(held(agent("start")), "approve")
    agent("resume", DIE="after the effect")
    assert effects(tmp_path) == ["A-7 40"]
    agent("resume")
    assert effects(tmp_path) == ["A-7 40"]


def test_resumed_before_anybody_decided_is_still_held(agent, client: Client, tmp_path: Path) -> None:
    """Resuming is not approving: the call is still held, or, where the framework asks only once, the model is told that it did not run."""
    hold = held(agent("start"))
    said = agent("impatient")
    assert said == f"held {hold}" or "Not executed" in said
    assert effects(tmp_path) == []
