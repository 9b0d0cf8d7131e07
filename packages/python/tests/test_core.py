"""The package without frameworks, against the product."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
import uuid
from pathlib import Path

import httpx
import pytest

from standfast_sdk import (
    A2AClient, AsyncClient, Client, Denied, Failed, Held, NotGenuine, OutcomeUnknown, Problem, StandfastError, guarded, verify_webhook,
)


def new(word: str) -> str:
    return f"{word}-{uuid.uuid4()}"


# --- runs and holds ---------------------------------------------------------------------------------------------------------------


def test_a_run_is_held_and_decided(client: Client) -> None:
    run = client.start_run("ops", "Look", wait="settled")
    assert run["status"] == "held"
    hold = run["holds"][0]["id"]
    assert hold in [one["id"] for one in client.holds(state="open", agent="ops")]
    assert client.hold(hold)["tool"] == "execute_command"
    client.resolve(hold, "approve", wait="settled")
    assert client.look_at_run(run["id"])["status"] == "completed"
    with pytest.raises(Problem) as no:
        client.resolve(hold, "deny")
    assert (no.value.status, no.value.kind) == (409, "already-decided")


def test_a_run_is_cancelled(client: Client) -> None:
    run = client.start_run("ops", "Look", wait="settled")
    client.cancel(run["id"])
    assert client.look_at_run(run["id"])["status"] == "canceled"


# --- gates ------------------------------------------------------------------------------------------------------------------------


def test_a_rule_allows_or_denies_without_a_person(client: Client) -> None:
    session = new("session")
    assert client.gate("read_balance", {}, session=session, call="1").state == "allowed"
    denied = client.gate("drop_database", {}, session=session, call="2")
    assert denied.state == "denied" and denied.refusal()
    with pytest.raises(Denied, match="denied"):
        client.run(denied, lambda arguments: pytest.fail("it ran"))


def test_a_held_call_runs_once_with_what_was_approved(client: Client, server) -> None:
    session, ran = new("session"), []

    def refund(arguments):
        ran.append(arguments)
        return {"refunded": arguments["amount"]}

    ask = lambda: client.gate("pay_out", {"order": "A-7", "amount": 40}, session=session, call="c1", words="it came back")  # noqa: E731
    gate = ask()
    assert gate.is_held and gate.url and "Not executed" in gate.model_text
    with pytest.raises(Held):
        client.run(gate, refund)
    server.restart()
    assert ask().id == gate.id
    client.resolve(gate.hold, "approve", arguments={"order": "A-7", "amount": 30})
    gate = client.decided(gate, 5)
    assert gate.is_edited and gate.arguments["amount"] == 30
    assert client.run(gate, refund) == {"refunded": 30}
    with pytest.raises(Problem) as no:
        client.run(gate, refund)
    assert no.value.kind == "already-started"
    assert client.run(ask(), refund) == {"refunded": 30}, "what is recorded is handed out"
    assert ran == [{"amount": 30, "order": "A-7"}]


def test_a_wait_outlasts_a_server_that_is_killed(client: Client, server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away for longer than requests are sent again; whoever waits for a decision goes on, and gets it."""
    import standfast_sdk.client as module

    monkeypatch.setattr(module, "PAUSES", (0.02, 0.02))
    gate = client.gate("pay_out", {"n": 1}, session=new("session"), call="1")
    got = []
    waiting = [threading.Thread(target=lambda: got.append(client.decided(gate))), threading.Thread(target=lambda: got.append(awaited()))]

    def awaited():
        return asyncio.run(AsyncClient(server.url).decided(gate))

    for one in waiting:
        one.start()
    time.sleep(0.5)
    server.kill()
    with pytest.raises(StandfastError, match="did not answer"):
        client.look(gate.id)
    with pytest.raises(StandfastError, match="did not answer"):
        client.decided(gate, 0.2)
    server.start()
    assert got == []
    client.resolve(gate.hold, "approve")
    for one in waiting:
        one.join(30)
    assert [one.state for one in got] == ["allowed", "allowed"]
    assert client.start(gate := got[0]).attempt == 1
    with pytest.raises(Problem) as no:
        client.start(gate)
    assert (no.value.status, no.value.kind) == (409, "already-started")


def test_a_policy_that_became_stricter_is_what_it_is(client: Client, server) -> None:
    """Allowed when it was asked about, denied or held when it would begin: the call does not run, and the caller gets the reason."""
    session = new("session")
    first, second = (client.gate("change_plan", {}, session=session, call=call) for call in "12")
    assert (first.state, second.state) == ("allowed", "allowed")
    server.configure("allow: change_plan", "deny: change_plan, because: plans are frozen")
    with pytest.raises(Denied, match="change_plan was denied"):
        client.run(first, lambda arguments: pytest.fail("it ran"))
    server.configure("deny: change_plan", "hold: change_plan")
    with pytest.raises(Held):
        client.run(second, lambda arguments: pytest.fail("it ran"))
    client.resolve(client.look(second.id).hold, "approve")
    assert client.run(client.look(second.id), lambda arguments: "changed") == "changed"
    server.configure("hold: change_plan, because: plans are frozen", "allow: change_plan")


