// A worker for a Standfast inbox: claims tasks, works on them, asks people, reports what came of it.
//
//     npx tsc worker.ts --target es2022 --module es2022 --moduleResolution bundler
//     node worker.js support biller            # until ctrl-c
//     node worker.js support biller --limit 5  # a batch: five tasks, or until there are no more
//
// `handle` is the part to replace. It returns the result; it throws `Ask` to ask a person and is called again with the
// answer once there is one; it throws anything else to fail, and what may pass is tried again later.

export interface Task {
  id: string;
  inboxId: string;
  type: string;
  status: string;
  payload: any;
  attempts: number;
  claimId?: string;
  resumePayload?: any;
}

export class Ask extends Error {
  constructor(
    readonly reason: string,
    readonly payload?: object,
    readonly resumeSchema?: object,
  ) {
    super(reason);
  }
}

export async function handle(task: Task): Promise<unknown> {
  const order = task.payload as { cents: number };
  if (order.cents <= 10_000) return { refunded: order.cents };
  if (task.resumePayload === undefined) {
    const question = `Refund ${(order.cents / 100).toFixed(2)}?`;
    throw new Ask(`${order.cents} cents are a lot`, { question, options: ["yes", "no"] });
  }
  return { refunded: task.resumePayload === "yes" ? order.cents : 0 };
}

export class Inbox {
  constructor(
    private readonly server: string,
    private readonly inbox: string,
    private readonly key?: string,
  ) {}

  private async post(path: string, body: object): Promise<any> {
    const headers: Record<string, string> = { "content-type": "application/json" };
    if (this.key) headers["authorization"] = `Bearer ${this.key}`;
    const url = `${this.server}/api/inboxes/${encodeURIComponent(this.inbox)}${path}`;
    const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
    const said = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(said.detail), { status: answer.status });
    return said;
  }

  async claim(agentId: string, leaseMs: number, waitMs: number): Promise<Task | null> {
    return (await this.post("/claim", { agentId, leaseMs, waitMs })).task;
  }

  report(task: Task, verb: string, said: object = {}): Promise<Task> {
    return this.post(`/tasks/${task.id}/${verb}`, { claimId: task.claimId, ...said });
  }
}

async function workOn(inbox: Inbox, task: Task, leaseMs: number): Promise<void> {
  const beat = setInterval(() => void inbox.report(task, "heartbeat").catch(() => {}), leaseMs / 3);
  try {
    const result = await handle(task);
    await inbox.report(task, "complete", { result });
    console.log("onTaskComplete", task.id);
  } catch (error) {
    if (error instanceof Ask) {
      const { reason, payload, resumeSchema } = error;
      await inbox.report(task, "suspend", { reason, payload, resumeSchema });
      console.log("onTaskSuspended", task.id, reason);
    } else if ((error as { status?: number }).status === 409) {
      // The claim ran out, or somebody cancelled the task. Whoever has it now goes on.
      console.log("onError", task.id, (error as Error).message);
    } else {
      await inbox.report(task, "fail", { error: { message: (error as Error).message } });
      console.log("onTaskError", task.id, (error as Error).message);
    }
  } finally {
    clearInterval(beat);
  }
}

const [name, agent, flag, count] = process.argv.slice(2);
const limit = flag === "--limit" ? Number(count) : Infinity;
const inbox = new Inbox(process.env.STANDFAST_SERVER ?? "http://127.0.0.1:8080", name, process.env.STANDFAST_KEY);
const leaseMs = 60_000;
let stopping = false;
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (stopping = true));
for (let done = 0; done < limit && !stopping; done++) {
  // The server keeps the request until there is something: nothing is asked over and over.
  const task = await inbox.claim(agent, leaseMs, limit === Infinity ? 20_000 : 0);
  if (task) await workOn(inbox, task, leaseMs);
  else if (limit !== Infinity) break;
}
