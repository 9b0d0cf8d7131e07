"""A crew of CrewAI: `start|resume|impatient FOLDER`. Prints `held HOLD`, or `said WORDS` and `recorded CODE` of failures."""

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

command, folder = sys.argv[1], Path(sys.argv[2])
os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_STORAGE_DIR": str(folder / "storage")}

from crewai import LLM, Agent, Crew, Task  # noqa: E402
from crewai.tools import tool  # noqa: E402

from agent import ASK, MODEL_URL, send_refund  # noqa: E402
from standfast_sdk import Client  # noqa: E402
from standfast_sdk.crewai import Approvals, Paused  # noqa: E402

approvals = Approvals(Client(agent="billing"), session=f"case-{folder.name}")
llm = LLM(model="openai/m", base_url=MODEL_URL, api_key="none")
billing = Agent(role="billing", goal="refund", backstory="none", llm=llm, tools=approvals.guard([tool("send_refund")(send_refund)]))
# What is kept is what the crew is to do, and nothing of what it did.
kept = folder / "task"
if command == "start":
    kept.write_text(ASK)
task = Task(description=kept.read_text(), expected_output="what the tool said", agent=billing)
crew = Crew(agents=[billing], tasks=[task])
try:
    # Kicking off again approves nothing. What CrewAI prints is not what the agent says.
    with redirect_stdout(sys.stderr):
        result = approvals.run(crew.kickoff, timeout=10 if command == "resume" else 0)
except Paused:
    for gate in approvals.held.values():
        print("held", gate.hold, flush=True)
else:
    print("said", result.raw, flush=True)
    print("recorded", *(one.failure.code for one in result.tasks_output[0].tool_failures), flush=True)
