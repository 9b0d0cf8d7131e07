"""An MCP server that nobody uses without a login, and the authorization server for it: both by the official Python SDK.

Arguments: its folder and its port. Whoever is sent to the login page is logged in at once. In its folder: `issued.txt` has
every token that it gave, `resources.txt` what they are for, `paid.txt` what was done with which scopes. Tokens that are
listed in `ended.txt` are not taken any more.

With CLIENT, an id, a secret and an address to come back to, that client is registered and nobody else registers. With
DOCUMENTS nobody registers either: clients are described by documents, which are all read at that address, as if the names
in their ids led there.
"""

import os
import secrets
import sys
import time
from pathlib import Path

import httpx
from mcp.server.auth import routes
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.fastmcp import FastMCP
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

folder, port = Path(sys.argv[1]), int(sys.argv[2])
base = f"http://127.0.0.1:{port}"
client_of_hand, documents = os.environ.get("CLIENT", "").split(), os.environ.get("DOCUMENTS")


def write(file: str, line: str) -> None:
    with open(folder / file, "a") as out:
        out.write(line + "\n")


def is_ended(token: str) -> bool:
    ended = folder / "ended.txt"
    return ended.exists() and token in ended.read_text().split()


class Provider(OAuthAuthorizationServerProvider):
    def __init__(self):
        self.clients, self.codes, self.access, self.refresh = {}, {}, {}, {}
        if client_of_hand:
            client_id, secret, redirect_uri = client_of_hand
            self.clients[client_id] = OAuthClientInformationFull(
                client_id=client_id, client_secret=secret, redirect_uris=[redirect_uri], scope="pay",
                token_endpoint_auth_method="client_secret_basic")

    async def get_client(self, client_id):
        if documents and client_id.startswith("https://"):
            async with httpx.AsyncClient(trust_env=False) as http:
                document = (await http.get(f"{documents}/{client_id.split('/', 3)[3]}")).json()
            assert document["client_id"] == client_id, document
            write("documents.txt", client_id)
            return OAuthClientInformationFull.model_validate({**document, "scope": "pay"})
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info
        write("registered.txt", " ".join(str(uri) for uri in client_info.redirect_uris))

    async def authorize(self, client, params):
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code, scopes=params.scopes or [], expires_at=time.time() + 300, client_id=client.client_id,
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource)
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    def issue(self, client_id, scopes, resource):
        access, refresh = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.access[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, expires_at=int(time.time()) + 3600, resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        write("issued.txt", access)
        write("issued.txt", refresh)
        write("resources.txt", str(resource))
        return OAuthToken(access_token=access, token_type="Bearer", expires_in=3600, refresh_token=refresh,
                          scope=" ".join(scopes))

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return None if is_ended(refresh_token) else self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh[refresh_token.token]
        return self.issue(client.client_id, scopes, f"{base}/mcp")

    async def load_access_token(self, token):
        return None if is_ended(token) else self.access.get(token)

    async def revoke_token(self, token):
        pass


def with_documents(*args, build=routes.build_metadata, **named):
    metadata = build(*args, **named)
    metadata.client_id_metadata_document_supported = bool(documents)
    return metadata


routes.build_metadata = with_documents
server = FastMCP(
    "protected", host="127.0.0.1", port=port, auth_server_provider=Provider(),
    auth=AuthSettings(
        issuer_url=base, resource_server_url=f"{base}/mcp", required_scopes=["pay"], validate_token_resource=True,
        client_registration_options=ClientRegistrationOptions(
            enabled=not client_of_hand and not documents, valid_scopes=["pay"], default_scopes=["pay"])))


@server.tool(description="Pays somebody.")
def pay(to: str) -> str:
    write("paid.txt", f"{to} {' '.join(get_access_token().scopes)}")
    return f"paid {to}"


server.run("streamable-http")
