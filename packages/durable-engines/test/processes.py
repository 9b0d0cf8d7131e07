"""Programs that a test starts, kills and starts again: the product, the engines, and their workers. Nothing here is simulated."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BINARY = Path(os.environ.get("STANDFAST_BINARY") or ROOT / "target/product/standfast")

CONFIG = """
server: {webhooks: {allowed_hosts: ['127.0.0.1'], retries: [%s]}}
llms: {script: {type: scripted, script: script.yaml}}
session_stores: {db: {backend: sql, sql: {driver: sqlite, database: ./standfast.db}}}
agents: {helper: {llm: script, session_store: db, task: {}}}
policy: {rules: [{id: reads, allow: look_up}]}
""" % ", ".join(["300ms"] * 400)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what: str, find: Callable[[], Any]) -> Any:
    """Waits for something, for as long as a loaded machine may need."""
    for _ in range(1200):
        try:
            if found := find():
                return found
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"after two minutes still not: {what}")


class Program:
    """A program that can be killed and started again in the same place."""

    def __init__(self, command: list[str], folder: Path, name: str, **environment: str) -> None:
        self.command, self.folder, self.log = command, folder, folder / f"{name}.log"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "packages/python/src"), **environment}
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, cwd=self.folder, env=self.environment, stdout=self.log.open("ab"), stderr=subprocess.STDOUT
        )

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


def worker(file: str, folder: Path, *arguments: str) -> Program:
    return Program([sys.executable, str(HERE / file), *arguments], folder, file)


class Standfast:
    """A server of the product."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        (folder / "standfast.yaml").write_text(CONFIG)
        (folder / "script.yaml").write_text("replies:\n- text: done\n")
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        address = f"127.0.0.1:{self.port}"
        command = [str(BINARY), "serve", "--config", "standfast.yaml", "--data", "data", "--listen", address]
        log = (self.folder / "standfast.log").open("ab")
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.process.stdout:
            if found := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError((self.folder / "standfast.log").read_text())
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def hold(self) -> dict[str, Any]:
        """The one hold that is open."""

        def found() -> Any:
            holds = httpx.get(f"{self.url}/api/v1/holds", params={"state": "open"}).json()["holds"]
            assert len(holds) <= 1, holds
            return holds and holds[0]

        return until("a hold", found)

    def resolve(self, hold: dict[str, Any], resolution: str, **more: Any) -> None:
        body = {"resolution": resolution, **more}
        httpx.post(f"{self.url}/api/v1/holds/{hold['id']}/resolve", json=body).raise_for_status()

    def gate(self, gate: str) -> dict[str, Any]:
        return httpx.get(f"{self.url}/api/v1/gates/{gate}").raise_for_status().json()
