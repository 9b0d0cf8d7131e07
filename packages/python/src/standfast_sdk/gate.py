"""A gate as the server shows it: what may run, with which arguments, and why not. What is done with it is `client.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .errors import Denied, Failed, Held, NotAllowed, OutcomeUnknown


def to_json(value: Any) -> str:
    """The same value is the same text, whatever a checkpoint did to the order of keys: the digest is made of it."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def reportable(value: Any) -> Any:
    """A result as JSON. What is none is described: a report is never lost because of what a tool returned."""
    try:
        return json.loads(json.dumps(value, default=str, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)


class Gate:
    """What a gate is now. `arguments` are those that may run, which an approver may have edited."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.id: str = body["gate"]
        self.state: str = body["state"]
        self.tool: str = body["tool"]
        self.arguments: Any = body["arguments"]
        self.call: str = body["call"]
        self.session: str = body["session"]
        self.digest: str | None = body.get("digest")
        self.hold: str | None = body.get("hold")
        self.url: str | None = body.get("url")
        self.decision: dict[str, Any] | None = body.get("decision")
        self.outcome: dict[str, Any] | None = body.get("outcome")
        self.model_text: str = body["model_text"]

    def __repr__(self) -> str:
        return f"Gate({self.id!r}, {self.state!r})"

    @property
    def is_held(self) -> bool:
        """Whether somebody still has to decide."""
        return self.state == "held"

    @property
    def is_edited(self) -> bool:
        """Whether the arguments are others than those that were asked about."""
        return bool(self.decision and self.decision.get("edited"))

    @property
    def has_result(self) -> bool:
        """Whether the call ran and succeeded: then it does not run again, and `result` is what it returned."""
        return self.state == "done" and bool(self.outcome and self.outcome.get("ok"))

    @property
    def result(self) -> Any:
        """What the call returned, as it was reported."""
        return self.outcome.get("value") if self.outcome else None

    def refusal(self) -> NotAllowed | None:
        """Why the call must not start now; none when it may. A state that this version does not know is a no."""
        if self.state == "allowed":
            return None
        if self.state == "held":
            return Held(self)
        if self.state in ("started", "outcome_unknown"):
            return OutcomeUnknown(self)
        return Failed(self) if self.state == "done" and self.outcome else Denied(self)


@dataclass
class Started:
    """A call that runs. Run exactly `arguments` and set `result`; it is reported when the block ends."""

    gate: Gate
    attempt: int
    result: Any = None

    @property
    def arguments(self) -> Any:
        """What was approved."""
        return self.gate.arguments

    def report(self, error: BaseException | None) -> dict[str, Any]:
        """What came of it. A call that was interrupted may have done anything: nobody knows its outcome."""
        if error is None:
            return {"status": "succeeded", "result": reportable(self.result)}
        return {"status": "failed" if isinstance(error, Exception) else "unknown", "error": f"{type(error).__name__}: {error}"}
