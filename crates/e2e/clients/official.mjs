// The official JavaScript client against a server: everything a client does, on the binding that is named.
//
// Called as `official.mjs BASE BINDING`. Prints `restart` and waits for a line when the server is to be killed and started
// again at the same address; ends with `ok`.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import { Role, TaskState } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [base, binding] = process.argv.slice(2);
const transports = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };
const factory = new ClientFactory({ transports: [new transports[binding]()] });
const client = await factory.createFromUrl(`${base}/v1/agents/ops/.well-known/agent-card.json`, '');
const lines = createInterface({ input: process.stdin });

const text = (value) => ({ content: { $case: 'text', value }, metadata: undefined, filename: '', mediaType: '' });
const data = (value) => ({ content: { $case: 'data', value }, metadata: undefined, filename: '', mediaType: '' });

function request(parts, task, more = {}) {
  const message = {
    messageId: randomUUID(), role: Role.ROLE_USER, parts, taskId: task?.id ?? '', contextId: task?.contextId ?? '',
    metadata: undefined, extensions: [], referenceTaskIds: [],
  };
  const configuration = {
    acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: false, ...more,
  };
  return { tenant: '', message, configuration, metadata: undefined };
}

async function send(parts, task, more) {
  const answer = await client.sendMessage(request(parts, task, more));
  return answer.task ?? answer.payload?.value ?? answer;
}

async function collect(stream) {
  const heard = [];
  for await (const event of stream) heard.push(event.payload);
  return heard;
}

const state = (task) => TaskState[task.status.state];
const told = ({ $case, value }) => ($case === 'artifactUpdate' ? $case : `${$case} ${state(value)}`);
const question = (task) => task.status.message.parts.find((part) => part.content.$case === 'data').content.value;

// Sends, approves, denies, modifies.
let task = await send([text('Delete all temporary files')]);
assert.equal(state(task), 'TASK_STATE_INPUT_REQUIRED');
assert.equal(question(task).interaction_type, 'tool_approval');
let after = await send([text('hm')], task);
assert.deepEqual(question(after), question(task), 'what is no decision leaves the task waiting');
after = await send([text('approve'), data({ decision: 'approve' })], task);
assert.equal(state(after), 'TASK_STATE_COMPLETED');
assert.equal(after.artifacts[0].parts[0].content.value, 'I have dealt with the old cache.');
task = await send([text('once more')]);
assert.equal(state(await send([data({ decision: 'deny', reason: 'no' })], task)), 'TASK_STATE_COMPLETED');
task = await send([text('once more')]);
await assert.rejects(send([data({ decision: 'modify', modified_input: '{' })], task), /modified_input/);
const modified = { decision: 'modify', modified_input: '{"path": "/srv/else"}', hold_id: question(task).hold_id };
assert.equal(state(await send([data(modified)], task)), 'TASK_STATE_COMPLETED');

// Gets, lists, cancels.
task = await send([text('go')]);
assert.equal((await client.getTask({ tenant: '', id: task.id, historyLength: 1 })).history.length, 1);
const wanted = {
  tenant: '', contextId: '', status: TaskState.TASK_STATE_INPUT_REQUIRED, pageToken: '', statusTimestampAfter: undefined,
};
assert.deepEqual((await client.listTasks(wanted)).tasks.map((one) => one.id), [task.id]);
const page = await client.listTasks({ ...wanted, status: TaskState.TASK_STATE_UNSPECIFIED, pageSize: 2 });
assert.equal(page.tasks.length, 2);
assert.ok(page.nextPageToken && page.totalSize > 2);
assert.equal(state(await client.cancelTask({ tenant: '', id: task.id, metadata: undefined })), 'TASK_STATE_CANCELED');

// Streams.
let heard = await collect(client.sendMessageStream(request([text('go')])));
assert.deepEqual(heard.map(told), ['task TASK_STATE_WORKING', 'statusUpdate TASK_STATE_INPUT_REQUIRED']);
task = heard[0].value;
heard = await collect(client.sendMessageStream(request([data({ decision: 'approve' })], task)));
assert.match(told(heard.at(-1)), /TASK_STATE_COMPLETED/);

// Subscribes, the server is killed and started again, subscribes again.
task = await send([text('go')]);
const first = client.resubscribeTask({ tenant: '', id: task.id });
assert.equal(told((await first.next()).value.payload), 'task TASK_STATE_INPUT_REQUIRED');
console.log('restart');
await new Promise((resolve) => { lines.once('line', resolve); });
await first.next().then(({ done }) => assert.ok(done), () => {});
const second = client.resubscribeTask({ tenant: '', id: task.id });
assert.equal(told((await second.next()).value.payload), 'task TASK_STATE_INPUT_REQUIRED');
const rest = collect(second);
assert.equal(state(await send([data({ decision: 'approve' })], task)), 'TASK_STATE_COMPLETED');
const expected = ['statusUpdate TASK_STATE_WORKING', 'artifactUpdate', 'statusUpdate TASK_STATE_COMPLETED'];
// How many deltas of the reply there are differs each time.
const isLive = ({ $case, value }) => $case === 'artifactUpdate' && !value.lastChunk;
assert.deepEqual((await rest).filter((one) => !isLive(one)).map(told), expected);
console.log('ok');
lines.close();
