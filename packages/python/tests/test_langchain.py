"""Several calls of one turn in LangGraph, by both of its ways, and LangChain's own middleware, whose requests become gates."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
import scripted_model
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Interrupt

from standfast_sdk import Client
from standfast_sdk.langchain import decisions
from standfast_sdk.langgraph import Approvals, held_gates, resume

REFUNDS = ("send_refund",)


class Agent:
    """An agent that refunds, in this process."""

    def __init__(self, middleware: Any) -> None:
        self.effects: list[tuple[str, int]] = []
        self.loop = asyncio.Runner()

        def send_refund(order: str, amount: int) -> str:
            """Sends a refund."""
            if amount == 13:
                raise RuntimeError("no luck")
            self.effects.append((order, amount))
            return f"refunded {amount} for {order}"

        model = ChatOpenAI(model="m", base_url=scripted_model.serve(), api_key="none")
        self.thread = f"thread-{uuid.uuid4()}"
        self.config = {"configurable": {"thread_id": self.thread}}
        self.graph = create_agent(model, [send_refund], middleware=[middleware], checkpointer=InMemorySaver())

    def invoke(self, given: Any, mode: str = "sync") -> dict[str, Any]:
        given = {"messages": [("user", given)]} if isinstance(given, str) else given
        if mode == "async":
            return self.loop.run(self.graph.ainvoke(given, self.config))
        return self.graph.invoke(given, self.config)

    @property
    def waiting(self) -> tuple[Interrupt, ...]:
        return self.graph.get_state(self.config).interrupts


def results(state: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message.status, message.content) for message in state["messages"] if message.type == "tool"]


def holds_of(client: Client, thread: str) -> list[str]:
    """The open holds of a thread, the first call's first."""
    holds = [(client.look(hold["run"]), hold["id"]) for hold in client.holds(state="open", agent="gate")]
    return [hold for gate, hold in sorted(holds, key=lambda one: one[0].call) if gate.session == thread]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_calls_of_a_turn_are_decided_one_by_one(client: Client, mode: str) -> None:
    agent = Agent(Approvals(client, tools=REFUNDS))
    state = agent.invoke("Refund both", mode)
    gates = [client.look(gate) for gate in held_gates(state["__interrupt__"]).values()]
    assert sorted(gate.call for gate in gates) == ["call_1", "call_2"]
    assert resume(client, agent.waiting) is None, "nobody has decided"
    first, second = sorted(gates, key=lambda gate: gate.call)
    client.resolve(first.hold, "approve", arguments={"order": "A-7", "amount": 10})
    assert resume(client, agent.waiting) is None, "one is still held"
    client.resolve(second.hold, "deny", reason="not that one")
    (one, ran), (two, why) = results(agent.invoke(resume(client, agent.waiting), mode))
    assert (one, two) == ("success", "error")
    assert "refunded 10 for A-7" in ran and "An approver changed the arguments" in ran and "not that one" in why
    assert agent.effects == [("A-7", 10)]
    assert client.look(first.id).result == "refunded 10 for A-7"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_tool_that_raises_is_reported_and_not_run_again(client: Client, mode: str) -> None:
    agent = Agent(Approvals(client))
    state = agent.invoke("Refund A-7", mode)
    (gate,) = held_gates(state["__interrupt__"]).values()
    client.resolve(client.look(gate).hold, "approve", arguments={"order": "A-7", "amount": 13})
    with pytest.raises(RuntimeError, match="no luck"):
        agent.invoke(resume(client, agent.waiting), mode)
    assert "no luck" in str(client.look(gate).outcome)
    assert results(agent.invoke(None, mode))[0][0] == "error"
    assert agent.effects == []


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_tools_that_are_not_named_do_not_ask(client: Client, mode: str) -> None:
    agent = Agent(Approvals(client, tools=["drop_database"]))
    assert results(agent.invoke("Refund both", mode)) == [("success", "refunded 40 for A-7"), ("success", "refunded 50 for B-8")]
    assert holds_of(client, agent.thread) == []


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_the_requests_of_langchains_own_middleware_are_answered(client: Client, mode: str) -> None:
    agent = Agent(HumanInTheLoopMiddleware({"send_refund": True}, interrupt_mode=mode))

    def answers() -> Any:
        return decisions(client, agent.waiting, session=agent.thread)

    agent.invoke("Refund both")
    assert answers() is None, "nobody has decided"
    first, second = holds_of(client, agent.thread)
    client.resolve(first, "approve", arguments={"order": "A-7", "amount": 10})
    assert answers() is None, "one is still held"
    client.resolve(second, "deny", reason="not that one")
    said = results(agent.invoke(answers()))
    assert sorted(status for status, _ in said) == ["error", "success"]
    assert "not that one" in str(said)
    assert agent.effects == [("A-7", 10)]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_what_is_approved_as_it_is_and_what_a_rule_denies(client: Client, mode: str) -> None:
    agent = Agent(HumanInTheLoopMiddleware({"send_refund": True}, interrupt_mode=mode))
    agent.invoke("Refund A-7")
    assert decisions(client, agent.waiting, session=agent.thread) is None
    client.resolve(*holds_of(client, agent.thread), "approve")
    assert results(agent.invoke(decisions(client, agent.waiting, session=agent.thread))) == [("success", "refunded 40 for A-7")]
    agent = Agent(HumanInTheLoopMiddleware({"send_refund": True}, interrupt_mode=mode))
    agent.invoke("Refund everything")
    ((status, why),) = results(agent.invoke(decisions(client, agent.waiting, session=agent.thread)))
    assert status == "error" and "ask finance" in why and agent.effects == []


def test_interrupts_of_others_are_left_alone(client: Client) -> None:
    foreign = [Interrupt("what is your name?", id="1"), Interrupt({"question": "?"}, id="2")]
    assert decisions(client, foreign, session="none").resume == {}
