#!/usr/bin/env python3
"""Two real programs of different commits on one database: an upgrade as an operator does it, and the way back.

`cargo xtask upgrade-check` builds or finds the two and calls this; by itself: `python3 packaging/upgrade.py --old FILE --new
FILE`. On Postgres nodes are replaced one after the other while runs go on; on SQLite the program is replaced. Needs Debian's
postgresql; its cluster is its own. Knows the programs by their commands and HTTP only. Standard library only.
"""

import argparse
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

# Each agent calls one command that needs approval; that of `slow` takes longer than a program lives here.
SCRIPT = "replies:\n- calls: [{tool: execute_command, arguments: '{\"command\": \"%s\"}'}]\n- text: done\n"
CONFIG = """\
llms: {quick: {type: scripted, script: quick.yaml}, slow: {type: scripted, script: slow.yaml}}
tools: {execute_command: {allowed_commands: [echo, sleep]}}
session_stores: {main: {backend: sql, sql: {driver: %s}}}
server: {nodes: {take_over_after: 3s}}
agents:
  ops: {llm: quick, session_store: main, tools: [execute_command], task: {input_timeout: 2h}}
  slow: {llm: slow, session_store: main, tools: [execute_command], task: {input_timeout: 2h}}
"""
REFUSAL = r"has schema (\d+), but this version of Standfast knows only (\d+); upgrade Standfast, or open a backup from before the upgrade"


def until(what, holds):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"not within 30 seconds: {what}")


def say(text):
    print(f"ok  {text}", flush=True)


class Postgres:
    """A cluster of its own, gone with the `with`."""

    def __init__(self, folder, user="postgres", port=None, inside=()):
        self.user, self.inside = user, inside
        self.bin = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
        self.folder = folder / "pg"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = port or free.getsockname()[1]
        self.url = f"postgres://{user}@127.0.0.1:{self.port}/postgres"

    def command(self, name, *words):
        own = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        return subprocess.run([*self.inside, *own, f"{self.bin}/{name}", *words], check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout

    def __enter__(self):
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        self.command("initdb", "--pgdata", f"{self.folder}/data", "--auth", "trust", "--username", self.user)
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self.folder}"
        self.command("pg_ctl", "--pgdata", f"{self.folder}/data", "--log", f"{self.folder}/log", "--options", options, "--wait", "start")
        return self

    def __exit__(self, *_):
        self.command("pg_ctl", "--pgdata", f"{self.folder}/data", "--mode", "immediate", "stop")

    def rows(self, statement):
        return self.command("psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", statement, self.url).split()

    def contents(self):
        """What a refused start must leave as it was."""
        names = self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        # Who is there is noted by every node that is there.
        return {name: self.rows(f"SELECT md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM \"{name}\" t") for name in names if name not in ("nodes", "shards")}


