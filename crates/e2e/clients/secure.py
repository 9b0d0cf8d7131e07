"""The official Python client over gRPC to a server that ends TLS itself: card, key and message are encrypted all the way.

Called as `secure.py BASE GRPC`, with the authority's file and an API key in the environment; ends with `ok`.
"""

import asyncio
import os
import pathlib
import ssl

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from asking import BASE, BINDING, task_after

AUTHORITY, KEY = os.environ["AUTHORITY"], os.environ["KEY"]


def channel(address):
    trusted = grpc.ssl_channel_credentials(pathlib.Path(AUTHORITY).read_bytes())
    return grpc.aio.secure_channel(address, grpc.composite_channel_credentials(trusted, grpc.access_token_call_credentials(KEY)))


async def main():
    trusted = ssl.create_default_context(cafile=AUTHORITY)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(timeout=60, trust_env=False, headers=headers, verify=trusted) as http:
        card = await A2ACardResolver(http, f"{BASE}/v1/agents/ops").get_agent_card()
        for interface in card.supported_interfaces:
            assert interface.protocol_binding == "GRPC" or interface.url.startswith(BASE), interface
        config = ClientConfig(
            streaming=False, httpx_client=http, grpc_channel_factory=channel, supported_protocol_bindings=[BINDING]
        )
        client = ClientFactory(config).create(card)
        said = pb.Message(message_id="m1", role=pb.ROLE_USER, parts=[pb.Part(text="hello")])
        task = await task_after(client, said)
        assert task.status.state == pb.TASK_STATE_COMPLETED, task
        assert await client.get_task(pb.GetTaskRequest(id=task.id)) == task
        await client.close()
    print("ok", flush=True)


asyncio.run(main())
