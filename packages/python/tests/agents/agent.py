"""What the agents share: the tool, which leaves a line in a file for each time that it ran, and can die in the middle."""

import os
import signal
import sys
from pathlib import Path

MODEL_URL = os.environ["MODEL_URL"]
EFFECTS = Path(sys.argv[2]) / "effects"
#: What the user says.
ASK = os.environ.get("ASK", "Refund A-7")


def send_refund(order: str, amount: int) -> str:
    """Sends a refund."""
    with EFFECTS.open("a") as effects:
        effects.write(f"{order} {amount}\n")
    if os.environ.get("DIE") == "after the effect":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"refunded {amount} for {order}"
