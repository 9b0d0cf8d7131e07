"""Verifies an audit bundle of Standfast: `python3 BUNDLE`, or `python3 verify.py BUNDLE`.

Uses Python's standard library alone and asks nobody. It checks, from the stored bytes:
- every chain: each link's hash follows from the link before it and from its contents, and none is missing;
- every large value and every agent definition: its SHA-256 is the one that the chain names;
- the audit of every tenant: entries are numbered without gaps and chained; proofs of erased runs fit their chains;
- receipts: each is of events that are in the chain, says who decided and when as the chain does, and none is missing;
- signed heads: every Ed25519 signature, that none is missing between two, and that everything that they name is there.

A bundle of some time has the runs that changed then, each from its first event on. The heads that were signed after its beginning name
every run that changed, so none can be left out; the last head before it names the entry that each tenant's audit goes on from.

Exit codes: 0 everything verifies, 1 findings, 2 not checked.
"""

import argparse
import base64
import datetime
import hashlib
import io
import json
import os
import sys
import zipfile

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def b32(data):
    """Crockford's base 32 in lower case, the last character padded with zero bits."""
    bits = int.from_bytes(data, "big") << (-len(data) * 8 % 5)
    count = -(-len(data) * 8 // 5)
    return "".join(ALPHABET[bits >> 5 * (count - 1 - at) & 31] for at in range(count))


def unb32(text, size):
    if len(text) != -(-size * 8 // 5) or any(c not in ALPHABET for c in text):
        raise ValueError("%r is not %d bytes in base 32" % (text, size))
    bits = 0
    for c in text:
        bits = bits << 5 | ALPHABET.index(c)
    padding = len(text) * 5 - size * 8
    if bits & (1 << padding) - 1:
        raise ValueError("%r has padding that is not zero" % text)
    return (bits >> padding).to_bytes(size, "big")


def of_parts(label, *parts):
    """SHA-256 of a label and parts, each with its length before it."""
    sha = hashlib.sha256()
    for part in (label.encode(), *parts):
        sha.update(len(part).to_bytes(8, "big"))
        sha.update(part)
    return sha.digest()


# Ed25519 as RFC 8032 has it, for checking alone.
P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def recover_x(y, sign):
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if square == 0:
        return None if sign else 0
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P:
        return None
    return P - x if x & 1 != sign else x


def add(a, b):
    (x1, y1, z1, t1), (x2, y2, z2, t2) = a, b
    e, f = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    g, h = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    i, j, k, m = f - e, h - g, h + g, f + e
    return i * j % P, k * m % P, j * k % P, i * m % P


def times(number, point):
    result = (0, 1, 1, 0)
    while number:
        if number & 1:
            result = add(result, point)
        point = add(point, point)
        number >>= 1
    return result


def point_of(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    x = recover_x(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


BASE = point_of((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def is_signed(key, message, signature):
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r = point_of(key), point_of(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    left, right = times(s, BASE), add(r, times(h, a))
    return not ((left[0] * right[2] - right[0] * left[2]) % P or (left[1] * right[2] - right[1] * left[2]) % P)


def key_of_pem(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or "PUBLIC KEY" not in lines[0]:
        raise ValueError("it is not a public key in PEM; `openssl pkey -in audit.pem -pubout` writes one")
    der = base64.b64decode("".join(lines[1:-1]))
    if len(der) != 44 or der[:12] != bytes.fromhex("302a300506032b6570032100"):
        raise ValueError("it is not an Ed25519 key")
    return der[12:]


def raw_member(line, name):
    """The bytes of a member of a JSON object as they are written: what was signed."""
    decoder, at = json.JSONDecoder(), line.index("{") + 1
    while True:
        while line[at] in " ,\t":
            at += 1
        found, at = decoder.raw_decode(line, at)
        at = line.index(":", at) + 1
        while line[at] in " \t":
            at += 1
        begin = at
        _, at = decoder.raw_decode(line, at)
        if found == name:
            return line[begin:at].encode()


class Bundle:
    def __init__(self, archive):
        self.archive, self.findings = archive, []
        self.runs, self.entries, self.proofs = {}, {}, {}
        self.range, self.since = None, None
        self.counts = {"runs": 0, "links": 0, "events": 0, "erased": 0, "receipts": 0, "heads": 0, "entries": 0}

    def finding(self, where, what):
        self.findings.append("%s: %s" % (where, what))

    def lines(self, name):
        if name not in self.archive.namelist():
            return
        with self.archive.open(name) as member:
            for no, line in enumerate(io.TextIOWrapper(member, "utf-8", newline="\n"), 1):
                try:
                    yield line, json.loads(line)
                except ValueError:
                    self.finding("%s, line %d" % (name, no), "it is not JSON")

    def check_members(self):
        try:
            manifest = json.loads(self.archive.read("manifest.json"))
        except (KeyError, ValueError):
            return self.finding("manifest.json", "it is missing or no JSON")
        said = manifest.get("sha256", {})
        self.range = manifest.get("range")
        if self.range:
            self.since = self.range.get("from")
        for name in sorted(set(said) | set(self.archive.namelist()) - {"manifest.json"}):
            if name not in said or name not in self.archive.namelist():
                self.finding(name, "it is in the archive or in the manifest, and not in both")
            elif hashlib.sha256(self.archive.read(name)).hexdigest() != said[name]:
                self.finding(name, "it is not the file that the manifest names")
        for one in manifest.get("findings", []):
            self.finding(one.get("run"), "%s (found when the bundle was made)" % one.get("what"))

    def check_links(self):
        for _, link in self.lines("links.jsonl"):
            run = link["run"]
            known = self.runs.get(run)
            if known is None:
                known = self.runs[run] = {
                    "previous": bytes(32), "next": 1, "events": {}, "ends": {}, "broken": False, "erased": False,
                    "values": set(), "definitions": set(), "tenant": None,
                }
                self.counts["runs"] += 1
            if not known["broken"]:
                try:
                    self.check_link(run, known, link)
                except (KeyError, ValueError, TypeError, AttributeError) as error:
                    known["broken"] = True
                    self.finding(run, "the link at event %s cannot be read: %s" % (link.get("first"), error))

    def check_link(self, run, known, link):
        first, count = link["first"], link["count"]
        if first != known["next"]:
            known["broken"] = True
            return self.finding(run, "event %d is missing: the next link begins at %d" % (known["next"], first))
        if "payload" in link:
            payload = link["payload"].encode()
            commitment = of_parts("standfast.payload.1", bytes.fromhex(link["salt"]), payload)
        else:
            payload, commitment = None, unb32(link["commitment"], 32)
        hashed = of_parts(
            "standfast.link.1", known["previous"], unb32(run.removeprefix("run_"), 16), first.to_bytes(8, "big"),
            count.to_bytes(4, "big"), link["at"].to_bytes(8, "big", signed=True), link["actor"].encode(), commitment)
        if b32(hashed) != link["hash"]:
            known["broken"] = True
            return self.finding(run, "the hash of the link at event %d does not fit its contents" % first)
        if payload is None:
            known["erased"] = True
        else:
            events = json.loads(payload)
            if len(events) != count:
                known["broken"] = True
                return self.finding(run, "the link at event %d has another number of events than it says" % first)
            for place, event in enumerate(events):
                (kind, contents), = event.items()
                known["events"][first + place] = kind, contents, link["actor"], link["at"]
                if kind == "run.started":
                    known["tenant"] = contents.get("tenant")
                if kind in ("run.started", "run.repinned") and contents.get("definition"):
                    known["definitions"].add(contents["definition"])
                self.find_values(contents, known["values"])
            self.counts["events"] += count
        self.counts["links"] += 1
        known["previous"], known["next"] = hashed, first + count
        known["ends"][first + count - 1] = link["hash"]

    def find_values(self, value, found):
        if isinstance(value, dict):
            blob = value.get("blob")
            if len(value) == 1 and isinstance(blob, dict) and "digest" in blob and "form" in blob:
                found.add(blob["digest"])
            # Contents that a person or a model wrote are values of their own.
            for name, one in value.items():
                if name != "json":
                    self.find_values(one, found)
        elif isinstance(value, list):
            for one in value:
                self.find_values(one, found)

    def check_values(self):
        there = set()
        for _, value in self.lines("values.jsonl"):
            if b32(hashlib.sha256(value["text"].encode()).digest()) != value["digest"]:
                self.finding(value["run"], "a large value is not the one that the chain names")
            there.add((value["run"], value["digest"]))
        for run, known in self.runs.items():
            if not known["erased"]:
                for digest in known["values"]:
                    if (run, digest) not in there:
                        self.finding(run, "the large value %s is missing" % digest)
        definitions = set()
        for _, one in self.lines("definitions.jsonl"):
            if b32(hashlib.sha256(one["text"].encode()).digest()) != one["digest"]:
                self.finding("definition " + one["digest"], "it was changed: its bytes do not have this digest")
            definitions.add(one["digest"])
        for run, known in self.runs.items():
            for digest in known["definitions"] - definitions:
                self.finding(run, "the definition %s that it is pinned to is missing" % digest)

    def is_before(self, head):
        return self.since is not None and head["at"] <= self.since

    def ends_before(self):
        """Where the audit of each tenant goes on from: the last head before the time says so, which is verified with the others."""
        last = {}
        for _, head in self.lines("heads.jsonl"):
            if self.is_before(head["head"]):
                last = head["head"]["entries"]
        for tenant, (no, end) in last.items():
            self.entries[tenant, no] = end
        return {tenant: (no, unb32(end, 32)) for tenant, (no, end) in last.items()}

    def check_entries(self):
        ends = self.ends_before()
        for _, entry in self.lines("entries.jsonl"):
            tenant, no = entry["tenant"], entry["no"]
            before, previous = ends.get(tenant, (0, bytes(32)))
            hashed = of_parts(
                "standfast.audit.1", previous, tenant.encode(), no.to_bytes(8, "big"),
                entry["at"].to_bytes(8, "big", signed=True), entry["entry"].encode())
            if no != before + 1:
                self.finding("audit of tenant " + tenant, "entry %d is missing: the next one is %d" % (before + 1, no))
            elif b32(hashed) != entry["hash"]:
                self.finding("audit of tenant " + tenant, "the hash of entry %d does not fit it or the one before it" % no)
            ends[tenant] = no, unb32(entry["hash"], 32)
            self.entries[tenant, no] = entry["hash"]
            self.counts["entries"] += 1
            said = json.loads(entry["entry"])
            for proof in said.get("erased", []) if isinstance(said, dict) else []:
                if isinstance(proof, dict):
                    self.proofs[proof.get("run")] = proof
        for run, known in self.runs.items():
            if not known["erased"]:
                continue
            self.counts["erased"] += 1
            proof = self.proofs.get(run)
            if proof is None:
                self.finding(run, "its contents are erased, and the audit has no proof of that")
            elif known["ends"].get(proof.get("seq")) != proof.get("hash"):
                self.finding(run, "the proof of its deletion is of another chain")

    def check_receipts(self, shows):
        there = set()
        for _, line in self.lines("receipts.jsonl"):
            run, receipt = line["run"], line["receipt"]
            there.add((run, line["hold"]))
            self.counts["receipts"] += 1
            events = self.runs.get(run, {}).get("events", {})
            where = "receipt of %s of %s" % (line["hold"], run)
            missing = [seq for seq in receipt["events"] if seq not in events]
            if missing:
                self.finding(where, "event %s is not in the chain" % missing[0])
                continue
            for shown in receipt["shown"]:
                # The call stands in the event that proposed it, and in those that edited it.
                before = (json.dumps(contents) for seq, (_, contents, _, _) in events.items() if seq <= shown["seq"])
                if shown.get("digest") and not any('"%s"' % shown["digest"] in text for text in before):
                    self.finding(where, "what it says was shown at event %d is not in the chain" % shown["seq"])
            decision = receipt.get("decision")
            if decision:
                kind, contents, actor, at = events[decision["seq"]]
                is_other = kind == "hold.resolved" and contents.get("hold") != line["hold"]
                if is_other or (actor, at) != (decision["by"], decision["at"]):
                    self.finding(where, "the chain has another decision at event %d" % decision["seq"])
                elif shows:
                    shown = receipt["shown"][-1] if receipt["shown"] else {}
                    print("%s  %-9s %s by %s" % (run, decision["word"], printable(shown.get("tool", "the run")), printable(actor)))
        for run, known in self.runs.items():
            if known["erased"] or known["broken"]:
                continue
            for kind, contents, _, _ in known["events"].values():
                if kind == "hold.opened":
                    hold = contents.get("hold")
                    if (run, hold) not in there:
                        self.finding(run, "there is no receipt of its hold %s" % hold)

    def check_heads(self, trusted):
        signed, entries, last, keys, newest = {}, {}, None, set(), None
        needed = set()
        for line, head in self.lines("heads.jsonl"):
            no = self.counts["heads"] + 1
            body, key = raw_member(line, "head"), base64.b64decode(head["key"])
            if trusted and key not in trusted:
                return self.finding("head %d" % no, "it is signed with another key")
            if not is_signed(key, b"standfast.head.1\0" + body, base64.b64decode(head["signature"])):
                return self.finding("head %d" % no, "its signature is not right: it was changed")
            said = head["head"]
            if said["no"] != no or said.get("previous") != last:
                return self.finding("head %d" % no, "it does not follow the head before it")
            for run, seq, end in said["changed"]:
                signed[run] = seq, end
                if not self.is_before(said):
                    needed.add(run)
            entries.update(said["entries"])
            last, newest = b32(hashlib.sha256(body).digest()), said["at"]
            keys.add(b32(hashlib.sha256(key).digest())[:16])
            self.counts["heads"] = no
        for run, (seq, end) in sorted(signed.items()):
            known = self.runs.get(run)
            if known is None and run not in needed:
                continue  # It did not change in the time.
            if known is None:
                self.finding(run, "it is gone: its events up to %d were signed" % seq)
            elif known["next"] <= seq:
                self.finding(run, "it was rolled back: it ends with event %d, but event %d was signed" % (known["next"] - 1, seq))
            elif known["ends"].get(seq) != end:
                self.finding(run, "its chain was rewritten: its events up to %d are not those that were signed" % seq)
        for tenant, (no, end) in sorted(entries.items()):
            if self.entries.get((tenant, no)) != end:
                self.finding("audit of tenant " + tenant, "entry %d is not the one that was signed" % no)
        return keys, newest


def printable(text):
    return "".join(c if c.isprintable() else "\\u{%04x}" % ord(c) for c in str(text))


def time_of(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).isoformat()


def span_of(limits):
    since, until = limits.get("from"), limits.get("to")
    parts = ["from %s on" % time_of(since)] if since is not None else []
    parts += ["before %s" % time_of(until)] if until is not None else []
    return " and ".join(parts)


def main():
    parser = argparse.ArgumentParser(description="Verifies an audit bundle of Standfast.")
    own = os.path.abspath(sys.argv[0])
    is_inside = zipfile.is_zipfile(own)
    if not is_inside:
        parser.add_argument("bundle")
    parser.add_argument("--key", action="append", default=[], help="a file with a public key in PEM; heads of other keys do not count")
    parser.add_argument("--show", action="store_true", help="print who decided what")
    asked = parser.parse_args()
    try:
        trusted = set()
        for path in asked.key:
            with open(path, encoding="ascii") as pem:
                trusted.add(key_of_pem(pem.read()))
        with zipfile.ZipFile(own if is_inside else asked.bundle) as archive:
            bundle = Bundle(archive)
            bundle.check_members()
            bundle.check_links()
            bundle.check_values()
            bundle.check_entries()
            bundle.check_receipts(asked.show)
            heads = bundle.check_heads(trusted)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        print("not checked: %s: %s" % (type(error).__name__, printable(error)), file=sys.stderr)
        return 2
    if trusted and not bundle.counts["heads"]:
        bundle.finding("heads.jsonl", "there is no signed head, and a key was given")
    for text in bundle.findings:
        print(printable(text))
    if bundle.range:
        print("only what changed %s" % span_of(bundle.range))
    print(", ".join("%d %s" % (count, what) for what, count in bundle.counts.items()))
    if heads and bundle.counts["heads"]:
        newest = time_of(heads[1])
        how = "" if trusted else " (compare the name of the key, or pass --key)"
        print("signed heads: the newest of %s, by key %s%s" % (newest, ", ".join(sorted(heads[0])), how))
    else:
        print("no signed heads: this proves what is in the bundle, not that nothing is missing")
    print("everything in this bundle verifies" if not bundle.findings else "%d findings" % len(bundle.findings))
    return 1 if bundle.findings else 0


if __name__ == "__main__":
    sys.exit(main())
