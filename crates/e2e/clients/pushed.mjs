// The official JavaScript client names receivers of push notifications.
//
// Called as `pushed.mjs BASE BINDING`; ends with `ok`.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { Role, TaskState } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

const [base, binding] = process.argv.slice(2);
const transports = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };
const factory = new ClientFactory({ transports: [new transports[binding]()] });
const client = await factory.createFromUrl(`${base}/v1/agents/ops/.well-known/agent-card.json`, '');

const got = [];
const receiver = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => (body += chunk));
  request.on('end', () => {
    got.push({ headers: request.headers, body: JSON.parse(body) });
    response.writeHead(204).end();
  });
});
await new Promise((ready) => receiver.listen(0, '127.0.0.1', ready));
const url = `http://127.0.0.1:${receiver.address().port}/a2a`;

const part = ($case, value) => ({ content: { $case, value }, metadata: undefined, filename: '', mediaType: '' });
async function send(parts, task, taskPushNotificationConfig) {
  const message = {
    messageId: randomUUID(), role: Role.ROLE_USER, parts, taskId: task?.id ?? '', contextId: task?.contextId ?? '',
    metadata: undefined, extensions: [], referenceTaskIds: [],
  };
  const configuration = { acceptedOutputModes: [], taskPushNotificationConfig, returnImmediately: false };
  const answer = await client.sendMessage({ tenant: '', message, configuration, metadata: undefined });
  return answer.task ?? answer.payload?.value ?? answer;
}

const config = (taskId, id) => ({ tenant: '', id, taskId, url, token: 'token', authentication: undefined });
const task = await send([part('text', 'please')], undefined, config('', ''));
assert.equal(TaskState[task.status.state], 'TASK_STATE_INPUT_REQUIRED');
const named = { tenant: '', taskId: task.id, id: 'second' };
assert.equal((await client.createTaskPushNotificationConfig(config(task.id, 'second'))).id, 'second');
assert.equal((await client.getTaskPushNotificationConfig(named)).url, url);
const listed = await client.listTaskPushNotificationConfig({ tenant: '', taskId: task.id, pageSize: 0, pageToken: '' });
assert.equal((listed.configs ?? listed).length, 2);
await client.deleteTaskPushNotificationConfig(named);
await client.deleteTaskPushNotificationConfig(named);
await assert.rejects(client.getTaskPushNotificationConfig(named));
await send([part('data', { decision: 'approve' })], task);

const told = ({ body }) => Object.entries(body).map(([name, value]) => (value.status ? `${name} ${value.status.state}` : name))[0];
for (let tries = 0; tries < 600 && !got.map(told).includes('statusUpdate TASK_STATE_COMPLETED'); tries += 1) {
  await new Promise((later) => setTimeout(later, 100));
}
assert.deepEqual(got.map(told), [
  'task TASK_STATE_WORKING', 'statusUpdate TASK_STATE_INPUT_REQUIRED', 'statusUpdate TASK_STATE_WORKING',
  'artifactUpdate', 'statusUpdate TASK_STATE_COMPLETED',
]);
assert.ok(got.every(({ headers }) => headers['x-a2a-notification-token'] === 'token'));
receiver.close();
console.log('ok');
process.exit(0);