def test_what_was_given_back_is_no_failure(client: Client) -> None:
    gate = client.gate("read_balance", {}, session=new("session"), call="1")
    client.outcome(gate, client.start(gate).attempt, status="not_executed")
    over = client.look(gate.id)
    assert (over.state, over.outcome) == ("done", None)
    with pytest.raises(Denied, match="Not executed"):
        client.run(over, lambda arguments: pytest.fail("it ran"))


def test_the_order_of_keys_is_no_other_question(client: Client) -> None:
    session = new("session")
    one = client.gate("pay_out", {"a": 1, "b": {"c": 2, "d": 3}}, session=session, call="c1")
    assert client.gate("pay_out", {"b": {"d": 3, "c": 2}, "a": 1}, session=session, call="c1").id == one.id
    assert client.gate("pay_out", {"a": 2, "b": {"c": 2, "d": 3}}, session=session, call="c1").id != one.id


def test_an_error_of_the_tool_is_reported(client: Client) -> None:
    session = new("session")
    gate = client.gate("read_balance", {}, session=session, call="1")
    with pytest.raises(ZeroDivisionError):
        client.run(gate, lambda arguments: 1 / 0)
    again = client.gate("read_balance", {}, session=session, call="1")
    assert again.state == "done" and "ZeroDivisionError" in str(again.result)
    with pytest.raises(Failed):
        client.run(again, lambda arguments: pytest.fail("it ran"))


def test_an_interrupted_tool_leaves_an_unknown_outcome(client: Client) -> None:
    session = new("session")
    gate = client.gate("read_balance", {}, session=session, call="1")
    with pytest.raises(KeyboardInterrupt), client.started(gate):
        raise KeyboardInterrupt
    again = client.gate("read_balance", {}, session=session, call="1")
    with pytest.raises(OutcomeUnknown):
        client.run(again, lambda arguments: pytest.fail("it ran"))


def test_calls_of_a_turn_are_opened_together(client: Client) -> None:
    session = new("session")
    asked = [{"tool": "pay_out", "arguments": {"n": n}, "session": session, "call": str(n)} for n in range(3)]
    gates = client.gates(asked)
    assert [gate.arguments["n"] for gate in gates] == [0, 1, 2]
    assert [gate.id for gate in client.gates(asked)] == [gate.id for gate in gates]
    with pytest.raises(Problem):
        client.gates([{**asked[0], "call": "new"}, {**asked[1], "tool": ""}])


def test_a_gate_is_withdrawn(client: Client) -> None:
    gate = client.gate("pay_out", {}, session=new("session"), call="1")
    assert client.withdraw(gate, "superseded").state == "withdrawn"
    assert gate.hold not in [hold["id"] for hold in client.holds(state="open")]


def test_a_guarded_tool_asks_and_waits(client: Client) -> None:
    ran = []

    @guarded(client, session=new("session"), wait=0.1)
    def pay_out(order: str) -> str:
        ran.append(order)
        return f"refunded {order}"

    with pytest.raises(Held) as held:
        pay_out.run("c1", {"order": "A-7"})
    client.resolve(held.value.gate.hold, "approve")
    assert pay_out.run("c1", {"order": "A-7"}) == "refunded A-7"
    assert pay_out.run("c1", {"order": "A-7"}) == "refunded A-7"
    assert ran == ["A-7"]
    with pytest.raises(Held) as held:
        pay_out(order="A-8")
    client.resolve(held.value.gate.hold, "deny", reason="too late")
    assert "too late" in client.look(held.value.gate.id).model_text


def test_the_same_for_asyncio(server) -> None:
    async def main() -> None:
        client, ran = AsyncClient(server.url), []

        async def refund(arguments):
            ran.append(arguments)
            return "ok"

        gate = await client.gate("pay_out", {"n": 1}, session=new("session"), call="1")
        waiting = asyncio.create_task(client.decided(gate))
        await client.resolve(gate.hold, "approve")
        gate = await waiting
        assert await client.run(gate, refund) == "ok"
        assert (await client.look(gate.id)).result == "ok" and ran == [{"n": 1}]
        slow = await client.gate("read_balance", {}, session=new("session"), call="1")

        async def hang(arguments):
            await asyncio.sleep(60)

        task = asyncio.create_task(client.run(slow, hang))
        while (await client.look(slow.id)).state != "started":
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.look(slow.id)).state == "outcome_unknown"

    asyncio.run(main())


def test_nobody_answers() -> None:
    import standfast_sdk.client as module

    pauses, module.PAUSES = module.PAUSES, (0.01, 0.01)
    try:
        with pytest.raises(StandfastError, match="did not answer"):
            Client("http://127.0.0.1:9").look("run_x")
    finally:
        module.PAUSES = pauses


