// Talks to an agent over A2A and asks you whatever it asks, until its task has ended.
//
//     npm install && npx tsc
//     node loop.js http://127.0.0.1:8080/v1/agents/ops "Clean up the disk"
//
// Where the server wants keys, STANDFAST_KEY has yours.

import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { type Part, Role, type Task, TaskState } from '@a2a-js/sdk';
import { type Client, ClientFactory, JsonRpcTransportFactory } from '@a2a-js/sdk/client';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(prompt: string): Promise<string> {
  process.stdout.write(prompt);
  const { value, done } = await lines.next();
  if (done) throw new Error('nobody answers');
  return value.trim();
}

const key = process.env.STANDFAST_KEY;
const fetchImpl: typeof fetch = (input, init) => {
  const headers = new Headers(init?.headers);
  if (key) headers.set('authorization', `Bearer ${key}`);
  return fetch(input, { ...init, headers });
};

const part = ($case: 'text' | 'data', value: any): Part =>
  ({ content: { $case, value }, metadata: undefined, filename: '', mediaType: '' });

/** Sends a message, to the task if there is one, and waits until input is required or it has ended. */
async function send(client: Client, parts: Part[], task?: Task): Promise<Task> {
  const message = {
    messageId: randomUUID(), role: Role.ROLE_USER, parts, taskId: task?.id ?? '', contextId: task?.contextId ?? '',
    metadata: undefined, extensions: [], referenceTaskIds: [],
  };
  const get = (id: string) => client.getTask({ tenant: '', id, historyLength: undefined });
  let now: Task;
  try {
    now = await client.sendMessage({ tenant: '', message, configuration: undefined, metadata: undefined }) as Task;
  } catch (refused) {
    // Somebody else was faster, the time is up, or the arguments are wrong: the task says what is left to decide.
    if (!task) throw refused;
    console.log(String(refused));
    now = await get(task.id);
  }
  while ([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING].includes(now.status!.state)) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    now = await get(now.id);
  }
  return now;
}

/** What you decide about one question, as the data part that says so. It names the question. */
async function decide(asked: any): Promise<Part> {
  const said = await ask(`${(asked.options ?? []).join('/')}> `);
  const decision = asked.interaction_type === 'input' ? { answer: said }
    : said === 'modify' ? { decision: said, modified_input: await ask('arguments, as JSON> ') }
      : { decision: said };
  return part('data', { ...decision, hold_id: asked.hold_id });
}

const [url, words] = process.argv.slice(2);
const factory = new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] });
const client = await factory.createFromUrl(`${url}/.well-known/agent-card.json`, '');
const said = (task: Task, kind: string) =>
  (task.status?.message?.parts ?? []).filter((one) => one.content?.$case === kind).map((one) => one.content!.value);

let task = await send(client, [part('text', words)]);
while (task.status?.state === TaskState.TASK_STATE_INPUT_REQUIRED) {
  console.log(said(task, 'text').join('\n'));
  const decisions: Part[] = [];
  for (const asked of said(task, 'data')) decisions.push(await decide(asked));
  task = await send(client, decisions, task);
}
console.log(TaskState[task.status!.state]);
console.log(said(task, 'text').join('\n'));
process.exit(0);
