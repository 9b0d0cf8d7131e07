"""A model on loopback that speaks the chat completions of OpenAI, and Gemini, and says what it is told to: tool calls, then the last words.

It keeps nothing: what comes next follows from the conversation that it is sent, so agents may be killed and started again. What it calls
depends on what the user said: a refund, two of them, or one that a rule denies.
"""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

REFUNDS = {
    "Refund A-7": [{"order": "A-7", "amount": 40}],
    "Refund both": [{"order": "A-7", "amount": 40}, {"order": "B-8", "amount": 50}],
    "Refund everything": [{"order": "A-7", "amount": 99999}],
}


class Model(http.server.BaseHTTPRequestHandler):
    """Says what the script says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(_gemini(asked) if self.path.partition("?")[0].endswith(":generateContent") else _openai(asked)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _refunds(asked: dict[str, Any]) -> list[dict[str, Any]]:
    said = json.dumps(asked)
    return next(refunds for words, refunds in REFUNDS.items() if words in said)


def _openai(asked: dict[str, Any]) -> dict[str, Any]:
    results = [message for message in asked["messages"] if message["role"] == "tool"]
    if results:
        message = {"role": "assistant", "content": f"The tool said: {' | '.join(str(one['content']) for one in results)}"}
    else:
        calls = [
            {"id": f"call_{no}", "type": "function", "function": {"name": "send_refund", "arguments": json.dumps(refund)}}
            for no, refund in enumerate(_refunds(asked), 1)
        ]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "finish_reason": "stop" if results else "tool_calls", "message": message}
    return {"id": "chat", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _gemini(asked: dict[str, Any]) -> dict[str, Any]:
    results = [part["functionResponse"] for content in asked["contents"] for part in content["parts"] if "functionResponse" in part]
    if results:
        parts: list[dict[str, Any]] = [{"text": f"The tool said: {' | '.join(json.dumps(one['response']) for one in results)}"}]
    else:
        parts = [{"functionCall": {"name": "send_refund", "args": refund}} for refund in _refunds(asked)]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


def serve() -> str:
    """Starts the model; returns its base address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
