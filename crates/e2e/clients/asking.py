"""How the official Python client asks: one made from an agent's card, and what it gets for a message.

For programs that are called as `NAME.py BASE BINDING`.
"""

import sys

import grpc
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb

BASE, BINDING = sys.argv[1:3]


async def client_of(agent, http, streaming):
    card = await A2ACardResolver(http, f"{BASE}/v1/agents/{agent}").get_agent_card()
    config = ClientConfig(
        streaming=streaming,
        httpx_client=http,
        grpc_channel_factory=grpc.aio.insecure_channel,
        supported_protocol_bindings=[BINDING],
    )
    return ClientFactory(config).create(card)


async def responses(client, said, **configuration):
    request = pb.SendMessageRequest(message=said, configuration=pb.SendMessageConfiguration(**configuration))
    return [response async for response in client.send_message(request)]


async def task_after(client, said, **configuration):
    (response,) = await responses(client, said, **configuration)
    assert response.WhichOneof("payload") == "task", response
    return response.task
