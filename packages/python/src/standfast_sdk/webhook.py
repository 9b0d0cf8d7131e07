"""Webhooks: whether a delivery is from the server. The signature is that of Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from .errors import StandfastError


class NotGenuine(StandfastError):
    """Do not believe this delivery."""


def verify_webhook(secret: str, headers: Mapping[str, str], body: bytes, *, tolerance: float = 300, now: float | None = None) -> dict[str, Any]:
    """The event of a delivery, if it was signed with the secret of the subscription and is not old. `body` is what arrived, byte for byte."""
    given = {name.lower(): value for name, value in headers.items()}
    try:
        delivery, sent_at, signatures = given["webhook-id"], given["webhook-timestamp"], given["webhook-signature"]
        age = abs((time.time() if now is None else now) - int(sent_at))
    except KeyError as missing:
        raise NotGenuine(f"the header {missing.args[0]} is missing") from None
    except ValueError:
        raise NotGenuine("webhook-timestamp is not a number") from None
    if age > tolerance:
        raise NotGenuine("the delivery is too old, or from the future: it may be replayed")
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise NotGenuine("the secret is not one of a subscription")
    signed = f"{delivery}.{sent_at}.".encode() + body
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
    versions = [one.removeprefix("v1,").encode() for one in signatures.split() if one.startswith("v1,")]
    if not any([hmac.compare_digest(one, wanted) for one in versions]):
        raise NotGenuine("no signature is that of this body and secret")
    return dict(json.loads(body))
