"""The HTTP client, twice: `Client` blocks, `AsyncClient` awaits. What is asked and how answers are read is written once, in `_Operations`, as
generators that yield requests and pauses; the two classes only carry them out. Nothing here knows frameworks.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar, Union, cast

import httpx

from .errors import Problem, StandfastError
from .gate import Gate, Started, to_json

T = TypeVar("T")
P = ParamSpec("P")
Body = dict[str, Any]
#: What an operation wants: a request sent, or some seconds to pass.
Step = Union[httpx.Request, float]
Operation = Generator[Step, Any, T]

#: The longest that the server lets one request wait, in seconds.
LONGEST_WAIT = 55.0
#: When something is sent again that nobody answered, or that was answered with one of these.
PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
NOT_NOW = (429, 502, 503, 504)
PATIENCE = {"timeout": httpx.Timeout(10.0, read=LONGEST_WAIT + 20).as_dict()}


def _given(**fields: Any) -> Body:
    return {name: value for name, value in fields.items() if value is not None}


class _Operations:
    def __init__(self, url: str | None, key: str | None, agent: str) -> None:
        self.agent = agent
        self.url = (url or os.environ.get("STANDFAST_URL") or "http://127.0.0.1:8080").rstrip("/")
        key = key or os.environ.get("STANDFAST_KEY")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    def ask(self, method: str, path: str, body: Body | None = None, query: Body | None = None, *, once: bool = False) -> Operation[Body]:
        """One request, sent again when nobody answers; not so with `once`."""
        headers, content = dict(self._headers), None
        if method != "GET":
            headers |= {"content-type": "application/json", "idempotency-key": str(uuid.uuid4())}
            content = to_json(body or {}).encode()
        for pause in (None,) if once else (*PAUSES, None):
            answer = yield httpx.Request(method, f"{self.url}/api/v1{path}", params=query, headers=headers, content=content, extensions=PATIENCE)
            if isinstance(answer, httpx.Response) and (answer.status_code not in NOT_NOW or pause is None):
                return read(answer)
            if pause is None:
                raise StandfastError(f"{self.url} did not answer: {answer!r}") from answer
            after = answer.headers.get("retry-after", "") if isinstance(answer, httpx.Response) else ""
            yield min(float(after), 30.0) if after.isdigit() else pause
        raise AssertionError

    def gate(self, /, tool: str, arguments: Any, *, session: str, call: str, agent: str | None = None, **more: Any) -> Operation[Gate]:
        """Opens a gate, or finds the one of the same session, call and arguments. `more` are fields of the request, such as `words`."""
        body = {"tool": tool, "arguments": arguments, "session": session, "call": call, "agent": agent or self.agent, **more}
        return Gate((yield from self.ask("POST", "/gates", body)))

    def gates(self, requests: Sequence[Mapping[str, Any]]) -> Operation[list[Gate]]:
        """Gates for the calls of one turn: all of them are there afterwards, or none. Each is what `gate` takes, as a mapping."""
        body = {"gates": [{"agent": self.agent, **one} for one in requests]}
        return [Gate(one) for one in (yield from self.ask("POST", "/gates/batch", body))["gates"]]

    def look(self, gate: str) -> Operation[Gate]:
        """A gate by its id, as it is."""
        return Gate((yield from self.ask("GET", f"/gates/{gate}")))

    def decided(self, gate: Gate, timeout: float | None = None) -> Operation[Gate]:
        """The gate as soon as it is decided; as it is after `timeout` seconds, without end by default. Giving up leaves it open. A server that
        is away, however long, is waited for like a decision.
        """
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            wait = max(0.0, min(until - time.monotonic(), LONGEST_WAIT))
            try:
                gate = Gate((yield from self.ask("GET", f"/gates/{gate.id}", query={"wait_ms": int(wait * 1000)})))
            except StandfastError as error:
                if getattr(error, "status", None) not in (None, *NOT_NOW) or time.monotonic() >= until:
                    raise
            else:
                if not gate.is_held or time.monotonic() >= until:
                    return gate

    def start(self, gate: Gate, lease: float | None = None) -> Operation[Started]:
        """Says that the call begins. It is sent once: after a lost answer nobody knows whether the call may run, and so it does not."""
        if refusal := gate.refusal():
            raise refusal
        body = _given(digest=gate.digest, lease_ms=None if lease is None else int(lease * 1000))
        try:
            return Started(gate, (yield from self.ask("POST", f"/gates/{gate.id}/start", body, once=True))["attempt"])
        except Problem as problem:
            # Decided otherwise in between: by a stricter policy, say.
            if problem.kind == "wrong-state" and (refusal := (yield from self.look(gate.id)).refusal()):
                raise refusal from problem
            raise

    def outcome(self, /, gate: Gate, attempt: int | None, *, status: str, **said: Any) -> Operation[Gate]:
        """Reports what came of a call: `succeeded` with `result`, `failed` with `error`, `not_executed` or `unknown`."""
        return Gate((yield from self.ask("POST", f"/gates/{gate.id}/outcome", {**_given(attempt=attempt), "status": status, **said})))

    def withdraw(self, gate: Gate, reason: str = "cancelled") -> Operation[Gate]:
        """Nobody wants the call any more: `cancelled`, `decided_elsewhere` or `superseded`."""
        return Gate((yield from self.ask("POST", f"/gates/{gate.id}/withdraw", {"reason": reason})))

    def start_run(self, agent: str, input: str, *, session: str | None = None, wait: str | None = None) -> Operation[Body]:
        """Starts a run of an agent of the server; with `wait="settled"` until it is held or has ended."""
        return self.ask("POST", f"/agents/{agent}/runs", _given(input=input, session=session, wait=wait))

    def look_at_run(self, run: str) -> Operation[Body]:
        """A run as it is."""
        return self.ask("GET", f"/runs/{run}")

    def say(self, run: str, input: str, *, wait: str | None = None) -> Operation[Body]:
        """Says something to a run."""
        return self.ask("POST", f"/runs/{run}/messages", _given(input=input, wait=wait))

    def cancel(self, run: str) -> Operation[Body]:
        """Cancels a run."""
        return self.ask("POST", f"/runs/{run}/cancel")

    def holds(self, /, **filters: Any) -> Operation[list[Body]]:
        """Holds, all pages: the open ones unless `state` says otherwise."""
        found: list[Body] = []
        while True:
            page = yield from self.ask("GET", "/holds", query=_given(**filters))
            found += page["holds"]
            filters["cursor"] = page.get("next_cursor")
            if not filters["cursor"]:
                return found

    def hold(self, hold: str) -> Operation[Body]:
        """One hold, with who may decide."""
        return self.ask("GET", f"/holds/{hold}")

    def resolve(self, /, hold: str, resolution: str, **said: Any) -> Operation[Body]:
        """Decides: `approve` (with `arguments` it edits them), `deny` and `fail` (`reason`), `answer` (`value`)."""
        return self.ask("POST", f"/holds/{hold}/resolve", {"resolution": resolution, **_given(**said)})


def read(response: httpx.Response) -> Body:
    """The body of an answer; a no is an error."""
    try:
        body = response.json()
    except ValueError:
        body = {"detail": response.text[:500]}
    if response.is_success and isinstance(body, dict):
        return body
    problem = body.get("error", body) if isinstance(body, dict) else {}
    raise Problem(response.status_code, problem if isinstance(problem, dict) else body)


def _blocking(operation: Callable[Concatenate[_Operations, P], Operation[T]]) -> Callable[Concatenate[Client, P], T]:
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._carry_out(operation(self._operations, *args, **kwargs))

    return functools.update_wrapper(call, operation)


def _awaited(operation: Callable[Concatenate[_Operations, P], Operation[T]]) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._carry_out(operation(self._operations, *args, **kwargs))

    return functools.update_wrapper(call, operation)


class Client:
    """A Standfast server. `url` and `key` are `STANDFAST_URL` and `STANDFAST_KEY` unless given."""

    def __init__(self, url: str | None = None, key: str | None = None, *, agent: str = "agent", http: httpx.Client | None = None) -> None:
        self._operations = _Operations(url, key, agent)
        self.http = http or httpx.Client()

    def _carry_out(self, operation: Operation[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = operation.send(answer)
            except StopIteration as done:
                return cast(T, done.value)
            try:
                answer = self.http.send(step) if isinstance(step, httpx.Request) else cast(Any, time.sleep)(step)
            except httpx.TransportError as error:
                answer = error

    @contextmanager
    def started(self, gate: Gate, lease: float | None = None) -> Iterator[Started]:
        """A block that runs the call: the server lets it begin once, and gets the result."""
        started = self.start(gate, lease)
        try:
            yield started
        except BaseException as error:
            # The tool's own error is what the caller sees. What cannot be reported, the server asks a person about.
            with suppress(StandfastError):
                self.outcome(gate, started.attempt, **started.report(error))
            raise
        self.outcome(gate, started.attempt, **started.report(None))

    def run(self, gate: Gate, tool: Callable[[Any], T], lease: float | None = None) -> T:
        """What the call returns: runs it if it may run, hands out what is recorded if it ran, raises `NotAllowed` otherwise."""
        if gate.has_result:
            return cast(T, gate.result)
        with self.started(gate, lease) as started:
            started.result = result = tool(started.arguments)
        return result

    gate, gates, look = _blocking(_Operations.gate), _blocking(_Operations.gates), _blocking(_Operations.look)
    decided, start = _blocking(_Operations.decided), _blocking(_Operations.start)
    outcome, withdraw = _blocking(_Operations.outcome), _blocking(_Operations.withdraw)
    start_run, look_at_run = _blocking(_Operations.start_run), _blocking(_Operations.look_at_run)
    say, cancel = _blocking(_Operations.say), _blocking(_Operations.cancel)
    holds, hold, resolve = _blocking(_Operations.holds), _blocking(_Operations.hold), _blocking(_Operations.resolve)


class AsyncClient:
    """The same for `asyncio`."""

    def __init__(self, url: str | None = None, key: str | None = None, *, agent: str = "agent", http: httpx.AsyncClient | None = None) -> None:
        self._operations = _Operations(url, key, agent)
        self.http = http or httpx.AsyncClient()

    async def _carry_out(self, operation: Operation[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = operation.send(answer)
            except StopIteration as done:
                return cast(T, done.value)
            try:
                answer = await (asyncio.sleep(step) if isinstance(step, float) else self.http.send(step))
            except httpx.TransportError as error:
                answer = error

    @asynccontextmanager
    async def started(self, gate: Gate, lease: float | None = None) -> AsyncIterator[Started]:
        """A block that runs the call, as `Client.started`."""
        started = await self.start(gate, lease)
        try:
            yield started
        except BaseException as error:
            with suppress(StandfastError):
                await asyncio.shield(self.outcome(gate, started.attempt, **started.report(error)))
            raise
        await self.outcome(gate, started.attempt, **started.report(None))

    async def run(self, gate: Gate, tool: Callable[[Any], Awaitable[T]], lease: float | None = None) -> T:
        """What the call returns, as `Client.run`."""
        if gate.has_result:
            return cast(T, gate.result)
        async with self.started(gate, lease) as started:
            started.result = result = await tool(started.arguments)
        return result

    gate, gates, look = _awaited(_Operations.gate), _awaited(_Operations.gates), _awaited(_Operations.look)
    decided, start = _awaited(_Operations.decided), _awaited(_Operations.start)
    outcome, withdraw = _awaited(_Operations.outcome), _awaited(_Operations.withdraw)
    start_run, look_at_run = _awaited(_Operations.start_run), _awaited(_Operations.look_at_run)
    say, cancel = _awaited(_Operations.say), _awaited(_Operations.cancel)
    holds, hold, resolve = _awaited(_Operations.holds), _awaited(_Operations.hold), _awaited(_Operations.resolve)
