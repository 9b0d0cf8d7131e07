"""A real mail server for the tests: takes mails into files, and refuses as it is told.

Arguments: MODE (plain, starttls, implicit), FOLDER for the mails, with cert.pem and key.pem above it. A file `refuse` in the folder
has how many mails are answered with 451, as greylisting does, or `552` for all. Prints its port once it listens.
"""

import asyncio
import ssl
import sys
from pathlib import Path

from aiosmtpd.smtp import SMTP, AuthResult

MODE, FOLDER = sys.argv[1], Path(sys.argv[2])


class Handler:
    """Keeps what it takes, one file for each mail."""

    def __init__(self):
        self.taken = 0

    async def handle_DATA(self, server, session, envelope):
        refuse = FOLDER / "refuse"
        said = refuse.read_text() if refuse.exists() else "0"
        if said == "552":
            return "552 mailbox full"
        if int(said) > 0:
            refuse.write_text(str(int(said) - 1))
            return "451 greylisted, try again later"
        self.taken += 1
        # Its envelope stands before it, and the file appears whole.
        head = f"X-From: {envelope.mail_from}\r\nX-To: {','.join(envelope.rcpt_tos)}\r\nX-TLS: {session.ssl is not None or MODE == 'implicit'}\r\n"
        part = FOLDER / f"{self.taken}.part"
        part.write_bytes(head.encode() + envelope.content)
        part.rename(FOLDER / f"{self.taken}.eml")
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    """One user with one password."""
    known = (data.login, data.password) == (b"standfast", b"canary-password")
    # Without the last word nobody answers a login that is refused.
    return AuthResult(success=known, handled=False)


async def main():
    """Listens until it is killed."""
    context = None
    if MODE != "plain":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(FOLDER.parent / "cert.pem", FOLDER.parent / "key.pem")
    handler = Handler()

    def session():
        if MODE == "plain":
            return SMTP(handler)
        tls = {"tls_context": context, "require_starttls": True} if MODE == "starttls" else {}
        required = {"authenticator": authenticate, "auth_required": True}
        # What came over TLS from its first byte is protected, which this class does not notice by itself.
        return SMTP(handler, auth_require_tls=MODE == "starttls", **required, **tls)

    implicit = context if MODE == "implicit" else None
    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0, ssl=implicit)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
