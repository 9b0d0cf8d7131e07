"""Discord for the tests: the part of its API that the program calls, with Discord's limits.

Prints its port once it listens; GET /state has the messages. A message with the `nonce` of one that is there is that one, as Discord
answers when `enforce_nonce` is set.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
STATE = {"messages": [], "repeats": 0}


def checked(said):
    """Discord's limits of what is in a message."""
    assert said["allowed_mentions"] == {"parse": []}
    for embed in said["embeds"]:
        assert len(embed["title"]) <= 256 and len(embed.get("description", "")) <= 4096
        assert len(embed.get("fields", [])) <= 25
        for field in embed.get("fields", []):
            assert 1 <= len(field["name"]) <= 256 and 1 <= len(field["value"]) <= 1024
    for row in said.get("components", []):
        assert row["type"] == 1 and 1 <= len(row["components"]) <= 5
        for button in row["components"]:
            assert button["type"] == 2 and len(button["label"]) <= 80
            is_link = button["style"] == 5
            assert ("url" in button) == is_link and ("custom_id" in button) != is_link
            assert is_link or len(button["custom_id"]) <= 100


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        with LOCK:
            self.reply(200, STATE)

    def take(self):
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != "Bot canary-token":
            return self.reply(401, {"message": "401: Unauthorized", "code": 0})
        with LOCK:
            try:
                checked(said)
                self.reply(200, self.done(said))
            except KeyError:
                self.reply(404, {"message": "Unknown Message", "code": 10008})
            except AssertionError as error:
                STATE["messages"].append({"invalid": repr(error), "said": said})
                self.reply(400, {"message": "Invalid Form Body", "code": 50035})

    do_POST = do_PATCH = take

    def done(self, said):
        known = {one.get("id"): one for one in STATE["messages"]}
        channel, _, below = self.path.removeprefix("/api/channels/").partition("/messages")
        if self.command == "PATCH":
            one = known[below.removeprefix("/")]
            one.update(said, changes=one["changes"] + 1)
            return {"id": one["id"]}
        assert said["enforce_nonce"] is True and len(said["nonce"]) <= 25
        for one in STATE["messages"]:
            if one.get("nonce") == said["nonce"]:
                STATE["repeats"] += 1
                return {"id": one["id"]}
        one = {**said, "id": str(1000 + len(STATE["messages"])), "channel": channel, "changes": 0}
        STATE["messages"].append(one)
        return {"id": one["id"]}


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
