#!/usr/bin/env python3
"""Packages of one binary: an archive with checksums, SBOM and notices, a wheel, and packages of npm.

`cargo xtask dist` builds the binary and calls this; `--check` installs each package in an empty environment and shows the
demo (`installs.py`), then builds the image (`container.py`) and renders the chart (`chart.py`). Knows files and formats of packages, nothing
of the program but its commands. Standard library only.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import chart
import container
import installs
from installs import run, text_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a target is called by Python and by npm. The others are built where they can be: this list says what is packaged.
PLATFORMS = {
    "x86_64-unknown-linux-musl": ("manylinux_2_17_x86_64.musllinux_1_1_x86_64", "linux", "x64"),
    "x86_64-unknown-linux-gnu": ("manylinux_2_17_x86_64.musllinux_1_1_x86_64", "linux", "x64"),
    "aarch64-unknown-linux-musl": ("manylinux_2_17_aarch64.musllinux_1_1_aarch64", "linux", "arm64"),
    "x86_64-apple-darwin": ("macosx_10_12_x86_64", "darwin", "x64"),
    "aarch64-apple-darwin": ("macosx_11_0_arm64", "darwin", "arm64"),
}
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)
# As the repository's own time: the same sources make the same archives.
EPOCH = 315532800  # 1980, the earliest that a zip knows


def version():
    return re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)


def dependencies(target):
    """Every crate that is in the binary, with its licence."""
    tree = text_of(
        "cargo", "tree", "--locked", "-p", "standfast", "-e", "normal", "--target", target, "--prefix", "none",
        "--no-dedupe", "-f", "{p}|{l}|{r}", cwd=ROOT,
    )
    found = {}
    for line in tree.splitlines():
        package, licence, repository = (line.split("|") + ["", ""])[:3]
        match = re.match(r"^(\S+) v(\S+)", package)
        if match and "(/" not in package:
            found[match.groups()] = (licence.replace("/", " OR "), repository)
    return dict(sorted(found.items()))


def sbom(crates):
    """CycloneDX 1.5."""
    def component(name, number, licence, repository):
        entry = {
            "type": "library", "name": name, "version": number, "purl": f"pkg:cargo/{name}@{number}",
            "licenses": [{"expression": licence}] if licence else [],
        }
        if repository:
            entry["externalReferences"] = [{"type": "vcs", "url": repository}]
        return entry

    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {"type": "application", "name": "standfast", "version": version()}},
        "components": [component(*crate, *facts) for crate, facts in crates.items()],
    }, indent=1) + "\n"


def notices(crates):
    """The licence texts of every crate, each text once."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    sources = list((home / "registry" / "src").glob("*"))
    texts, without = {}, []
    for (name, number), (licence, _) in crates.items():
        folders = [source / f"{name}-{number}" for source in sources]
        files = [file for folder in folders if folder.is_dir() for file in sorted(folder.iterdir()) if LICENCE_FILE.match(file.name) and file.is_file()]
        for file in files:
            texts.setdefault(file.read_text(errors="replace").strip(), set()).add(f"{name} {number}")
        if not files:
            without.append(f"{name} {number}: {licence}")
    parts = ["Standfast contains the following software of others.\n"]
    parts += [f"{'-' * 80}\n{', '.join(sorted(users))}\n\n{text}\n" for text, users in sorted(texts.items())]
    if without:
        parts.append(f"{'-' * 80}\nWithout a licence text of their own, under the named licence:\n\n" + "\n".join(without) + "\n")
    return "\n".join(parts)


def plain(info):
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = EPOCH
    return info


def archive(binary, target, out):
    name = f"standfast-{version()}-{target}"
    folder = out / target
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "man").mkdir(parents=True)
    (folder / "completions").mkdir()
    shutil.copy2(binary, folder / "standfast")
    run(folder / "standfast", "man", folder / "man")
    for shell in ("bash", "zsh", "fish"):
        (folder / "completions" / f"standfast.{shell}").write_text(text_of(folder / "standfast", "completions", shell))
    for file in ("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"):
        shutil.copy2(ROOT / file, folder)
    shutil.copy2(ROOT / "packaging/systemd/standfast.service", folder)
    crates = dependencies(target)
    (folder / "sbom.cdx.json").write_text(sbom(crates))
    (folder / "THIRD-PARTY-NOTICES.txt").write_text(notices(crates))
    made = out / f"{name}.tar.gz"
    with tarfile.open(made, "w:gz", compresslevel=9) as tar:
        for file in sorted(folder.rglob("*")):
            tar.add(file, f"{name}/{file.relative_to(folder)}", recursive=False, filter=plain)
    return made


