"""Durable approvals for your own agent.

`Client` and `AsyncClient` speak to a Standfast server; `guarded` wraps a tool; `verify_webhook` checks what the server sends; `A2AClient`
is the approval loop of A2A. Adapters for frameworks are modules of their own, so that nothing is imported that you do not use.
"""

from .a2a import A2AClient
from .client import AsyncClient, Client
from .errors import Denied, Failed, Held, NotAllowed, OutcomeUnknown, Problem, StandfastError
from .gate import Gate, Started
from .guard import guarded
from .webhook import NotGenuine, verify_webhook

__all__ = [
    "A2AClient", "AsyncClient", "Client", "Denied", "Failed", "Gate", "Held", "NotAllowed", "NotGenuine",
    "OutcomeUnknown", "Problem", "StandfastError", "Started", "guarded", "verify_webhook",
]
