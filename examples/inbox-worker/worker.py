"""A worker for a Standfast inbox: claims tasks, works on them, asks people, reports what came of it.

Any language can do this; it is a handful of HTTP requests. Needs Python 3.9 and nothing else.

    python3 worker.py --inbox support --agent biller            # until ctrl-c
    python3 worker.py --inbox support --agent biller --limit 5  # a batch: five tasks, or until there are no more

`handle` is the part to replace. It gets the task and returns the result; it raises `Ask` to ask a person and is called
again, with the answer, once there is one; it raises anything else to fail, and what may pass is tried again later.
"""

import argparse
import json
import os
import signal
import threading
import time
import urllib.error
import urllib.request


class Ask(Exception):
    """Somebody must be asked first; `schema` is the JSON Schema of the answer."""

    def __init__(self, reason, payload=None, schema=None):
        super().__init__(reason)
        self.reason, self.payload, self.schema = reason, payload, schema


def handle(task):
    """Refunds small amounts by itself and asks about large ones."""
    order = task["payload"]
    if order["cents"] <= 10_000:
        return {"refunded": order["cents"]}
    if "resumePayload" not in task:
        raise Ask(
            f"{order['cents']} cents are a lot",
            {"question": f"Refund {order['cents'] / 100:.2f}?", "order": order},
            {"type": "object", "required": ["cents"], "properties": {"cents": {"type": "integer", "minimum": 0}}},
        )
    return {"refunded": task["resumePayload"]["cents"]}


class Inbox:
    """The routes that a worker needs."""

    def __init__(self, server, inbox, key=None):
        self.base = f"{server.rstrip('/')}/api/inboxes/{inbox}"
        self.headers = {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"

    def post(self, path, body):
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), self.headers, method="POST")
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)

    def claim(self, **wanted):
        return self.post("/claim", wanted)["task"]

    def report(self, task, verb, **said):
        return self.post(f"/tasks/{task['id']}/{verb}", {"claimId": task["claimId"], **said})


class Worker:
    """The run loop: so many tasks at once, until it is asked to stop, or for a batch."""

    def __init__(self, inbox, agent, types=(), max_concurrent=1, lease_ms=60_000, hooks=None):
        self.inbox, self.agent, self.types = inbox, agent, list(types)
        self.max_concurrent, self.lease_ms = max_concurrent, lease_ms
        self.hooks = hooks or {}
        self.stopping = threading.Event()

    def tell(self, name, *said):
        self.hooks.get(name, lambda *_: None)(*said)

    def run(self, limit=None, seconds=None):
        """With a limit, a batch: it ends when so many were worked on, the time is up, or there is nothing left."""
        until = None if seconds is None else time.monotonic() + seconds
        left = [limit]
        lock = threading.Lock()

        def more():
            with lock:
                if left[0] is not None and left[0] <= 0:
                    return False
                if left[0] is not None:
                    left[0] -= 1
            return not self.stopping.is_set() and (until is None or time.monotonic() < until)

        def work():
            while more():
                # The server keeps the request until there is something: nothing is asked over and over.
                wait = 0 if limit is not None else 20_000
                try:
                    task = self.inbox.claim(
                        agentId=self.agent, types=self.types, leaseMs=self.lease_ms, waitMs=wait)
                except (urllib.error.URLError, TimeoutError) as error:
                    self.tell("onError", None, error)
                    self.stopping.wait(1)
                    continue
                if task is not None:
                    self.work_on(task)
                    continue
                self.tell("onEmpty")
                if limit is not None:
                    return

        threads = [threading.Thread(target=work) for _ in range(self.max_concurrent)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work_on(self, task):
        self.tell("onTaskStart", task)
        done = threading.Event()
        beat = threading.Thread(target=self.keep_alive, args=(task, done))
        beat.start()
        try:
            try:
                result = handle(task)
            finally:
                done.set()
                beat.join()
            self.tell("onTaskComplete", self.inbox.report(task, "complete", result=result))
        except Ask as ask:
            said = {"reason": ask.reason}
            if ask.payload is not None:
                said["payload"] = ask.payload
            if ask.schema is not None:
                said["resumeSchema"] = ask.schema
            self.tell("onTaskSuspended", self.inbox.report(task, "suspend", **said), ask.reason)
        except urllib.error.HTTPError as refused:
            # 409: the claim ran out, or somebody cancelled the task. Whoever has it now goes on.
            self.tell("onError", task, refused)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender gets it
            said = self.inbox.report(task, "fail", error={"message": str(error) or type(error).__name__})
            self.tell("onTaskError", said, error)

    def keep_alive(self, task, done):
        while not done.wait(self.lease_ms / 3000):
            try:
                self.inbox.report(task, "heartbeat")
            except OSError:
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=os.environ.get("STANDFAST_SERVER", "http://127.0.0.1:8080"))
    parser.add_argument("--inbox", required=True)
    parser.add_argument("--agent", required=True)
    parser.add_argument("--type", action="append", default=[], dest="types")
    parser.add_argument("--max-concurrent", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()

    def say(what):
        return lambda task=None, *more: print(what, task and task["id"], *more, flush=True)

    names = ("onTaskStart", "onTaskComplete", "onTaskError", "onTaskSuspended", "onEmpty", "onError")
    inbox = Inbox(given.server, given.inbox, os.environ.get("STANDFAST_KEY"))
    hooks = {name: say(name) for name in names}
    worker = Worker(inbox, given.agent, given.types, given.max_concurrent, hooks=hooks)
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda *_: worker.stopping.set())
    worker.run(given.limit, given.seconds)


if __name__ == "__main__":
    main()
