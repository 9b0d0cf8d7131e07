"""Slack for the tests: the part of its Web API that the program calls, over the blocks of Slack's own package, which refuse what Slack
would refuse.

Argument: FOLDER, where a file `trouble` has `503 N`, `429 N` or `lost N` for the next N calls: refused, told to wait, or done without an
answer. Prints its port once it listens; GET /state has everything that was posted, changed and whispered.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from slack_sdk.models.blocks import Block

FOLDER = Path(sys.argv[1])
LOCK = threading.Lock()
STATE = {"messages": [], "whispers": [], "calls": []}


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
        with LOCK:
            self.reply(200, STATE)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        method = self.path.removeprefix("/api/")
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
