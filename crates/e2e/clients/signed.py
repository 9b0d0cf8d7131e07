"""The official Python client's verifier reads the cards of an agent and checks their signatures.

Called as `signed.py BASE KEY`, with the public key as base64url and an API key in the environment; ends with `ok`.
"""

import asyncio
import os
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt.api_jwk import PyJWK

BASE, KEY = sys.argv[1:3]


def key_of(kid, jku):
    assert (kid, jku) == ("first", "https://example.com/keys.json"), (kid, jku)
    return PyJWK({"kty": "OKP", "crv": "Ed25519", "x": KEY})


async def main():
    check = create_signature_verifier(key_of, ["EdDSA"])
    headers = {"Authorization": os.environ["AUTHORIZATION"]}
    async with httpx.AsyncClient(timeout=60, trust_env=False, headers=headers) as http:
        card = await A2ACardResolver(http, f"{BASE}/v1/agents/ops").get_agent_card()
        check(card)
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=["JSONRPC"])
        client = ClientFactory(config).create(card)
        extended = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
        assert len(extended.skills) > len(card.skills), extended
        check(extended)
        card.description = "somebody else"
        try:
            check(card)
        except InvalidSignaturesError:
            pass
        else:
            raise AssertionError("a changed card was taken")
    print("ok", flush=True)


asyncio.run(main())
