"""`guarded`: a tool that asks before it runs. For loops of your own; frameworks have adapters."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from .client import Client

R = TypeVar("R")


class Guarded(Generic[R]):
    """A tool behind a gate. It runs with the arguments that were approved, at most once for each call id."""

    def __init__(self, tool: Callable[..., R], client: Client, session: str, name: str, wait: float | None, lease: float | None) -> None:
        self.tool, self.client, self.session, self.name, self.wait, self.lease = tool, client, session, name, wait, lease
        self.__doc__ = tool.__doc__

    def run(self, call: str, arguments: dict[str, Any], **more: Any) -> R:
        """Runs the call that the model named `call`. After a restart the same call finds its gate, and what it returned if it ran."""
        gate = self.client.gate(self.name, arguments, session=self.session, call=call, **more)
        if gate.is_held:
            gate = self.client.decided(gate, self.wait)
        return self.client.run(gate, lambda approved: self.tool(**approved), self.lease)

    def __call__(self, **arguments: Any) -> R:
        """Runs a call without an id of its own: each one is a new question, and a restart does not find it again."""
        return self.run(f"call-{uuid.uuid4()}", arguments)


def guarded(
    client: Client, *, session: str, name: str | None = None, wait: float | None = None, lease: float | None = None
) -> Callable[[Callable[..., R]], Guarded[R]]:
    """Makes a function ask before it runs. `wait` is how many seconds it waits for a decision before it raises `Held`, without end by
    default; `lease` how long the tool may run before a person is asked what became of it.
    """

    def wrap(tool: Callable[..., R]) -> Guarded[R]:
        return Guarded(tool, client, session, name or str(getattr(tool, "__name__", "tool")), wait, lease)

    return wrap
