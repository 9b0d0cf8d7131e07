"""The approval loop of A2A: while the task needs input, show it, ask, send the decision with the same task and context.

It speaks the dialect of `/v1/agents/{agent}/message:send`, whose requests wait for the next question or the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Union

import httpx

from .client import read

Task = dict[str, Any]
#: A word such as `approve`, or a word with more, such as `{"decision": "modify", "modified_input": "…"}`.
Decision = Union[str, dict[str, Any]]
Message = Union[str, Sequence[dict[str, Any]]]


def _parts(task: Task, kind: str) -> list[Any]:
    return [part[kind] for part in task["status"].get("message", {}).get("parts", []) if kind in part]


def text_of(task: Task) -> str:
    """What a task says, for people."""
    return "\n".join(_parts(task, "text"))


def questions_of(task: Task) -> list[dict[str, Any]]:
    """What a task needs, for programs: `tool_name`, `tool_input`, `options` and more."""
    return _parts(task, "data")


class A2AClient:
    """Agents of a server over A2A."""

    def __init__(self, base: str, key: str | None = None, *, http: httpx.Client | None = None) -> None:
        self.base = base.rstrip("/")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = http or httpx.Client(timeout=600)

    def _ask(self, method: str, path: str, body: Any = None) -> Task:
        response = self._http.request(method, self.base + path, json=body, headers=self._headers)
        return read(response)

    def send_message(self, agent: str, message: Message, *, task_id: str | None = None, context_id: str | None = None) -> Task:
        """Sends a message, to a task if there is one; returns the task when it asks something or has ended."""
        parts = [{"text": message}] if isinstance(message, str) else list(message)
        request: dict[str, Any] = {"role": "user", "parts": parts}
        request |= {"taskId": task_id} if task_id else {}
        request |= {"contextId": context_id} if context_id else {}
        task: Task = self._ask("POST", f"/v1/agents/{agent}/message:send", {"request": request})["task"]
        while task["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"):
            time.sleep(0.5)
            task = self.get_task(agent, task["id"])
        return task

    def get_task(self, agent: str, task_id: str) -> Task:
        """A task as it is."""
        return self._ask("GET", f"/v1/agents/{agent}/tasks/{task_id}")

    def cancel_task(self, agent: str, task_id: str) -> Task:
        """Cancels a task."""
        return self._ask("POST", f"/v1/agents/{agent}/tasks/{task_id}:cancel")

    def decide(self, agent: str, task: Task, decision: Decision) -> Task:
        """Sends a decision about what the task asks."""
        data = {"decision": decision} if isinstance(decision, str) else dict(decision)
        if not isinstance(data.get("modified_input", ""), str):
            data["modified_input"] = json.dumps(data["modified_input"])
        # The decision names the question, so that it never decides another one.
        asked = questions_of(task)
        if len(asked) == 1 and "hold_id" in asked[0]:
            data.setdefault("hold_id", asked[0]["hold_id"])
        parts: list[dict[str, Any]] = [{"text": str(data.get("decision", data.get("answer", "")))}, {"data": data}]
        return self.send_message(agent, parts, task_id=task["id"], context_id=task.get("contextId"))

    def execute_with_approval(self, agent: str, message: Message, ask: Callable[[str, dict[str, Any]], Decision]) -> Task:
        """The loop: `ask` gets the text and the data of each question and returns the decision. Returns the task at its end."""
        task = self.send_message(agent, message)
        while task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED":
            asked = questions_of(task)
            task = self.decide(agent, task, ask(text_of(task), asked[0] if asked else {}))
        return task
