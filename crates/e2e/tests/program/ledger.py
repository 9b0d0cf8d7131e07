"""A ledger as an MCP server over standard input and output, for `reconcile.rs`: `refund` pays and never answers, `find_refund` looks.

Files in its directory steer it: with `pays` a refund takes effect, with `slow` a look waits until that is gone, with `unsure`
it does not know. It writes down each start and each look.
"""

import json
import os
import sys
import threading
import time

SCHEMA = {"type": "object", "properties": {"payment": {"type": "string"}}, "required": ["payment"]}
TOOLS = [
    {"name": "refund", "description": "Pays a refund.", "inputSchema": SCHEMA, "annotations": {"destructiveHint": True}},
    {
        "name": "find_refund",
        "description": "Says what became of a refund.",
        "inputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True},
    },
]
speaking = threading.Lock()


def say(message):
    with speaking:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def note(name, line):
    with open(name, "a") as file:
        file.write(line + "\n")


def refund(payment):
    if os.path.exists("pays"):
        note(f"paid-{payment}", "paid")
    note("started", payment)
    time.sleep(600)


def find_refund(payment):
    note("asked", payment)
    for _ in range(3000):
        if not os.path.exists("slow"):
            break
        time.sleep(0.1)
    if os.path.exists("unsure"):
        return {"known": False}
    if os.path.exists(f"paid-{payment}"):
        return {"known": True, "refund": {"payment": payment, "state": "paid"}}
    return {"known": True}


def call(message):
    asked = message["params"]
    answer = {"refund": refund, "find_refund": find_refund}[asked["name"]](asked["arguments"]["payment"])
    say({"id": message["id"], "result": {"content": [{"type": "text", "text": json.dumps(answer)}]}})


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        about = {"name": "ledger", "version": "1"}
        say({"id": message["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}})
    elif method == "tools/list":
        say({"id": message["id"], "result": {"tools": TOOLS}})
    elif method == "tools/call":
        threading.Thread(target=call, args=(message,), daemon=True).start()
    elif method == "ping":
        say({"id": message["id"], "result": {}})
    elif "id" in message and method:
        say({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
os._exit(0)