def test_a_start_without_an_answer_is_not_sent_again() -> None:
    """What may have started does not start: the request is sent once, whatever happens."""
    sent = []

    def lost(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.path)
        raise httpx.ReadError("gone")

    from standfast_sdk import Gate

    gate = Gate({"gate": "run_x", "state": "allowed", "tool": "t", "arguments": {}, "call": "1", "session": "s", "digest": "d", "model_text": ""})
    with pytest.raises(StandfastError):
        Client("http://x", http=httpx.Client(transport=httpx.MockTransport(lost))).run(gate, lambda arguments: pytest.fail("it ran"))
    assert sent == ["/api/v1/gates/run_x/start"]


# --- webhooks ---------------------------------------------------------------------------------------------------------------------


def signed(body: bytes, secret: str, at: int) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.new(key, f"d1.{at}.".encode() + body, hashlib.sha256).digest()).decode()
    return {"Webhook-Id": "d1", "Webhook-Timestamp": str(at), "Webhook-Signature": f"v1,b3RoZXI= v1,{signature}"}


def test_a_delivery_is_believed_only_with_its_signature() -> None:
    secret, body, now = "whsec_" + base64.b64encode(b"k" * 32).decode(), b'{"type": "ping"}', int(time.time())
    headers = signed(body, secret, now)
    assert verify_webhook(secret, headers, body) == {"type": "ping"}
    other = "whsec_" + base64.b64encode(b"o" * 32).decode()
    bad = [
        (secret, headers, body + b" "), (other, headers, body), ("whsec_", headers, body), ("whsec_!", headers, body),
        (secret, signed(body, secret, now - 301), body), (secret, signed(body, secret, now + 301), body),
        (secret, {**headers, "Webhook-Id": "d2"}, body), (secret, {**headers, "Webhook-Signature": ""}, body),
        (secret, {**headers, "Webhook-Timestamp": "soon"}, body), (secret, {}, body),
    ]
    for one in bad:
        with pytest.raises(NotGenuine):
            verify_webhook(*one)


def test_what_the_server_sends_is_genuine(server, client: Client) -> None:
    got = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((dict(self.headers), self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{receiver.server_port}"
    config = server.folder / "standfast.yaml"
    config.write_text(config.read_text() + f"server: {{webhooks: {{allowed_hosts: ['{address}']}}}}\n")
    server.restart()
    made = httpx.post(f"{server.url}/api/v1/subscriptions", json={"url": f"http://{address}/", "agent": "ops"}).json()
    httpx.post(f"{server.url}/api/v1/subscriptions/{made['id']}/test", json={})
    headers, body = got[0]
    assert verify_webhook(made["secret"], headers, body)["type"] == "ping"
    receiver.shutdown()


# --- A2A --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "said"),
    [("approve", "original"), ("deny", None), ({"decision": "modify", "modified_input": {"command": "echo changed"}}, "changed")],
)
def test_the_approval_loop_of_a2a(server, client: Client, decision, said) -> None:
    """S3-20: while input is required, the text is shown, the data read, and the decision goes to the same task and context."""
    asked = []

    def ask(text: str, data: dict) -> object:
        asked.append((text, data["tool_name"], data["tool_input"], data["options"]))
        return decision

    task = A2AClient(server.url).execute_with_approval("ops", "Look", ask)
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [(tool, given, options) for _, tool, given, options in asked] == [("execute_command", "echo original", ["approve", "deny", "modify"])]
    assert "Tool Approval Required" in asked[0][0]
    history = json.dumps(client.look_at_run(task["id"])) + json.dumps(httpx.get(f"{server.url}/api/v1/runs/{task['id']}/events").json())
    assert said is None or f"{said}\\\\n" in history or said in history


def test_a_task_that_is_not_there(server) -> None:
    with pytest.raises(Problem):
        A2AClient(server.url).get_task("ops", "run_00000000000000000000000000")


# --- size -------------------------------------------------------------------------------------------------------------------------


def test_the_packages_stay_small() -> None:
    """At most 600 lines without adapters, at most 150 for each adapter, in both languages."""
    packages = Path(__file__).resolve().parents[2]
    adapters = {"crewai.py", "google_adk.py", "langchain.py", "langgraph.py", "openai_agents.py", "pydantic_ai.py", "ai-sdk.ts", "mastra.ts", "openai-agents.ts"}
    for folder, ending in ((packages / "python/src/standfast_sdk", "*.py"), (packages / "typescript/src", "*.ts")):
        lines = {file.name: len(file.read_text().splitlines()) for file in folder.glob(ending)}
        assert sum(count for name, count in lines.items() if name not in adapters) <= 600, lines
        assert all(count <= 150 for name, count in lines.items() if name in adapters), lines
