"""Each package in an empty environment, as somebody gets it who has only that one: installed, started, asked.

`packaging/dist.py --check` calls this. Knows files, package managers and the commands of the program, nothing of how the packages are
made. uv and twine are fetched from PyPI, once; everything else is installed offline, from the files alone.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
import tempfile
import time
import tomllib
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_BYTES = 30_000_000
TOOLS = ["uv", "twine"]
VERSION_AND_COMMIT = re.compile(r"\d+\.\d+\.\d+ \([0-9a-f]{12}\)$")
# Where the program listens that was told nothing.
USUAL_PORT = 8080
# Of whoever has nothing but the programs of the machine; what servers log is not looked at.
CLEAN = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "RUST_LOG": "warn"}
PT_INTERP = 3


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def text_of(*command, **options):
    return run(*command, stdout=subprocess.PIPE, text=True, **options).stdout


def say(text):
    print(f"ok  {text}", flush=True)


def lacking(programs):
    """Which programs this machine lacks, after an attempt to install them where that is usual."""
    without = [program for program in programs if not shutil.which(program)]
    if without and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *without], stdout=subprocess.DEVNULL)
        without = [program for program in programs if not shutil.which(program)]
    return without


def needs_a_loader(binary):
    """Whether an ELF file names a program that has to load it: then it is linked with libraries of the machine."""
    data = binary.read_bytes()
    assert data[:5] == b"\x7fELF\x02", f"{binary} is no ELF file of 64 bits"
    (offset,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    return any(struct.unpack_from("<I", data, offset + at * size) == (PT_INTERP,) for at in range(count))


def is_what_is_shipped(binary):
    """Of a binary that was built to be shipped: static, small, and it says of which commit it is."""
    assert not needs_a_loader(binary), f"{binary} is not static: it names a loader (PT_INTERP)"
    size = binary.stat().st_size
    assert size <= MOST_BYTES, f"{binary} has {size} bytes, more than {MOST_BYTES}"
    said = text_of(binary, "--version").strip()
    has_commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode == 0
    assert VERSION_AND_COMMIT.search(said) or not has_commit, f"`--version` names no commit: {said}"
    say(f"binary: static, {size / 1e6:.1f} MB, {said}")


def shows_the_demo(program, scratch, environment):
    """The demo listens, answers, holds a call, and the call runs once it is approved."""
    data = pathlib.Path(scratch, "data")
    command = [str(program), "serve", "--demo", "--listen", "127.0.0.1:0", "--data", str(data)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=scratch)
    try:
        url = server.stdout.readline().strip().removeprefix("Standfast listens on ")
        ask = lambda *words: json.loads(text_of(program, *words, "--json", "--server", url, env=environment, cwd=scratch))
        held = ask("send", "ops", "Free some space", "--wait")
        assert held["status"] == "held", held
        ask("holds", "approve", held["holds"][0]["id"])
        run(program, "watch", held["id"], "--until", "ended", "--server", url, env=environment, cwd=scratch, stdout=subprocess.DEVNULL)
        effects = (data / "demo-effects.log").read_text()
        assert effects.count("\n") == 1, effects
    finally:
        server.terminate()
        server.wait()


def starts_without_arguments(what, command, folder=None):
    """The first thing that anybody types, in an empty home and an empty folder: it greets, at the address that the guide says."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", USUAL_PORT))
        except OSError:
            print(f"not checked: {what} without arguments, as something listens on port {USUAL_PORT} here", flush=True)
            return
    with tempfile.TemporaryDirectory() as home:
        began = time.monotonic()
        command = [str(part) for part in command]
        # A process group of its own: uvx and npx start the program as their child.
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=CLEAN | {"HOME": home}, cwd=folder or home, start_new_session=True
        )
        try:
            greeting = server.stdout.readline()
            seconds = time.monotonic() - began
            assert greeting == f"Standfast listens on http://127.0.0.1:{USUAL_PORT}\n", greeting
            assert any(line.startswith("page: ") for line in server.stdout), "the greeting names no page"
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
    say(f"{what}: without arguments it listens after {seconds:.1f} s")


