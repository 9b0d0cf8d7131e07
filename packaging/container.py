"""The image of `packaging/docker/Dockerfile`: built without a daemon, and run as hardened as the guide says.

`packaging/dist.py --check` calls this; by itself: `python3 packaging/container.py --binary FILE --scratch FOLDER`. It needs root and
Debian's buildah, podman, runc and mmdebstrap. No registry of images is asked: the image that the Dockerfile begins with is
made from Debian's packages; the Postgres of the compose file is Debian's too. Knows containers and the commands of the program, nothing of packages.
"""

import argparse
import glob
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import chart
import upgrade
from chart import run, succeeds
from installs import lacking, needs_a_loader

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCKERFILE = ROOT / "packaging/docker/Dockerfile"
COMPOSE = ROOT / "packaging/docker/compose.yaml"
NEEDED = ["buildah", "podman", "runc", "mmdebstrap"]
USER = 65532
PROGRAM = "/usr/bin/standfast"
HARDENED = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
ALONE = ["--network", "none"]

# What the comment in the compose file asks for, with a model that needs no key.
COMPOSED = """\
llms: {script: {type: scripted, script: script.yaml}}
session_stores: {main: {backend: sql, sql: {driver: postgres, url: "${DATABASE_URL}"}}}
agents: {ops: {llm: script, session_store: main, task: {}}}
"""
# An agent that calls two commands: one that may run, and one that reaches for what is not its own.
TOOLS = """\
llms: {script: {type: scripted, script: script.yaml}}
tools:
  execute_command: {type: command, allowed_commands: [echo, cat], working_directory: /var/lib/standfast/workspace}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: /var/lib/standfast/runs.db}}}
agents: {ops: {llm: script, session_store: main, tools: [execute_command], task: {}}}
"""
SCRIPT = """\
replies:
- calls: [{tool: execute_command, arguments: '{"command": "echo confined"}'}]
- calls: [{tool: execute_command, arguments: '{"command": "cat /var/lib/standfast/runs.db"}'}]
- text: done
"""


def until(what, holds):
    for _ in range(300):
        if holds():
            return
        time.sleep(0.2)
    raise AssertionError(f"not within a minute: {what}")


def missing():
    """What this machine lacks."""
    return lacking(NEEDED) + ([] if os.geteuid() == 0 else ["the rights of root"])


class Engine:
    """buildah and podman with a storage of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.storage = ["--root", folder / "root", "--runroot", folder / "run", "--storage-driver", "vfs"]

    def buildah(self, *words):
        return succeeds("buildah", *self.storage, *words)

    def podman(self, *words, **options):
        return succeeds(*self.podman_command(), *words, **options)

    def podman_command(self):
        return ["podman", *self.storage, "--runtime", "runc", "--cgroup-manager", "cgroupfs", "--tmpdir", self.folder / "tmp"]

    def base(self, name, tar):
        """What the Dockerfile begins with, made from Debian's packages, once."""
        if not tar.exists():
            succeeds("mmdebstrap", "--variant=minbase", "--quiet", "bookworm", tar.with_suffix(".new.tar"))
            tar.with_suffix(".new.tar").rename(tar)
        made = self.buildah("from", "scratch").strip()
        self.buildah("add", made, tar, "/")
        self.buildah("commit", "--quiet", made, name)
        self.buildah("rm", made)

    def build(self, name, file, context):
        """`--format docker`: the format of OCI has no health check."""
        self.buildah("build", "--isolation", "chroot", "--format", "docker", "--pull-never", "--file", file, "--tag", name, context)


class Container:
    """One that runs until the end of a `with`."""

    def __init__(self, engine, name, image, *options, command=(), network=ALONE):
        self.engine, self.name = engine, name
        # The usual limits are higher than a machine may allow.
        limits = [
            part
            for kind, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
            for part in ("--ulimit", f"{kind}={hard(number)}:{hard(number)}")
        ]
        engine.podman("run", "--detach", "--name", name, *limits, *HARDENED, *network, *options, image, *command)

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if failed:
            print(self.logs(), file=sys.stderr)
        run(*self.engine.podman_command(), "rm", "--force", self.name)

    def logs(self):
        done = run(*self.engine.podman_command(), "logs", self.name)
        return done.stdout + done.stderr

    def standfast(self, *words, key=""):
        return self.engine.podman("exec", "--env", f"STANDFAST_KEY={key}", self.name, PROGRAM, *words)

    def json(self, *words, key=""):
        return json.loads(self.standfast(*words, "--json", key=key))

    def is_healthy(self):
        """The health check that is written in the image."""
        return run(*self.engine.podman_command(), "healthcheck", "run", self.name).returncode == 0

    def process(self):
        return self.engine.podman("inspect", "--format", "{{.State.Pid}}", self.name).strip()

    def get(self, path, host, key=""):
        """Status and body, asked from inside the container's network as a probe or a caller would."""
        ask = (
            "import sys, http.client\n"
            "connection = http.client.HTTPConnection('127.0.0.1', 8080, timeout=30)\n"
            "connection.request('GET', sys.argv[1], headers={'Host': sys.argv[2], 'Authorization': 'Bearer ' + sys.argv[3]})\n"
            "answer = connection.getresponse()\n"
            "print(answer.status, answer.read().decode())\n"
        )
        said = succeeds("nsenter", f"--net=/proc/{self.process()}/ns/net", sys.executable, "-c", ask, path, host, key)
        status, _, body = said.partition(" ")
        return int(status), body.strip()

    def facts(self):
        """What the kernel says of the server's process."""
        lines = pathlib.Path(f"/proc/{self.process()}/status").read_text().splitlines()
        return dict(line.split(":\t", 1) for line in lines)


