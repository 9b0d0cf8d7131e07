"""What can go wrong, as types. A gate that does not let a call run is one too: no tool runs because somebody forgot to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gate import Gate


class StandfastError(Exception):
    """Anything that this package raises by itself."""


class Problem(StandfastError):
    """The server refused the request: `kind` is for programs, the text for people."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body
        self.kind = str(body.get("type", "")).removeprefix("urn:standfast:problem:")
        super().__init__(str(body.get("detail") or body.get("title") or body.get("message") or f"the server answered {status}"))


class NotAllowed(StandfastError):
    """The call must not run now. `model_text` is the truthful sentence to hand to the model."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.model_text = gate, gate.model_text
        super().__init__(gate.model_text)


class Held(NotAllowed):
    """Nobody has decided yet. The gate stays open: the same call later finds it."""


class Denied(NotAllowed):
    """A person or a rule denied it, nobody decided in time, or the gate was withdrawn or ended without a run."""


class OutcomeUnknown(NotAllowed):
    """The call was started before and may have run. It is not run again; a person looks at it."""


class Failed(NotAllowed):
    """The call ran before and failed; what was recorded is in `gate.outcome`."""