class Server:
    """One program that serves a folder's configuration."""

    def __init__(self, program, folder, name):
        self.program, self.folder, self.name = program, folder, name
        log = open(folder / f"{name}.log", "a")
        command = [program, "serve", "--config", folder / "standfast.yaml", "--data", folder / name, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        first = self.process.stdout.readline().strip()
        assert first.startswith("Standfast listens on "), f"{name}: {first}{(folder / f'{name}.log').read_text()}"
        self.url = first.removeprefix("Standfast listens on ")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, f"{self.name} did not stop in peace"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def request(self, method, path, body=None):
        """Status, `Retry-After`, and the body as text."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, None, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("retry-after"), error.read().decode()

    def ask(self, *words):
        done = subprocess.run([self.program, *words, "--json", "--server", self.url], capture_output=True, text=True)
        assert done.returncode == 0, f"{self.name}: {words}: {done.stderr}"
        return json.loads(done.stdout)

    def is_ready(self):
        return self.request("GET", "/readyz")[0] == 200

    def hold(self, agent="ops"):
        """A new run that waits for a person: its id and its hold's."""
        held = self.ask("send", agent, "please", "--wait")
        assert held["status"] == "held", held
        return held["id"], held["holds"][0]["id"]

    def approve(self, hold):
        return self.request("POST", f"/api/v1/holds/{hold}/resolve", {"resolution": "approve"})

    def ends(self, run):
        """It completes, and its call was started once."""
        until(f"{run} ends", lambda: self.ask("show", run)["run"]["status"] == "completed")
        kinds = [event["type"] for event in self.ask("show", run)["events"]]
        assert kinds.count("call.started") == 1 and kinds.count("call.finished") == 1, kinds

    def sees(self, run):
        return run in self.request("GET", "/api/v1/runs?limit=100")[2]


def folder_of(scratch, name, driver):
    folder = scratch / name
    folder.mkdir()
    (folder / "quick.yaml").write_text(SCRIPT % "echo hello")
    (folder / "slow.yaml").write_text(SCRIPT % "sleep 20")
    (folder / "standfast.yaml").write_text(CONFIG % driver)
    return folder


def refused(program, folder):
    """The sentence with which a start is refused."""
    command = [program, "serve", "--config", folder / "standfast.yaml", "--data", folder / "refused", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2), f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    found = re.search(REFUSAL, done.stderr)
    assert found, done.stderr
    return int(found[1]), int(found[2]), done.stderr.strip().splitlines()[-1]


def schema_of(statement_rows):
    return int(statement_rows[0])


def rolling(old, new, scratch):
    """Nodes of one Postgres are replaced one after the other, while people decide."""
    with Postgres(scratch) as database:
        folder = folder_of(scratch, "postgres", f"postgres, url: \"{database.url}\"")
        schema = lambda: schema_of(database.rows("SELECT max(version) FROM refinery_schema_history"))
        with Server(old, folder, "old-1") as first, Server(old, folder, "old-2") as second:
            before = schema()
            (run_a, hold_a), (run_b, hold_b), (run_c, hold_c) = (first.hold() for _ in range(3))
            _, hold_slow = slow = first.hold("slow")
            second.stop()
            with Server(new, folder, "new-1") as newer:
                until("the newer node is ready", newer.is_ready)
                after = schema()
                assert first.is_ready(), "the older node goes on"
                say(f"Postgres: schema {before} to {after} by the newer node; the older one beside it stays ready")
                shown = newer.ask("nodes")
                levels = [node["feature_level"] for node in shown["nodes"]]
                assert len(levels) == 2 and shown["feature_level"] == min(levels), shown
                say(f"two nodes, feature levels {levels}, in use {shown['feature_level']}")

                assert newer.approve(hold_a)[0] == 200
                newer.ends(run_a)
                say("held by the older node, approved through the newer: it ran once")
                assert first.approve(hold_b)[0] == 200
                first.ends(run_b)
                say("held by the older node, approved through it while the newer is there: it ran once")
                run, hold = first.hold()
                assert newer.sees(run) and newer.approve(hold)[0] == 200
                newer.ends(run)
                say("begun by the older node on the newer schema, approved through the newer: it ran once")
                run, hold = newer.hold()
                status, retry, said = first.approve(hold)
                if status == 200:
                    newer.ends(run)
                    say("held by the newer node, approved through the older: it ran once")
                else:
                    assert (status, retry is not None) == (503, True), (status, retry, said)
                    assert not first.sees(run), "lists of the older node leave it out"
                    assert newer.approve(hold)[0] == 200
                    newer.ends(run)
                    say(f"held by the newer node: the older one leaves it alone (503, Retry-After: {retry}); approved through the newer it ran once")

                assert first.approve(hold_slow)[0] == 200
                until("the slow call runs on the older node", lambda: "call.started" in json.dumps(newer.ask("show", slow[0])))
                first.kill()
                until("the newer node takes over", lambda: any(hold["kind"] == "recovery" for hold in newer.ask("holds")["holds"]))
                kinds = [event["type"] for event in newer.ask("show", slow[0])["events"]]
                assert kinds.count("call.started") == 1, kinds
                say("the older node was killed while a call ran: the newer asks a person what became of it, and starts it no second time")
                assert newer.approve(hold_c)[0] == 200
                newer.ends(run_c)
                until("the older nodes are gone", lambda: len(newer.ask("nodes")["nodes"]) == 1)
                shown = newer.ask("nodes")
                assert shown["feature_level"] == shown["nodes"][0]["feature_level"], shown
                say(f"the last older node is gone: feature level {shown['feature_level']} in use")
                gate = {"tool": "refund", "arguments": {"order": "A-7"}, "agent": "billing", "session": "case-7", "call": "call_1"}
                opened = json.loads(newer.request("POST", "/api/v1/gates", gate)[2])
                assert opened["state"] == "held" and newer.approve(opened["hold"])[0] == 200, opened
                assert json.loads(newer.request("POST", "/api/v1/gates", gate)[2])["state"] == "allowed"
                say("with the older nodes gone, a gate is opened and allowed: a form that older programs may not know")
                verified = subprocess.run([new, "audit", "verify", "--config", folder / "standfast.yaml"], capture_output=True, text=True)
                assert verified.returncode == 0, verified.stdout + verified.stderr
                say("every chain is whole (standfast audit verify)")

                if after > before:
                    was = database.contents()
                    found, known, sentence = refused(old, folder)
                    assert (found, known) == (after, before) and was == database.contents()
                    say(f"the older program is refused and changes nothing: {sentence.replace(database.url, 'DATABASE')}")
                else:
                    with Server(old, folder, "old-again") as again:
                        assert again.is_ready()
                        say("the schema is the same, so the older program starts again")


def replaced(old, new, scratch):
    """One server on SQLite: stop, back up, start the newer; then the way back."""
    folder = folder_of(scratch, "sqlite", "sqlite, database: ./runs.db")
    file, config = folder / "runs.db", folder / "standfast.yaml"

    def schema():
        import sqlite3

        connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        try:
            return schema_of(connection.execute("SELECT max(version) FROM refinery_schema_history").fetchone())
        finally:
            connection.close()

    with Server(old, folder, "data") as server:
        run, hold = server.hold()
        subprocess.run([old, "backup", folder / "before.db", "--config", config], check=True, capture_output=True)
        server.stop()
    before = schema()
    with Server(new, folder, "data") as server:
        after = schema()
        assert [one["id"] for one in server.ask("holds")["holds"]] == [hold]
        assert server.approve(hold)[0] == 200
        server.ends(run)
        server.stop()
    say(f"SQLite: schema {before} to {after}; held by the older program, approved in the newer: it ran once")
    verified = subprocess.run([new, "audit", "verify", file], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    if after == before:
        with Server(old, folder, "data") as server:
            assert server.ask("show", run)["run"]["status"] == "completed"
        say("the schema is the same, so the older program starts again")
        return
    digest = lambda: hashlib.sha256(file.read_bytes()).hexdigest()
    was = digest()
    found, known, sentence = refused(old, folder)
    for words in (["keys", "create", "--user", "ann"], ["backup", folder / "late.db"]):
        done = subprocess.run([old, *words, "--config", config], capture_output=True, text=True)
        assert done.returncode != 0 and re.search(REFUSAL, done.stderr), done.stderr
    assert (found, known) == (after, before) and digest() == was
    say(f"the older program is refused, with every command, and changes nothing: {sentence.replace(str(folder), '…')}")
    for name in ("runs.db", "runs.db-wal", "runs.db-shm"):
        if (folder / name).exists():
            (folder / name).rename(folder / f"newer-{name}")
    restored = subprocess.run([old, "restore", folder / "before.db", "--config", config], capture_output=True, text=True)
    assert restored.returncode == 0, restored.stderr
    with Server(old, folder, "data") as server:
        assert [one["id"] for one in server.ask("holds")["holds"]] == [hold]
    say("the backup from before the upgrade, restored by the older program: the hold is open again")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", required=True, type=pathlib.Path, help="the program before the upgrade")
    parser.add_argument("--new", required=True, type=pathlib.Path, help="the program after it")
    arguments = parser.parse_args()
    old, new = arguments.old.resolve(), arguments.new.resolve()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="sf-upgrade-"))
    # The cluster runs as another user.
    scratch.chmod(0o755)
    try:
        replaced(old, new, scratch)
        rolling(old, new, scratch)
    except BaseException:
        for log in sorted(scratch.glob("*/*.log")):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}", file=sys.stderr)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
