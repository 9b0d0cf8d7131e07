#!/usr/bin/env python3
"""Talks to an agent as a Teal Agents client does: chat, ask a person when the agent is held, go on with the result.

Needs nothing but Python. Try it with the demo:

    standfast serve &
    python3 examples/teal_agents_client.py http://127.0.0.1:8080 ops "Free some space"

Every pause is shown with its calls; answer `approve`, `reject`, or open the URL in a browser. A login is shown with its
address. With `--yes` everything is approved, which is for tests; `--wait` is how many seconds one request waits at most.
STANDFAST_KEY is sent as a bearer token where it is set.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
import uuid


WAIT = None


def post(url, body):
    """One POST. The Idempotency-Key makes it safe to send again when the answer was lost."""
    headers = {"content-type": "application/json", "idempotency-key": str(uuid.uuid4())}
    return answered(urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST"))


def get(url):
    """The answer of a task that was still at work. It may be asked for as often as needed."""
    return answered(urllib.request.Request(url))


def answered(request):
    url = request.full_url
    if key := os.environ.get("STANDFAST_KEY"):
        request.add_header("authorization", f"Bearer {key}")
    if WAIT is not None:
        request.add_header("prefer", f"wait={WAIT}")
    for attempts_left in (2, 1, 0):
        try:
            with urllib.request.urlopen(request, timeout=330) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            detail = json.load(refused).get("detail", refused.reason)
            if refused.code == 503 and attempts_left:
                continue
            sys.exit(f"{refused.code}: {detail}")
        except urllib.error.URLError as unreachable:
            if not attempts_left:
                sys.exit(f"{url} cannot be reached: {unreachable.reason}")


def decide(paused, approve_all):
    """Shows what is pending and asks; returns the body of the decision."""
    print(paused["message"])
    for call in paused["tool_calls"]:
        print(f"  {call['name']} {call['arguments']}")
    print(f"  in a browser: {paused['approval_url']}")
    if approve_all:
        return {"action": "approve"}
    action = ""
    while action not in ("approve", "reject"):
        action = input("approve or reject? ").strip().lower()
    return {"action": action}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("server")
    arguments.add_argument("agent")
    arguments.add_argument("message")
    arguments.add_argument("--yes", action="store_true", help="approve everything")
    arguments.add_argument("--wait", type=int, help="seconds that one request waits at most")
    given = arguments.parse_args()
    global WAIT
    WAIT = given.wait

    chat = f"{given.server}/tealagents/v1alpha1/{given.agent}"
    message = {"items": [{"content_type": "text", "content": given.message}]}
    answer = post(chat, message)
    while True:
        if "approval_url" in answer:
            # Held, perhaps more than once: each time with a new request.
            body = decide(answer, given.yes)
            answer = post(answer["approval_url"].split("?")[0], body)
        elif "auth_challenges" in answer:
            for challenge in answer["auth_challenges"]:
                print(f"log in to {challenge['server_name']}: {challenge['auth_url']}")
            input("Enter when you have logged in> ")
            answer = post(answer["resume_url"], {"action": "approve"})
        elif "response_url" in answer:
            # Still at work: nothing is sent again, the answer is asked for.
            print("still at work")
            answer = get(answer["response_url"])
        else:
            break
    print(answer.get("output") or f"{answer['status']}: {answer['message']}")


if __name__ == "__main__":
    main()
