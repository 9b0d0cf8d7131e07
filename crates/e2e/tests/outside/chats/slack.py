"""Slack for the tests: the part of its Web API that the program calls, over the blocks of Slack's own package, which refuse what Slack
would refuse.

Argument: FOLDER, where a file `trouble` has `503 N`, `429 N` or `lost N` for the next N calls: refused, told to wait, or done without an
answer. Prints its port once it listens; GET /state has everything that was posted, changed and whispered.

Socket Mode is in it as well, over a library for WebSocket: POST /control/envelope {payload, type, later} hands an envelope to the newest
connection, or to the next one; POST /control/frame sends something to the newest connection. What was not acknowledged is handed to the next
connection, as is what was acknowledged while a file `deaf` is in FOLDER.
"""

import json
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from simple_websocket import ConnectionClosed, Server
from slack_sdk.models.blocks import Block
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

FOLDER = Path(sys.argv[1])
LOCK = threading.Lock()
STATE = {"messages": [], "whispers": [], "calls": [], "sockets": 0, "acknowledged": []}
SOCKETS = []
WAITING = {}


def checked(said):
    """What Slack's own models say of blocks: they raise for what is too long or incomplete."""
    blocks = said.get("blocks") or []
    parsed = Block.parse_all(blocks)
    assert [one.type for one in parsed] == [one["type"] for one in blocks], blocks
    for one in parsed:
        one.to_dict()
    assert said.get("text"), "a message without a text notifies nobody"
    for name in ("unfurl_links", "link_names"):
        assert said.get(name, False) is False, name


def envelope(said):
    """An envelope of Socket Mode, as Slack's own package reads it."""
    made = {
        "envelope_id": str(uuid.uuid4()),
        "payload": said["payload"],
        "type": said.get("type", "interactive"),
        "accepts_response_payload": False,
    }
    read = SocketModeRequest.from_dict(made)
    assert read and (read.type, read.payload) == (made["type"], made["payload"]), made
    return made


def acknowledge(said):
    """Takes an acknowledgement, if it is one as Slack's own package writes it."""
    written = SocketModeResponse(said["envelope_id"], said.get("payload")).to_dict()
    assert written == said, said
    with LOCK:
        STATE["acknowledged"].append(said)
        if not (FOLDER / "deaf").exists():
            WAITING.pop(said["envelope_id"], None)


def trouble():
    """What is to go wrong with this call."""
    path = FOLDER / "trouble"
    kind, count = path.read_text().split() if path.exists() else ("", "0")
    if int(count) <= 0:
        return ""
    path.write_text(f"{kind} {int(count) - 1}")
    return kind


def answer(method, said):
    """What the Web API answers."""
    messages = STATE["messages"]
    if method == "conversations.history":
        found = [one for one in messages if float(one["ts"]) >= float(said["oldest"]) and not one.get("thread_ts")]
        return {"ok": True, "messages": found[::-1], "has_more": False}
    checked(said)
    if method == "chat.postMessage":
        ts = f"{1_900_000_000 + len(messages)}.000100"
        messages.append({**said, "ts": ts, "changes": 0})
        return {"ok": True, "channel": said["channel"], "ts": ts}
    if method == "chat.update":
        for one in messages:
            if one["ts"] == said["ts"] and one["channel"] == said["channel"]:
                one.update(said, changes=one["changes"] + 1)
                return {"ok": True, "channel": said["channel"], "ts": said["ts"]}
        return {"ok": False, "error": "message_not_found"}
    if method == "chat.postEphemeral":
        STATE["whispers"].append(said)
        return {"ok": True, "message_ts": "1900000000.000200"}
    return {"ok": False, "error": "unknown_method"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, headers=()):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("content-type", "application/json"), ("content-length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path.startswith("/link/?ticket="):
            return self.socket()
        with LOCK:
            self.reply(200, {**STATE, "open": len(SOCKETS)})

    def socket(self):
        """One connection, for as long as it is open."""
        headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in self.headers.items()}
        socket = Server({"werkzeug.socket": self.connection, **headers}, ping_interval=5)
        self.close_connection = True
        try:
            with LOCK:
                SOCKETS.append(socket)
                STATE["sockets"] += 1
                hello = {"type": "hello", "num_connections": len(SOCKETS), "connection_info": {"app_id": "A0APP"}}
                for one in [hello, *WAITING.values()]:
                    socket.send(json.dumps(one))
            while True:
                acknowledge(json.loads(socket.receive()))
        except ConnectionClosed:
            pass
        finally:
            with LOCK:
                SOCKETS.remove(socket)

    def control(self, what, said):
        """What a test wants to be sent."""
        if what == "frame":
            SOCKETS[-1].send(json.dumps(said))
            return {}
        made = envelope(said)
        WAITING[made["envelope_id"]] = made
        if SOCKETS and not said.get("later"):
            SOCKETS[-1].send(json.dumps(made))
        return {"envelope_id": made["envelope_id"]}

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        if self.path.startswith("/control/"):
            with LOCK:
                return self.reply(200, self.control(self.path.removeprefix("/control/"), json.loads(body)))
        method = self.path.removeprefix("/api/")
        if method == "apps.connections.open":
            if self.headers["authorization"] != "Bearer xapp-canary-token":
                return self.reply(200, {"ok": False, "error": "invalid_auth"})
            return self.reply(200, {"ok": True, "url": f"ws://127.0.0.1:{server.server_port}/link/?ticket={uuid.uuid4()}"})
        if self.headers["authorization"] != "Bearer xoxb-canary-token":
            return self.reply(200, {"ok": False, "error": "invalid_auth"})
        if self.headers["content-type"].startswith("application/json"):
            said = json.loads(body)
        else:
            said = {name: values[0] for name, values in parse_qs(body).items()}
        with LOCK:
            kind = trouble()
            STATE["calls"].append({"method": method, "trouble": kind})
            if kind == "503":
                return self.reply(503, {"ok": False})
            if kind == "429":
                return self.reply(429, {"ok": False, "error": "ratelimited"}, [("retry-after", "1")])
            try:
                said = answer(method, said)
            except Exception as error:
                STATE["calls"].append({"invalid": f"{type(error).__name__}: {error}"})
                return self.reply(200, {"ok": False, "error": "invalid_blocks"})
            if kind == "lost":
                self.close_connection = True
                return self.connection.close()
            self.reply(200, said)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
