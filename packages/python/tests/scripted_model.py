"""A model on loopback that speaks the chat completions of OpenAI and says what it is told to: one tool call, then the last words.

It keeps nothing: what comes next follows from the conversation that it is sent, so agents may be killed and started again.
"""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "send_refund", "arguments": '{"order": "A-7", "amount": 40}'}}]


class Model(http.server.BaseHTTPRequestHandler):
    """Says what the script says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results = [message for message in asked["messages"] if message["role"] == "tool"]
        if results:
            message = {"role": "assistant", "content": f"The tool said: {results[-1]['content']}"}
        else:
            message = {"role": "assistant", "content": None, "tool_calls": CALLS}
        reason = "stop" if results else "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "finish_reason": reason, "message": message}
        body = json.dumps({"id": "chat", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def serve() -> str:
    """Starts the model; returns its base address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
