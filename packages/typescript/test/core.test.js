// The package without frameworks, against the product.

import assert from 'node:assert/strict';
import { createHmac, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import {
  A2AClient, Client, Denied, Failed, guarded, Held, NotGenuine, OutcomeUnknown, Problem, StandfastError, verifyWebhook,
} from '../dist/index.js';
import { Server } from './server.js';

const server = new Server();
let client;
before(async () => {
  await server.start();
  client = new Client({ url: server.url, agent: 'billing' });
});
after(() => server.stop());
const never = () => assert.fail('it ran');

test('a run is held and decided', async () => {
  const run = await client.startRun('ops', 'Look', { wait: 'settled' });
  assert.equal(run.status, 'held');
  const hold = run.holds[0].id;
  assert.ok((await client.holds({ state: 'open', agent: 'ops' })).some((one) => one.id === hold));
  assert.equal((await client.hold(hold)).tool, 'execute_command');
  await client.resolve(hold, 'approve', { wait: 'settled' });
  assert.equal((await client.lookAtRun(run.id)).status, 'completed');
  await assert.rejects(client.resolve(hold, 'deny'), (no) => no instanceof Problem && no.kind === 'already-decided' && no.status === 409);
});

test('a run is cancelled', async () => {
  const run = await client.startRun('ops', 'Look', { wait: 'settled' });
  await client.cancel(run.id);
  assert.equal((await client.lookAtRun(run.id)).status, 'canceled');
});

test('gates: a rule allows or denies without a person', async () => {
  const session = randomUUID();
  assert.equal((await client.gate({ tool: 'read_balance', arguments: {}, session, call: '1' })).state, 'allowed');
  const denied = await client.gate({ tool: 'drop_database', arguments: {}, session, call: '2' });
  await assert.rejects(client.run(denied, never), Denied);
});

test('gates: a held call runs once with what was approved', async () => {
  const session = randomUUID();
  const ran = [];
  const refund = async (args) => { ran.push(args); return { refunded: args.amount }; };
  const ask = () => client.gate({ tool: 'pay_out', arguments: { order: 'A-7', amount: 40 }, session, call: 'c1', words: 'it came back' });
  let gate = await ask();
  assert.equal(gate.state, 'held');
  assert.match(gate.model_text, /Not executed/);
  await assert.rejects(client.run(gate, refund), Held);
  await server.restart();
  assert.equal((await ask()).gate, gate.gate);
  await client.resolve(gate.hold, 'approve', { arguments: { order: 'A-7', amount: 30 } });
  gate = await client.decided(gate, 5000);
  assert.ok(gate.decision.edited);
  assert.deepEqual(await client.run(gate, refund), { refunded: 30 });
  await assert.rejects(client.run(gate, refund), (no) => no.kind === 'already-started');
  assert.deepEqual(await client.run(await ask(), refund), { refunded: 30 }, 'what is recorded is handed out');
  assert.deepEqual(ran, [{ order: 'A-7', amount: 30 }]);
});

test('gates: a wait outlasts a server that is killed', async () => {
  const impatient = new Client({ url: server.url, pauses: [20, 20] });
  const gate = await client.gate({ tool: 'pay_out', arguments: { n: 1 }, session: randomUUID(), call: '1' });
  const waiting = impatient.decided(gate);
  const aborted = impatient.decided(gate, Infinity, AbortSignal.timeout(300));
  await assert.rejects(aborted, { name: 'TimeoutError' });
  await server.kill();
  await assert.rejects(impatient.look(gate.gate), /did not answer/);
  await assert.rejects(impatient.decided(gate, 200), /did not answer/);
  await server.start();
  await client.resolve(gate.hold, 'approve');
  const decided = await waiting;
  assert.equal(decided.state, 'allowed');
  assert.equal((await client.start(decided)).attempt, 1);
  await assert.rejects(client.start(decided), (no) => no instanceof Problem && no.kind === 'already-started' && no.status === 409);
});

test('gates: a policy that became stricter is what it is', async () => {
  const session = randomUUID();
  const ask = (call) => client.gate({ tool: 'change_plan', arguments: {}, session, call });
  const [first, second] = [await ask('1'), await ask('2')];
  assert.deepEqual([first.state, second.state], ['allowed', 'allowed']);
  await server.configure((config) => config.replace('allow: change_plan', 'deny: change_plan'));
  await assert.rejects(client.run(first, never), Denied);
  await server.configure((config) => config.replace('deny: change_plan', 'hold: change_plan'));
  await assert.rejects(client.run(second, never), Held);
  await client.resolve((await client.look(second.gate)).hold, 'approve');
  assert.equal(await client.run(await client.look(second.gate), () => 'changed'), 'changed');
});

test('gates: what was given back is not a failure', async () => {
  const gate = await client.gate({ tool: 'read_balance', arguments: {}, session: randomUUID(), call: '1' });
  await client.outcome(gate, (await client.start(gate)).attempt, { status: 'not_executed' });
  const over = await client.look(gate.gate);
  assert.deepEqual([over.state, over.outcome], ['done', undefined]);
  await assert.rejects(client.run(over, never), Denied);
});

test('gates: another order of keys is the same question', async () => {
  const session = randomUUID();
  const ask = (args) => client.gate({ tool: 'pay_out', arguments: args, session, call: 'c1' });
  const one = await ask({ a: 1, b: { c: 2, d: [{ e: 1, f: 2 }] } });
  assert.equal((await ask({ b: { d: [{ f: 2, e: 1 }], c: 2 }, a: 1 })).gate, one.gate);
  assert.notEqual((await ask({ a: 2, b: { c: 2, d: [{ e: 1, f: 2 }] } })).gate, one.gate);
});

test('gates: what a tool throws is reported', async () => {
  const session = randomUUID();
  const ask = (call) => client.gate({ tool: 'read_balance', arguments: {}, session, call });
  await assert.rejects(client.run(await ask('1'), () => { throw new RangeError('too much'); }), RangeError);
  const again = await ask('1');
  assert.match(again.outcome.value, /too much/);
  await assert.rejects(client.run(again, never), Failed);
  await assert.rejects(client.run(await ask('2'), () => { throw new DOMException('stopped', 'AbortError'); }), { name: 'AbortError' });
  await assert.rejects(client.run(await ask('2'), never), OutcomeUnknown);
});

test('gates: calls of a turn are opened together, and withdrawn', async () => {
  const session = randomUUID();
  const asked = [0, 1, 2].map((n) => ({ tool: 'pay_out', arguments: { n }, session, call: String(n) }));
  const gates = await client.gates(asked);
  assert.deepEqual(gates.map((gate) => gate.arguments.n), [0, 1, 2]);
  assert.deepEqual((await client.gates(asked)).map((gate) => gate.gate), gates.map((gate) => gate.gate));
  await assert.rejects(client.gates([{ ...asked[0], call: 'new' }, { ...asked[1], tool: '' }]), Problem);
  assert.equal((await client.withdraw(gates[0], 'superseded')).state, 'withdrawn');
});

test('gates: a guarded tool asks and waits', async () => {
  const ran = [];
  const refund = guarded(({ order }) => { ran.push(order); return `refunded ${order}`; }, { client, session: randomUUID(), name: 'pay_out', wait: 50 });
  const held = await refund.run('c1', { order: 'A-7' }).catch((no) => no);
  assert.ok(held instanceof Held);
  await client.resolve(held.gate.hold, 'approve');
  assert.equal(await refund.run('c1', { order: 'A-7' }), 'refunded A-7');
  assert.equal(await refund.run('c1', { order: 'A-7' }), 'refunded A-7');
  assert.deepEqual(ran, ['A-7']);
  await assert.rejects(refund({ order: 'A-8' }), Held);
});

test('nobody answers; a start without an answer is not sent again', async () => {
  await assert.rejects(new Client({ url: 'http://127.0.0.1:9', pauses: [1, 1] }).look('run_x'), StandfastError);
  const sent = [];
  const lost = async (url) => { sent.push(new URL(url).pathname); throw new TypeError('gone'); };
  const gate = { gate: 'run_x', state: 'allowed', arguments: {}, digest: 'd', model_text: '' };
  await assert.rejects(new Client({ url: 'http://x', fetch: lost }).run(gate, never), StandfastError);
  assert.deepEqual(sent, ['/api/v1/gates/run_x/start']);
});

function signed(body, secret, at) {
  const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
  const signature = createHmac('sha256', key).update(`d1.${at}.`).update(body).digest('base64');
  return { 'Webhook-Id': 'd1', 'Webhook-Timestamp': String(at), 'Webhook-Signature': `v1,b3RoZXI= v1,${signature}` };
}

test('a delivery is believed only with its signature', async () => {
  const secret = `whsec_${Buffer.alloc(32, 'k').toString('base64')}`;
  const [body, now] = ['{"type": "ping", "text": "ä"}', Math.floor(Date.now() / 1000)];
  const headers = signed(body, secret, now);
  assert.equal((await verifyWebhook(secret, headers, body)).type, 'ping');
  assert.equal((await verifyWebhook(secret, new Headers(headers), Buffer.from(body))).type, 'ping');
  const bad = [
    [secret, headers, `${body} `], [`whsec_${Buffer.alloc(32, 'o').toString('base64')}`, headers, body], ['whsec_', headers, body],
    ['whsec_!', headers, body], [secret, signed(body, secret, now - 301), body], [secret, signed(body, secret, now + 301), body],
    [secret, { ...headers, 'Webhook-Id': 'd2' }, body], [secret, { ...headers, 'Webhook-Signature': 'v1,' }, body],
    [secret, { ...headers, 'Webhook-Timestamp': 'soon' }, body], [secret, {}, body],
  ];
  for (const [no, one] of bad.entries()) await assert.rejects(verifyWebhook(...one), NotGenuine, `case ${no}`);
});

test('what the server sends is genuine', async () => {
  const got = [];
  const receiver = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    got.push([request.headers, Buffer.concat(parts)]);
    response.writeHead(204).end();
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => receiver.once('listening', resolve));
  const address = `127.0.0.1:${receiver.address().port}`;
  await server.configure((config) => `${config}server: {webhooks: {allowed_hosts: ['${address}']}}\n`);
  const post = (path, body) => fetch(`${server.url}/api/v1/subscriptions${path}`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
  }).then((response) => response.json());
  const made = await post('', { url: `http://${address}/`, agent: 'ops' });
  await post(`/${made.id}/test`, {});
  assert.equal((await verifyWebhook(made.secret, got[0][0], got[0][1])).type, 'ping');
  receiver.close();
});

// S3-20: while input is required, the text is shown, the data read, and the decision goes to the same task and context.
for (const decision of ['approve', 'deny', { decision: 'modify', modified_input: { command: 'echo changed' } }]) {
  test(`the approval loop of A2A: ${decision.decision ?? decision}`, async () => {
    const asked = [];
    const task = await new A2AClient(server.url).executeWithApproval('ops', 'Look', (text, data) => {
      assert.match(text, /Tool Approval Required/);
      asked.push([data.tool_name, data.tool_input, data.options]);
      return decision;
    });
    assert.equal(task.status.state, 'TASK_STATE_COMPLETED');
    assert.deepEqual(asked, [['execute_command', 'echo original', ['approve', 'deny', 'modify']]]);
    const events = JSON.stringify(await (await fetch(`${server.url}/api/v1/runs/${task.id}/events`)).json());
    assert.equal(events.includes('echo changed'), typeof decision !== 'string');
  });
}

test('a task that is not there', async () => {
  await assert.rejects(new A2AClient(server.url).getTask('ops', 'run_00000000000000000000000000'), Problem);
});
