"""The product on a data folder of its own, killed and started again in the same place. Nothing here is simulated."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast_sdk import Client, Problem

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("STANDFAST_BINARY") or ROOT / "target/product/standfast")

CONFIG = """
llms:
  script: {type: scripted, script: script.yaml}
tools:
  execute_command:
    type: command
    requires_approval: true
    allowed_commands: [echo]
agents:
  ops:
    llm: script
    task: {}
    session_store: db
    tools: [execute_command]
session_stores:
  db: {backend: sql, sql: {driver: sqlite, database: ./standfast.db}}
policy:
  rules:
    - {id: reading, allow: read_balance}
    - {id: never, deny: drop_database, because: nobody drops it}
    - {id: too-much, deny: send_refund, where: {amount: {gt: 5000}}, because: ask finance}
    - {id: plans, allow: change_plan}
"""

SCRIPT = """
replies:
  - text: I will look.
    calls: [{tool: execute_command, arguments: '{"command": "echo original"}'}]
  - text: Done.
"""


class Server:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.folder, self.port, self.process = folder, port, None
        (folder / "standfast.yaml").write_text(CONFIG)
        (folder / "script.yaml").write_text(SCRIPT)
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        address = f"127.0.0.1:{self.port}"
        command = [str(BINARY), "serve", "--config", "standfast.yaml", "--data", "data", "--listen", address]
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=(self.folder / "log").open("ab"), text=True
        )
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError(said + (self.folder / "log").read_text())
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def configure(self, old: str, new: str) -> None:
        """Changes the configuration, with a restart."""
        file = self.folder / "standfast.yaml"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
        self.restart()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    assert BINARY.exists(), "build the product with `cargo xtask product`, or set STANDFAST_BINARY"
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.kill()


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.url, agent="billing")


@pytest.fixture
def approver(client: Client) -> Iterator[None]:
    """Somebody approves whatever is held."""
    over = threading.Event()

    def approve() -> None:
        while not over.wait(0.1):
            for hold in client.holds(state="open", agent="gate"):
                try:
                    client.resolve(hold["id"], "approve")
                except Problem:
                    pass

    threading.Thread(target=approve, daemon=True).start()
    yield
    over.set()
