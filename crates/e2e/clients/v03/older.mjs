// The official JavaScript client of A2A 0.3 against a server: everything a client does, on the binding that is named.
//
// Called as `older.mjs BASE BINDING`. Prints `restart` and waits for a line when the server is to be killed and started
// again at the same address; ends with `ok`.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [base, binding] = process.argv.slice(2);
const transport = {
  JSONRPC: () => new JsonRpcTransportFactory(), 'HTTP+JSON': () => new RestTransportFactory(), GRPC: () => new GrpcTransportFactory(),
}[binding]();
const card = `${base}/v1/agents/ops/.well-known/agent-card.json`;
const client = await new ClientFactory({ transports: [transport] }).createFromUrl(card, '');
const polling = await new ClientFactory({ transports: [transport], clientConfig: { polling: true } }).createFromUrl(card, '');
const lines = createInterface({ input: process.stdin });

const text = (words) => ({ kind: 'text', text: words });
const data = (value) => ({ kind: 'data', data: value });

function params(parts, task) {
  const ids = task ? { taskId: task.id, contextId: task.contextId } : {};
  return { message: { kind: 'message', messageId: randomUUID(), role: 'user', parts, ...ids } };
}

const send = (parts, task) => client.sendMessage(params(parts, task));

async function collect(stream) {
  const heard = [];
  for await (const event of stream) heard.push(event);
  return heard;
}

const told = (event) => {
  if (event.kind === 'task') return `task ${event.status.state}`;
  return event.kind === 'status-update' ? event.status.state : event.kind;
};
const question = (task) => task.status.message.parts.find((part) => part.kind === 'data').data;

// Sends, approves, denies, modifies.
let task = await send([text('write it')]);
assert.equal(task.status.state, 'input-required');
assert.equal(question(task).interaction_type, 'tool_approval');
let after = await send([text('hm')], task);
assert.deepEqual(question(after), question(task), 'what is no decision leaves the task waiting');
after = await send([text('approve'), data({ decision: 'approve' })], task);
assert.equal(after.status.state, 'completed');
assert.equal(after.artifacts[0].parts[0].text, 'written');
task = await send([text('once more')]);
assert.equal((await send([data({ decision: 'deny', reason: 'no' })], task)).status.state, 'completed');
task = await send([text('once more')]);
await assert.rejects(send([data({ decision: 'modify', modified_input: '{' })], task), /modified_input/);
const modified = { decision: 'modify', modified_input: '{"path": "c.txt", "content": "z"}', hold_id: question(task).hold_id };
assert.equal((await send([data(modified)], task)).status.state, 'completed');
// Over gRPC this client knows that error by its text alone.
await assert.rejects(send([text('more')], task), binding === 'GRPC' ? /has ended/ : { name: 'UnsupportedOperationError' });

// Gets, cancels.
task = await polling.sendMessage(params([text('go')]));
for (let tries = 0; task.status.state !== 'input-required' && tries < 300; tries += 1) {
  await new Promise((resolve) => { setTimeout(resolve, 100); });
  task = await client.getTask({ id: task.id, historyLength: 1 });
}
assert.equal(task.history.length, 1);
assert.equal((await client.cancelTask({ id: task.id })).status.state, 'canceled');
await assert.rejects(client.getTask({ id: 'run_x' }), { name: 'TaskNotFoundError' });
const config = { taskId: task.id, pushNotificationConfig: { id: 'c', url: 'http://127.0.0.1:9/a' } };
assert.equal((await client.setTaskPushNotificationConfig(config)).pushNotificationConfig.url, 'http://127.0.0.1:9/a');
const listed = await client.listTaskPushNotificationConfig({ id: task.id });
assert.deepEqual(listed.map((one) => one.pushNotificationConfig.id), ['c']);
await client.deleteTaskPushNotificationConfig({ id: task.id, pushNotificationConfigId: 'c' });
// Nobody is authenticated here, so there is no extended card: it is the public one.
assert.equal((await client.getAgentCard()).supportsAuthenticatedExtendedCard, false);

// Streams.
let heard = await collect(client.sendMessageStream(params([text('go')])));
assert.deepEqual(heard.map(told), ['task working', 'input-required']);
assert.ok(heard[1].final, 'it was the last event of this stream');
[task] = heard;
heard = await collect(client.sendMessageStream(params([data({ decision: 'approve' })], task)));
assert.match(told(heard.at(-1)), /completed/);

// Subscribes, the server is killed and started again, subscribes again.
task = await send([text('go')]);
const first = client.resubscribeTask({ id: task.id });
assert.equal(told((await first.next()).value), 'task input-required');
console.log('restart');
await new Promise((resolve) => { lines.once('line', resolve); });
await first.next().then(({ done }) => assert.ok(done), () => {});
const second = client.resubscribeTask({ id: task.id });
assert.equal(told((await second.next()).value), 'task input-required');
const rest = collect(second);
assert.equal((await send([data({ decision: 'approve' })], task)).status.state, 'completed');
// How many deltas of the reply there are differs each time.
const isKept = (event) => event.kind !== 'artifact-update' || event.lastChunk;
assert.deepEqual((await rest).filter(isKept).map(told), ['working', 'artifact-update', 'completed']);
assert.deepEqual((await collect(client.resubscribeTask({ id: task.id }))).map(told), ['task completed']);

// Is pushed to: by a receiver that comes with the message, and by one that is named later.
const got = [];
const receiver = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => { body += chunk; });
  request.on('end', () => {
    got.push({ path: request.url, token: request.headers['x-a2a-notification-token'], task: JSON.parse(body) });
    response.writeHead(204).end();
  });
});
await new Promise((ready) => { receiver.listen(0, '127.0.0.1', ready); });
const named = (id) => ({ id, url: `http://127.0.0.1:${receiver.address().port}/${id}`, token: id });
task = await client.sendMessage({ ...params([text('go')]), configuration: { blocking: true, pushNotificationConfig: named('inline') } });
await client.setTaskPushNotificationConfig({ taskId: task.id, pushNotificationConfig: named('later') });
assert.equal((await send([data({ decision: 'approve' })], task)).status.state, 'completed');
const states = (path) => got.filter((one) => one.path === path).map((one) => told(one.task));
for (let tries = 0; tries < 600 && ['/inline', '/later'].some((path) => states(path).at(-1) !== 'task completed'); tries += 1) {
  await new Promise((resolve) => { setTimeout(resolve, 100); });
}
assert.deepEqual(states('/inline'), ['task working', 'task input-required', 'task working', 'task completed']);
assert.deepEqual(states('/later').slice(-2), ['task working', 'task completed']);
assert.ok(got.every((one) => `/${one.token}` === one.path && one.task.id === task.id));
assert.equal(got.at(-1).task.artifacts[0].parts[0].text, 'written');
receiver.close();
console.log('ok');
lines.close();
process.exit(0);