def hard(number):
    most = resource.getrlimit(number)[1]
    return 16384 if most == resource.RLIM_INFINITY else min(most, 16384)


def volume(folder, name):
    """A directory as Kubernetes hands out volumes: of root, and writable for the group of the pod."""
    made = folder / name
    made.mkdir()
    os.chown(made, 0, USER)
    made.chmod(0o2775)
    return made


def shows_the_demo(engine, image, libraries):
    """As it is started without a word: healthy, nobody's root, and what was approved after a crash runs once."""
    data = volume(engine.folder, "demo")
    with Container(engine, "demo", image, "--volume", f"{data}:/var/lib/standfast", *libraries) as server:
        until("the image's own health check succeeds", server.is_healthy)
        assert server.get("/healthz", "127.0.0.1") == (200, "ok")
        facts = server.facts()
        assert facts["Uid"].split() == [str(USER)] * 4, facts["Uid"]
        assert facts["CapEff"].strip("0\n") == "" and facts["NoNewPrivs"] == "1" and facts["Seccomp"] == "2", facts
        key = server.json("keys", "create", "--user", "ann")["key"]
        assert server.get("/api/v1/holds", "127.0.0.1")[0] == 401
        held = server.json("send", "ops", "Free some space", "--wait", key=key)
        assert held["status"] == "held", held
        server.engine.podman("kill", "--signal", "KILL", server.name)
        until("it has ended", lambda: server.process() == "0")
        server.engine.podman("start", server.name)
        until("it is healthy after a crash", server.is_healthy)
        server.json("holds", "approve", held["holds"][0]["id"], key=key)
        server.standfast("watch", held["id"], "--until", "ended", key=key)
        assert (data / "demo-effects.log").read_text().count("\n") == 1
        found = {check["check"]: check["result"] for check in server.json("doctor", "--offline")["checks"]}
        assert all(found[name] == "ok" for name in ("server", "database", "chains", "sandbox")), found


def confines_commands(engine, image):
    """A tool of type command in a container: Landlock works under the usual seccomp profile, without capabilities."""
    settings = engine.folder / "tools"
    settings.mkdir()
    (settings / "standfast.yaml").write_text(TOOLS)
    (settings / "script.yaml").write_text(SCRIPT)
    listen = ["serve", "--listen", "127.0.0.1:8080"]
    with Container(engine, "tools", image, "--volume", f"{settings}:/etc/standfast:ro", command=listen) as server:
        until("the server listens", lambda: run(*engine.podman_command(), "exec", "tools", PROGRAM, "health", "http://127.0.0.1:8080").returncode == 0)
        held = server.json("send", "ops", "please", "--wait")
        for _ in range(2):
            until("the next call is held", lambda: server.json("holds")["holds"])
            server.json("holds", "approve", server.json("holds")["holds"][0]["id"])
        server.standfast("watch", held["id"], "--until", "ended")
        shown = server.standfast("show", held["id"], "--json")
        assert "confined\\n" in shown, "the first one ran"
        assert "SQLite format" not in shown, "the second one saw the store"
        assert "Permission denied" in shown or "No such file" in shown, shown


def runs_as_rendered(engine, image, libraries, found):
    """The pod of the chart: its command, mounts and rights. It answers its probes and callers of its Service."""
    kinds = {document["kind"]: document for document in found}
    pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsUser"] == USER
    # As a ConfigMap is mounted: a link to a link, which is turned to another folder on a change.
    settings = engine.folder / "rendered"
    text = kinds["ConfigMap"]["data"]["standfast.yaml"]
    for name, version in (("..1", text), ("..2", text.replace("agents: {ops:", "agents: {renamed:"))):
        (settings / name).mkdir(parents=True)
        (settings / name / "standfast.yaml").write_text(version)
    (settings / "script.yaml").write_text("replies: [{text: done}]\n")
    (settings / "..data").symlink_to("..1")
    (settings / "standfast.yaml").symlink_to("..data/standfast.yaml")
    places = {"config": f"{settings}:/etc/standfast:ro", "data": f"{volume(engine.folder, 'claim')}:/var/lib/standfast"}
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"config": "/etc/standfast", "data": "/var/lib/standfast", "tmp": "/tmp"}, mounted
    volumes = [part for place in places.values() for part in ("--volume", place)]
    with Container(engine, "pod", image, *volumes, *libraries, command=container["args"]) as server:
        until("the pod is healthy", server.is_healthy)
        probes = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [server.get(path, "10.20.30.40:8080")[0] for path in probes] == [200] * 3
        key = server.json("keys", "create", "--user", "ann", "--role", "admin")["key"]
        name = kinds["Service"]["metadata"]["name"]
        for host in (name, f"{name}.default.svc.cluster.local:8080", "10.20.30.40:8080"):
            assert server.get("/api/v1/holds", host, key)[0] == 200, host
        assert server.get("/api/v1/holds", "elsewhere.example.org", key)[0] == 421
        (settings / "..new").symlink_to("..2")
        (settings / "..new").replace(settings / "..data")
        until("a changed ConfigMap is taken", lambda: "renamed" in server.get("/api/v1/agents", name, key)[1])