def wheel(folder, target, out):
    """A wheel whose commands are the binary itself, and a command of the wheel's own name, for `uvx`."""
    tags = PLATFORMS[target][0]
    name, number = "standfast_server", version()
    info = f"{name}-{number}.dist-info"
    launcher = (
        "#!python\nimport os, sys\n"
        "program = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'standfast')\n"
        "os.execv(program, [program, *sys.argv[1:]])\n"
    )
    files = {
        f"{name}-{number}.data/scripts/standfast": (folder / "standfast").read_bytes(),
        f"{name}-{number}.data/scripts/standfast-server": launcher.encode(),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: standfast-server\nVersion: {number}\nLicense: Apache-2.0\n"
            "Summary: Standfast, a durable server for AI agents that must stop and wait\nRequires-Python: >=3.8\n"
            "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text()
        ).encode(),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: standfast-dist\nRoot-Is-Purelib: false\n"
            + "".join(f"Tag: py3-none-{tag}\n" for tag in tags.split("."))
        ).encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"{info}/licenses/THIRD-PARTY-NOTICES.txt": (folder / "THIRD-PARTY-NOTICES.txt").read_bytes(),
        f"{info}/sboms/standfast.cdx.json": (folder / "sbom.cdx.json").read_bytes(),
    }
    digest = lambda data: "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    record = "".join(f"{path},{digest(data)},{len(data)}\n" for path, data in files.items()) + f"{info}/RECORD,,\n"
    made = out / f"{name}-{number}-py3-none-{tags}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path, data in {**files, f"{info}/RECORD": record.encode()}.items():
            entry = zipfile.ZipInfo(path)
            # pip makes those executable that are marked as regular files with this bit.
            entry.external_attr = (stat.S_IFREG | (0o755 if "/scripts/" in path else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            zipped.writestr(entry, data)
    return made


def npm(folder, target, out):
    """The package of this platform, and the one that people name, which asks for it."""
    _, system, machine = PLATFORMS[target]
    number, platform = version(), f"@standfast/server-{system}-{machine}"
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        own = pathlib.Path(scratch, "platform")
        own.mkdir()
        shutil.copy2(folder / "standfast", own)
        for file in ("LICENSE", "THIRD-PARTY-NOTICES.txt", "sbom.cdx.json"):
            shutil.copy2(folder / file, own)
        (own / "package.json").write_text(json.dumps({
            "name": platform, "version": number, "license": "Apache-2.0", "os": [system], "cpu": [machine],
            "description": "The program of @standfast/server for one platform",
            "files": ["standfast", "THIRD-PARTY-NOTICES.txt", "sbom.cdx.json"],
        }, indent=2))
        named = pathlib.Path(scratch, "named")
        shutil.copytree(ROOT / "packaging/npm", named)
        for file in ("LICENSE", "README.md"):
            shutil.copy2(ROOT / file, named)
        package = json.loads((named / "package.json").read_text())
        names = {f"@standfast/server-{system}-{machine}" for _, system, machine in PLATFORMS.values()}
        package |= {"version": number, "optionalDependencies": {name: number for name in sorted(names)}}
        (named / "package.json").write_text(json.dumps(package, indent=2))
        for source in (own, named):
            packed = text_of("npm", "pack", "--silent", "--pack-destination", out, cwd=source)
            made.append(out / packed.strip().splitlines()[-1])
    return made


def checksums(files, out):
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)]
    (out / "SHA256SUMS").write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--target", required=True, choices=sorted(PLATFORMS))
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--built", action="store_true", help="the binary was built to be shipped, and is refused unless it is static, small and knows its commit")
    parser.add_argument("--check", action="store_true", help="install each package in an empty environment and show the demo; build the image, render the chart")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if arguments.built:
        installs.is_what_is_shipped(arguments.binary)
    folder = out / arguments.target
    files = [archive(arguments.binary, arguments.target, out)]
    files.append(wheel(folder, arguments.target, out))
    npm_files = npm(folder, arguments.target, out)
    files += npm_files
    checksums(files, out)
    for file in files:
        print(f"{file.stat().st_size / 1e6:8.1f} MB  {file.name}")
    if arguments.check:
        binary, scratch = folder / "standfast", out.parent / "dist-check"
        scratch.mkdir(exist_ok=True)
        installs.check(files[0], files[1], npm_files, arguments.target, scratch)
        container.check(binary, scratch, chart.check(binary, scratch))


if __name__ == "__main__":
    sys.exit(main())
