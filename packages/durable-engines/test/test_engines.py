"""A workflow of Restate and one of Temporal wait for a person, each with its real server: the callback of a gate wakes them, over `kill -9`
of Standfast and of their workers, and what was approved is paid once."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes import HERE, Program, Standfast, free_port, until, worker
from temporalio.client import Client


@pytest.fixture
def standfast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standfast]:
    server = Standfast(tmp_path)
    monkeypatch.setenv("STANDFAST", server.url)
    yield server
    server.kill()


class Restate:
    """The server of Restate, and one service."""

    def __init__(self, folder: Path) -> None:
        # The program itself: killing what starts it would leave it running.
        program = next((HERE.parent / "node_modules/@restatedev").glob("restate-server-*/bin/restate-server"))
        ingress, admin, node, service = (free_port() for _ in range(4))
        self.ingress, self.admin = f"http://127.0.0.1:{ingress}", f"http://127.0.0.1:{admin}"
        self.server = Program(
            [str(program)], folder, "restate", RESTATE_BASE_DIR=str(folder / "restate"), RESTATE_DISABLE_TELEMETRY="true",
            RESTATE_INGRESS__BIND_ADDRESS=f"127.0.0.1:{ingress}", RESTATE_ADMIN__BIND_ADDRESS=f"127.0.0.1:{admin}",
            RESTATE_BIND_ADDRESS=f"127.0.0.1:{node}", RESTATE_ADVERTISED_ADDRESS=f"http://127.0.0.1:{node}",
        )
        self.worker = worker("restate_worker.py", folder, str(service), self.ingress)
        deployment = {"uri": f"http://127.0.0.1:{service}"}
        until("the service is known", lambda: httpx.post(f"{self.admin}/deployments", json=deployment).is_success)

    def begin(self, name: str) -> Any:
        sent = httpx.post(f"{self.ingress}/refunds/refund/send", json=name).raise_for_status()
        return sent.json()["invocationId"]

    def result(self, invocation: Any) -> str:
        def found() -> Any:
            answer = httpx.get(f"{self.ingress}/restate/invocation/{invocation}/output", timeout=60)
            return answer.status_code == 200 and answer.json()

        return until("the end of the workflow", found)

    def kill(self) -> None:
        self.worker.kill()
        self.server.kill()


class Temporal:
    """The server of Temporal, and one worker."""

    def __init__(self, folder: Path) -> None:
        grpc, http = free_port(), free_port()
        self.address, self.http = f"127.0.0.1:{grpc}", f"http://127.0.0.1:{http}"
        program = Path(shutil.which("temporal") or HERE)
        command = [str(program), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(grpc)]
        self.server = Program([*command, "--http-port", str(http), "--db-filename", "temporal.db"], folder, "temporal")
        self.answers()
        self.worker = worker("temporal_worker.py", folder, self.address)

    def answers(self) -> None:
        until("the server answers", lambda: httpx.get(f"{self.http}/api/v1/namespaces/default").is_success)

    def begin(self, name: str) -> Any:
        async def begun() -> None:
            client = await Client.connect(self.address)
            await client.start_workflow("refund", self.http, id=name, task_queue="refunds")

        asyncio.run(begun())
        return name

    def result(self, name: Any) -> str:
        self.answers()

        async def ended() -> str:
            client = await Client.connect(self.address)
            return await asyncio.wait_for(client.get_workflow_handle(name).result(), 120)

        return asyncio.run(ended())

    def kill(self) -> None:
        self.worker.kill()
        self.server.kill()


@pytest.fixture(params=[Restate, Temporal])
def engine(request: pytest.FixtureRequest, standfast: Standfast, tmp_path: Path) -> Iterator[Any]:
    engine = request.param(tmp_path)
    yield engine
    engine.kill()


def paid(folder: Path) -> list[str]:
    file = folder / "paid.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_an_approval_wakes_the_workflow(standfast: Standfast, engine: Any, tmp_path: Path) -> None:
    workflow = engine.begin("order-1")
    hold = standfast.hold()
    standfast.restart()
    engine.worker.restart()
    assert paid(tmp_path) == []
    standfast.resolve(hold, "approve")
    assert engine.result(workflow) == "paid 40"
    assert paid(tmp_path) == ["40"]
    gate = standfast.gate(hold["run"])
    assert (gate["state"], gate["outcome"]) == ("done", {"ok": True, "value": {"paid": 40}})


def test_an_edited_refund_is_paid_as_it_was_edited(standfast: Standfast, engine: Any, tmp_path: Path) -> None:
    workflow = engine.begin("order-2")
    standfast.resolve(standfast.hold(), "approve", arguments={"order": "A-7", "amount": 30})
    assert engine.result(workflow) == "paid 30"
    assert paid(tmp_path) == ["30"]


def test_a_denial_wakes_it_too(standfast: Standfast, engine: Any, tmp_path: Path) -> None:
    workflow = engine.begin("order-3")
    standfast.resolve(standfast.hold(), "deny", reason="too late")
    assert engine.result(workflow) == "not paid: too late"
    assert paid(tmp_path) == []


def test_a_decision_waits_for_an_engine_that_is_away(standfast: Standfast, engine: Any, tmp_path: Path) -> None:
    workflow = engine.begin("order-4")
    hold = standfast.hold()
    engine.server.kill()
    standfast.resolve(hold, "approve")
    standfast.restart()
    engine.server.start()
    assert engine.result(workflow) == "paid 40"
    assert paid(tmp_path) == ["40"]