def runs_as_composed(engine, image, libraries, interpreter):
    """The service of the compose file with a Postgres, in a network of their own: its command, mounts and rights."""
    read = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
    service = json.loads(succeeds(interpreter, "-c", read, input=COMPOSE.read_text()))["services"]["standfast"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    settings, script = engine.folder / "composed.yaml", engine.folder / "script.yaml"
    settings.write_text(COMPOSED)
    script.write_text("replies: [{text: done}]\n")
    places = [place.replace("./standfast.yaml", str(settings)) for place in service["volumes"]]
    places.append(f"{script}:/etc/standfast/script.yaml:ro")
    volumes = [part for place in places for part in ("--volume", place)]
    url = service["environment"]["DATABASE_URL"].replace("${POSTGRES_PASSWORD:?set it in .env}", "secret")
    own = f"sf-{os.getpid()}"
    succeeds("ip", "netns", "add", own)
    try:
        inside = ["ip", "netns", "exec", own]
        succeeds(*inside, "ip", "link", "set", "lo", "up")
        engine.folder.chmod(0o755)
        with upgrade.Postgres(engine.folder, user="standfast", port=5432, inside=inside) as database:
            database.command("createdb", "--host", "127.0.0.1", "--username", "standfast", "standfast")
            network = ["--network", f"ns:/run/netns/{own}", "--add-host", "postgres:127.0.0.1", "--env", f"DATABASE_URL={url}"]
            with Container(engine, "composed", image, *volumes, *libraries, command=service["command"], network=network) as server:
                until("the service is healthy", server.is_healthy)
                key = server.json("keys", "create", "--user", "ann")["key"]
                assert server.get("/api/v1/agents", "standfast:8080", key)[0] == 200, "as another service calls it"
                assert server.json("send", "ops", "please", "--wait", key=key)["status"] == "completed"
    finally:
        run("ip", "netns", "delete", own)


def tools_image(engine, image):
    """As the comment in the Dockerfile says: the same on a distribution that has programs."""
    lines = DOCKERFILE.read_text().splitlines()
    rest = lines[next(at for at, line in enumerate(lines) if line.startswith("USER ")):]
    file = engine.folder / "Dockerfile.tools"
    file.write_text("\n".join(["FROM debian:bookworm-slim", f"COPY --from={image} / /", *rest]) + "\n")
    return file


def check(binary, scratch, found=None):
    """Builds the image and runs it; `found` are the rendered documents of the chart for one node with SQLite."""
    scratch.mkdir(parents=True, exist_ok=True)
    without = missing()
    if without:
        print("image: NOT CHECKED, this machine lacks", ", ".join(without))
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sf-image-"))
    try:
        engine = Engine(folder)
        context = folder / "context"
        context.mkdir()
        shutil.copy2(binary, context / "standfast")
        engine.base("docker.io/library/debian:bookworm-slim", scratch / "debian.tar")
        engine.build("localhost/standfast", DOCKERFILE, context)
        libraries = []
        if needs_a_loader(binary):
            print("image: the binary is not static; it borrows the libraries of this machine")
            libraries = ["--volume", "/lib64:/lib64:ro", "--volume", "/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu:ro"]
        size = int(engine.podman("image", "inspect", "--format", "{{.Size}}", "localhost/standfast"))
        print(f"image: built, {size / 1e6:.1f} MB")
        shows_the_demo(engine, "localhost/standfast", libraries)
        print("image: the demo works, as nobody's root, with a read-only file system and no capabilities, over a crash")
        engine.build("localhost/standfast-tools", tools_image(engine, "localhost/standfast"), context)
        confines_commands(engine, "localhost/standfast-tools")
        print("image: commands are confined in a container")
        if found:
            runs_as_rendered(engine, "localhost/standfast", libraries, found)
            print("image: the pod that the chart describes answers its probes and its Service, and takes a changed ConfigMap")
        if found and shutil.which("ip") and glob.glob("/usr/lib/postgresql/*/bin"):
            runs_as_composed(engine, "localhost/standfast", libraries, chart.python(scratch))
            print("image: the service of the compose file works with a Postgres")
        else:
            print("image: the compose file was NOT CHECKED, this machine lacks Postgres, ip or Helm")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--scratch", required=True, type=pathlib.Path, help="a folder for what is fetched once")
    arguments = parser.parse_args()
    binary, scratch = arguments.binary.resolve(), arguments.scratch.resolve()
    check(binary, scratch, chart.check(binary, scratch))


if __name__ == "__main__":
    sys.exit(main())
