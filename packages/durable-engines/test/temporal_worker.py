"""A worker of Temporal: its workflow waits for a signal, which the callback of a gate sends. Told the server's address and that of its HTTP API."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import refunds


@activity.defn
def ask(workflow_id: str, http: str) -> str:
    url = f"{http}/api/v1/namespaces/default/workflows/{workflow_id}/signal/decided"
    return refunds.open_gate(workflow_id, {"url": url, "template": {"input": ["{{body}}"]}})


@activity.defn
def pay(gate: dict[str, Any]) -> str:
    return refunds.pay(gate)


@workflow.defn(name="refund")
class Refund:
    def __init__(self) -> None:
        self.gate: dict[str, Any] | None = None

    @workflow.signal
    def decided(self, gate: dict[str, Any]) -> None:
        self.gate = gate

    @workflow.run
    async def run(self, http: str) -> str:
        patience = timedelta(seconds=60)
        await workflow.execute_activity(ask, args=[workflow.info().workflow_id, http], start_to_close_timeout=patience)
        await workflow.wait_condition(lambda: self.gate is not None)
        if not self.gate["decision"]["allowed"]:
            return f"not paid: {self.gate['decision']['reason']}"
        return await workflow.execute_activity(pay, self.gate, start_to_close_timeout=patience)


async def main() -> None:
    address = sys.argv[1]
    client = await Client.connect(address)
    with ThreadPoolExecutor(4) as threads:
        await Worker(
            client, task_queue="refunds", workflows=[Refund], activities=[ask, pay], activity_executor=threads
        ).run()


if __name__ == "__main__":
    asyncio.run(main())
