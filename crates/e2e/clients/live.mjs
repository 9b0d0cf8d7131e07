// The official JavaScript client, and the library's own way of gathering an artifact, while the model says one.
//
// Called as `live.mjs BASE BINDING HALF WHOLE`. Prints `half` when it has that much, whereupon the model goes on; ends with
// `ok`.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { Role, TaskState } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { AgentEvent, ResultManager, ServerCallContext } from '@a2a-js/sdk/server';

const [base, binding, half, whole] = process.argv.slice(2);
const transports = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };
const factory = new ClientFactory({ transports: [new transports[binding]()] });
const client = await factory.createFromUrl(`${base}/v1/agents/ops/.well-known/agent-card.json`, '');

const part = (content) => ({ content, metadata: undefined, filename: '', mediaType: '' });

async function send(content, task, returnImmediately) {
  const message = {
    messageId: randomUUID(), role: Role.ROLE_USER, parts: [part(content)], taskId: task?.id ?? '',
    contextId: task?.contextId ?? '', metadata: undefined, extensions: [], referenceTaskIds: [],
  };
  const configuration = { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately };
  const answer = await client.sendMessage({ tenant: '', message, configuration, metadata: undefined });
  return answer.task ?? answer.payload?.value ?? answer;
}

const approve = (task) => send({ $case: 'data', value: { decision: 'approve' } }, task, true);
const words = (task) => task.artifacts.flatMap((one) => one.parts.map((part) => part.content.value)).join('');

const kept = new Map();
const store = {
  load: async (id) => kept.get(id),
  save: async (task) => { kept.set(task.id, task); },
};
const gathering = new ResultManager(store, new ServerCallContext());
const sent = await send({ $case: 'text', value: 'go' }, undefined, false);
let hasHalf = false;
for await (const { payload } of client.resubscribeTask({ tenant: '', id: sent.id })) {
  await gathering.processEvent(AgentEvent[payload.$case](payload.value));
  const task = kept.get(sent.id);
  if (task.status.state === TaskState.TASK_STATE_INPUT_REQUIRED && payload.$case !== 'artifactUpdate') {
    assert.equal(words(task), '', 'words in front of a call are no result');
    await approve(task);
  }
  if (words(task) === half && !hasHalf) {
    hasHalf = true;
    console.log('half');
  }
}
const task = kept.get(sent.id);
assert.ok(hasHalf);
assert.equal(words(task), whole);
assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
const stored = await client.getTask({ tenant: '', id: sent.id });
assert.deepEqual(stored.artifacts.map((one) => one.parts), task.artifacts.map((one) => one.parts));
console.log('ok');
