"""Signs and judges requests with Slack's own package for Python.

Reads a JSON list of {secret, at, body, signature} from its input. Prints one of {signature, is_taken}: the signature that the package makes
of the time and the body, and whether it takes the one that is given, at the time NOW of its argument.
"""

import json
import sys

from slack_sdk.signature import Clock, SignatureVerifier


class Now(Clock):
    def now(self):
        return float(sys.argv[1])


def judged(one):
    verifier = SignatureVerifier(one["secret"], Now())
    try:
        is_taken = verifier.is_valid(one["body"], one["at"], one.get("signature", ""))
    except ValueError:
        is_taken = False
    return {
        "signature": verifier.generate_signature(timestamp=one["at"], body=one["body"]),
        "is_taken": is_taken,
    }


print(json.dumps([judged(one) for one in json.load(sys.stdin)]))
