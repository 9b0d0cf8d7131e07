"""LangChain's own middleware in a program of its own: the cases of every adapter, but for those in which LangChain itself decides what runs
when it is resumed; docs/python.md says which.
"""

from __future__ import annotations

import pytest
from test_adapters import (  # noqa: F401
    agent,
    model,
    test_denied,
    test_denied_by_a_rule,
    test_edited,
    test_held_killed_restarted_approved_ran_once,
    test_two_calls_of_one_turn,
)


@pytest.fixture(params=["langchain-batched", "langchain-per_call"])
def agent_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def denied() -> str:
    return "recorded error"
