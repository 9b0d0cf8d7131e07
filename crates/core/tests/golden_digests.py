#!/usr/bin/env python3
"""Computes the golden digests in `golden` from the written formula, with nothing but the standard library.

    golden_digests.py          checks digests.json and links.json, exits with 1 where a value differs
    golden_digests.py --write  writes the values anew (only before a first release: afterwards they never change)
"""

import hashlib
import json
import pathlib
import re
import sys

LABEL = "standfast"
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # base 32 as ids are written


def of_parts(label, *parts):
    """SHA-256 over the label and every part, each behind its length as eight bytes."""
    hasher = hashlib.sha256()
    for part in (f"{LABEL}.{label}".encode(), *parts):
        hasher.update(len(part).to_bytes(8, "big") + part)
    return hasher.digest()


def base32(data):
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    return "".join(ALPHABET[int(bits[at : at + 5], 2)] for at in range(0, len(bits), 5))


def run_id(tenant, at, random):
    """A run's id: time, version 8, random bits, tag of the tenant, random bits."""
    tag = of_parts("tenant.1", tenant.encode())[:4]
    return at.to_bytes(6, "big") + bytes([0x80, random[0], 0x80 | random[1] & 0x3F]) + tag + random[2:]


def call(vector):
    schema = of_parts("tool.1", vector["description"].encode(), vector["schema"].encode())
    digest = of_parts("call.1", vector["tool"].encode(), vector["arguments"].encode(), schema)
    return {"schema_digest": base32(schema), "digest": base32(digest)}


def links(vectors):
    run = run_id("default", 1_762_000_000_000, bytes([1, 2, 3, 4, 5]))
    previous = bytes(32)
    for vector in vectors:
        payload = vector["payload"].encode()
        commitment = of_parts("payload.1", bytes.fromhex(vector["salt"]), payload)
        header = [
            run,
            vector["first"].to_bytes(8, "big"),
            len(json.loads(payload)).to_bytes(COUNT_BYTES, "big"),
            vector["at"].to_bytes(8, "big", signed=True),
            vector["actor"].encode(),
        ]
        values = {"commitment": base32(commitment), "previous": base32(previous)}
        previous = of_parts("link.1", previous, *header, commitment)
        yield {**values, "hash": base32(previous)}


COUNT_BYTES = 4


def main():
    folder, differ = pathlib.Path(__file__).parent / "golden", False
    for name, computed in (("digests.json", lambda all: map(call, all)), ("links.json", links)):
        file = folder / name
        text = file.read_text()
        vectors = json.loads(text)
        for vector, values in zip(vectors, computed(vectors)):
            for key, value in values.items():
                if vector[key] != value:
                    differ = True
                    print(f"{name}: {vector['why']}: {key} is {vector[key]}, computed {value}")
                    vector[key] = value
        if "--write" in sys.argv:
            lines = ",\n".join(json.dumps(vector, ensure_ascii=ESCAPE) for vector in vectors)
            file.write_text(f"[\n{lines}\n]\n")
    return 1 if differ and "--write" not in sys.argv else 0


ESCAPE = True

if __name__ == "__main__":
    sys.exit(main())