def archive(file, target):
    """Its checksum, and what is in it, in a folder with nothing else."""
    run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=file.parent)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        with tarfile.open(file) as tar:
            names = set(tar.getnames())
            tar.extractall(scratch, filter="data")
        (folder,) = scratch.iterdir()
        environment = CLEAN | {"HOME": str(scratch)}
        program = folder / "standfast"
        shows_the_demo(program, scratch, environment)
        commands = set(re.findall(r"^  ([a-z-]+)  ", text_of(program, "--help", env=environment), re.MULTILINE)) - {"help"}
        pages = {page.name: page.read_text() for page in (folder / "man").iterdir()}
        assert ".SH NAME" in pages["standfast.1"], pages["standfast.1"]
        without = [name for name in sorted(commands) if f"standfast-{name}.1" not in pages]
        assert len(commands) > 10 and not without, f"no man page for {without}"
        completes(folder / "completions")
        for name in ("LICENSE", "README.md", "sbom.cdx.json", "THIRD-PARTY-NOTICES.txt"):
            assert (folder / name).stat().st_size > 0, name
    binstall(file, target, names)
    say(f"archive: checksums, the demo, {len(pages)} man pages, completions; where binstall looks for it")


def completes(folder):
    """Each shell reads the file that is for it."""
    without = lacking(["zsh", "fish"])
    run("bash", "-c", f'source "{folder}/standfast.bash" && complete -p standfast', stdout=subprocess.DEVNULL)
    for shell in ("zsh", "fish"):
        file = folder / f"standfast.{shell}"
        if shell not in without:
            run(shell, "-n", file)
        else:
            assert "holds" in file.read_text(), file
            print(f"not checked: {file.name} by {shell}, which is not here", flush=True)


def binstall(file, target, names):
    """What `cargo binstall` would ask for is this archive, and the program is where it would look. Which repository has it, whoever
    publishes it says."""
    crate = tomllib.loads((ROOT / "crates/server/Cargo.toml").read_text())
    number = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    said = crate["package"]["metadata"]["binstall"]
    assert said["pkg-fmt"] == "tgz", said
    words = {
        "name": crate["package"]["name"], "version": number, "target": target, "bin": "standfast",
        "binary-ext": "", "archive-suffix": ".tar.gz", "repo": "REPOSITORY",
    }
    filled = lambda template: re.sub(r"\{ ([a-z-]+) \}", lambda found: words[found.group(1)], template)
    assert filled(said["pkg-url"]) == f"REPOSITORY/releases/download/v{number}/{file.name}", filled(said["pkg-url"])
    assert filled(said["bin-dir"]) in names, (filled(said["bin-dir"]), sorted(names))


def python_tools(scratch):
    """Programs that wheels are installed and checked by, in an environment that is kept for the next time."""
    place = scratch / "python-tools"
    if not (place / "bin/uvx").exists() or not (place / "bin/twine").exists():
        venv.create(place, with_pip=True)
        run(place / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS)
    return place / "bin"


def wheel(file, scratch):
    tools = python_tools(scratch)
    run(tools / "twine", "check", "--strict", file, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as empty:
        environment = CLEAN | {"HOME": empty}
        place = pathlib.Path(empty, "venv")
        venv.create(place, with_pip=True)
        run(place / "bin/pip", "install", "--quiet", "--no-index", "--no-deps", file)
        said = {text_of(place / "bin" / name, "--version", env=environment) for name in ("standfast", "standfast-server")}
        assert len(said) == 1, said
        shows_the_demo(place / "bin/standfast-server", empty, environment)
        say("wheel: pip, its two commands, the demo")
        starts_without_arguments("wheel", [place / "bin/standfast-server"])
        uvx = [tools / "uvx", "--offline", "--cache-dir", pathlib.Path(empty, "uv"), "--from", file, "standfast-server"]
        assert {text_of(*uvx, "--version", env=environment)} == said
        say("wheel: uvx")
        starts_without_arguments("wheel by uvx", uvx)


def npm(files):
    with tempfile.TemporaryDirectory() as folder:
        environment = CLEAN | {"HOME": folder}
        # Only the packages that were made here: the registry has none of them yet.
        run("npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--offline", "--omit=optional", *files, cwd=folder, env=environment)
        shows_the_demo(pathlib.Path(folder, "node_modules/.bin/standfast"), folder, environment)
        say("npm: the demo")
        starts_without_arguments("npm by npx", ["npx", "--offline", "standfast"], folder)


def from_source(target_folder):
    """`cargo install` as README says it, but for the optimisation: with what is built already, where there is anything."""
    with tempfile.TemporaryDirectory() as empty:
        run(
            "cargo", "install", "--path", "crates/server", "--bin", "standfast", "--root", empty, "--debug", "--locked", "--quiet",
            cwd=ROOT, env=os.environ | {"CARGO_TARGET_DIR": str(target_folder)},
        )
        shows_the_demo(pathlib.Path(empty, "bin/standfast"), empty, CLEAN | {"HOME": empty})
    say("source: cargo install, the demo")


def check(archive_file, wheel_file, npm_files, target, scratch):
    archive(archive_file, target)
    wheel(wheel_file, scratch)
    npm(npm_files)
    from_source(scratch.parent)
