// More of what the gallery has: what is rare and must be right when it comes. What changed since it was asked, what is late, who else
// is asked, tasks of workers, what went wrong, and forms that came back.

import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AGENTS, calls, script } from './agents.js';
import { freePort, Provider } from './provider.js';
import { BINARY, Server } from './server.js';
import { asking, atEnd, newFolder, signedIn, started, written } from './stage.js';
import { until } from './watch.js';

const idOf = (hold) => hold.split('/').at(-1);
const SCHEMA = { $defs: {}, type: 'object', title: 'A trip', required: ['traveller', 'legs', 'budget'], additionalProperties: false, properties: {
  traveller: { type: 'object', title: 'Traveller', required: ['name', 'address'], properties: {
    name: { type: 'string', title: 'Name', minLength: 2 },
    address: { type: 'object', title: 'Address', required: ['city'], properties: { city: { type: 'string', title: 'City' }, zip: { type: 'string', title: 'Postcode', pattern: '^[0-9]{4}$', description: 'Four digits.' } } },
  } },
  legs: { type: 'array', title: 'Legs', minItems: 1, items: { type: 'object', required: ['to', 'on'], properties: {
    to: { type: 'string', title: 'To' }, on: { type: 'string', format: 'date', title: 'On' },
    stops: { type: 'array', title: 'Stops', items: { type: 'string' } },
  } } },
  budget: { type: 'integer', title: 'Budget', minimum: 10, description: 'In Swiss francs.' },
  quiet: { type: 'boolean', title: 'Quiet car' },
} };

/** What time and others did to a call while it waited. */
async function changes() {
  const line = 'A line of a file that is long enough to be one. Grüezi.\n';
  const folder = written({
    drifter: { replies: [calls('I will greet in German.', ['edit_file', { path: 'hello.txt', old: 'Hello', new: 'Grüezi' }]), { text: 'Done.' }], tools: 'edit_file' },
    payer: { replies: [calls('The customer sent everything back.', ['pay_out', { account: 'account.txt', amount: 240, currency: 'CHF' }]), { text: 'Paid.' }], tools: 'pay_out, read_file' },
    late: { replies: [calls('In a moment.', ['brief', { command: 'ls' }]), { text: 'Done.' }], tools: 'brief' },
    urgent: { replies: [calls('This is **urgent**.', ['write_file', { path: 'notes.txt', content: 'Call back.\n' }]), { text: 'Done.' }], tools: 'write_file', task: "input_timeout: 2h, hitl: {remind_after: 1s, escalate_after: 1s, escalate_to: ['group:leads', 'user:carol']}" },
    given: { replies: [calls('For somebody who knows.', ['write_file', { path: 'given.txt', content: 'x\n' }]), { text: 'Done.' }], tools: 'write_file' },
    big: { replies: [calls('A big file.', ['write_file', { path: 'big.txt', content: line.repeat(Math.ceil(10_485_760 / line.length)) }]), { text: 'Done.' }], tools: 'write_file' },
    broken: { replies: [{ error: 'invalid_api_key: the key of this model is not valid' }] },
    overloaded: { replies: [{ error: 'overloaded', retry_after: '1h' }, { text: 'Done.' }] },
    clumsy: { replies: [calls('I look for it.', ['read_file', { path: 'nowhere.txt' }]), { text: 'There is no such file.' }], tools: 'read_file' },
    traveller: { replies: [calls('A few details, please.', ['suspend', { reason: 'The booking needs them', question: 'Where do you go?', resumeSchema: SCHEMA }]), { text: 'Booked.' }], tools: 'suspend' },
    several: { replies: [calls('Three things at once.', ['write_file', { path: 'a.txt', content: 'a\n' }], ['brief', { command: 'ls -la' }], ['suspend', { reason: 'Two ways', question: 'Which way?', options: ['left', 'right'] }]), { text: 'Done.' }], tools: 'write_file, brief, suspend' },
    looked: { replies: [calls('The amount is small.', ['transfer', { to: 'Ann', amount: 12 }]), { text: 'Done.' }], tools: 'transfer' },
  }, {
    tools: `  edit_file: {type: edit_file, requires_approval: true}
  write_file: {type: write_file, requires_approval: true}
  read_file: {type: read_file}
  suspend: {type: suspend-for-input}
  brief: {type: command, requires_approval: true, input_timeout: 1s, on_timeout: keep}
  transfer: {type: external, url: 'http://127.0.0.1:9/', allowed_hosts: ['127.0.0.1:9'], requires_approval: true, description: Transfers money}
  pay_out: {type: external, url: 'http://127.0.0.1:9/', allowed_hosts: ['127.0.0.1:9'], description: Pays a customer, parameters: {type: object, properties: {account: {type: string}, amount: {type: number}, currency: {type: string}}}}`,
    rest: "policy: {rules: [{id: payouts, hold: pay_out, because: 'Payouts of more than 200 francs need a look at the account.', risk: destructive, precondition: {tool: read_file, arguments: {path: /account}}}]}",
  });
  const workspace = join(folder, 'workspace');
  writeFileSync(join(workspace, 'hello.txt'), 'one\nHello\nthree\n');
  writeFileSync(join(workspace, 'account.txt'), 'IBAN CH93 0076 2011 6238 5295 7\nbalance 1200.50 CHF\nlast payout 2026-11-02\n');
  const server = await started('--config', join(folder, 'standfast.yaml'));
  const asked = {};
  for (const name of ['drifter', 'payer', 'late', 'urgent', 'given', 'big', 'traveller', 'several', 'looked']) asked[name] = await server.held(name, `Please do what ${name} does`);
  const hold = (name) => `/holds/${idOf(asked[name].hold)}`;
  const happened = (name, type) => until(`${name}: ${type}`, async () => (await server.api(`/runs/${asked[name].id}/events`)).events.some((event) => event.type === type));
  writeFileSync(join(workspace, 'hello.txt'), 'one\nHello, world\nthree\nfour\n');
  await server.api(`${hold('given')}/assign`, { to: 'ann', until: '2030-01-01T00:00:00Z' });
  await server.api(`${hold('given')}/delegate`, { to: 'ben', until: '2030-01-01T00:00:00Z' });
  await happened('late', 'hold.expired');
  await happened('urgent', 'hold.escalated');
  const session = async (name) => `/sessions/${(await server.api(asked[name].run)).session}?agent=${name}`;
  const begun = async (agent, status) => {
    const { id } = await server.api(`/agents/${agent}/runs`, { input: `Please do what ${agent} does` });
    await until(`${agent} is ${status}`, async () => (await server.api(`/runs/${id}`)).status === status);
    return `/runs/${id}`;
  };
  const [failed, clumsy] = [await begun('broken', 'failed'), await begun('clumsy', 'completed')];
  const { id: retrying } = await server.api('/agents/overloaded/runs', { input: 'Be patient' });
  await until('it waits to try again', async () => (await server.api(`/runs/${retrying}/events`)).events.some((event) => event.type.startsWith('model.')));
  const more = await server.held('payer', 'A payout that is asked about again');
  writeFileSync(join(workspace, 'account.txt'), 'IBAN CH93 0076 2011 6238 5295 7\nbalance 12.50 CHF\nlast payout 2026-11-19\n');
  await server.api(`/holds/${idOf(more.hold)}/resolve`, { resolution: 'approve' });
  let again;
  await until('it is asked about again', async () => {
    [again] = (await server.api(`/runs/${more.id}`)).holds;
    return again !== undefined && again.id !== idOf(more.hold);
  });
  // What a person did, and came back.
  const mistaken = async (page) => {
    await page.goto(server.base + asked.traveller.hold);
    await page.getByLabel('Name').fill('A');
    await page.getByLabel('City').fill('Bern');
    await page.getByLabel('Postcode').fill('30');
    await page.getByLabel('Budget').fill('5');
    await page.evaluate('document.querySelectorAll("form").forEach((form) => { form.noValidate = true; })');
    await page.getByRole('button', { name: 'Send the answer' }).click();
    await page.locator('[aria-invalid=true]').first().waitFor();
  };
  const misedited = async (page) => {
    await page.goto(server.base + asked.given.hold);
    await page.locator('summary', { hasText: 'Edit the arguments' }).click();
    await page.getByLabel('Arguments (JSON)').fill('{"path": "given.txt", ');
    await page.getByRole('button', { name: 'Approve with these arguments' }).click();
    await page.locator('[role=alert]').waitFor();
  };
  const forged = async (page) => {
    await page.goto(server.base + asked.given.hold);
    await page.evaluate(() => {
      const button = document.querySelector('form[data-action=approve] button.approve');
      button.form.elements.csrf.value = 'forged';
      button.form.requestSubmit(button);
    });
    await page.getByRole('heading', { level: 1 }).waitFor();
  };
  // Somebody else was faster; the page has not heard of it.
  const outrun = async (page) => {
    const raced = await server.held('given', 'Two of us look at this');
    await page.route('**/events*', (route) => route.abort());
    await page.goto(server.base + raced.hold);
    await server.api(`/holds/${idOf(raced.hold)}/resolve`, { resolution: 'deny', reason: 'I was faster' });
    await page.evaluate('document.querySelector("form[data-action=approve]").requestSubmit(document.querySelector("button.approve"))');
    await page.locator('[role=alert]').waitFor();
    await page.unroute('**/events*');
  };
  const unfolded = async (page) => {
    await page.goto(server.base + asked.given.hold);
    for (const text of ['Edit the arguments', 'Who is asked']) await page.locator('summary', { hasText: text }).click();
  };
  return { base: server.base, pages: {
    'hold-drift': asked.drifter.hold, 'conversation-drift': await session('drifter'), 'review-drift': `/review?hold=${idOf(asked.drifter.hold)}&hold=${idOf(asked.payer.hold)}`,
    'hold-findings': asked.payer.hold, 'hold-asked-again': `/approve/${again.id}`, 'conversation-findings': await session('payer'), 'hold-late': asked.late.hold, 'conversation-late': await session('late'),
    'hold-escalated': asked.urgent.hold, 'run-escalated': asked.urgent.run, 'hold-assigned': asked.given.hold, 'hold-unfolded': unfolded, 'hold-big': asked.big.hold, 'conversation-big': await session('big'),
    'run-failed': failed, 'run-clumsy': clumsy, 'run-retrying': `/runs/${retrying}`, 'hold-trip': asked.traveller.hold, 'hold-trip-mistaken': mistaken, 'hold-misedited': misedited,
    'refused-forged': forged, 'hold-outrun': outrun, 'hold-several': asked.several.hold, 'conversation-several': await session('several'), 'run-several': asked.several.run,
    'list-late': '/?sort=deadline', 'list-runs-failed': '/runs?state=failed', 'picture-timeline': `${asked.several.run}/timeline.svg`, 'hold-plain': asked.looked.hold,
  } };
}

/** Tasks of an inbox that workers of somebody else do, and gates. */
async function workers() {
  const folder = written({ nobody: { replies: [{ text: 'Nothing.' }] } });
  const server = await started('--config', join(folder, 'standfast.yaml'));
  const tasks = '/api/inboxes/desk/tasks';
  const add = (title, payload, more = {}) => server.post(tasks, { type: 'refund', title, payload, ...more });
  const claim = async () => (await server.post('/api/inboxes/desk/claim', { agentId: 'biller', workerId: 'biller-1' })).task;
  await add('Refund for Carol', { cents: 990, order: 'C-3' }, { priority: 3 });
  const first = await claim();
  await server.post(`${tasks}/${first.id}/calls`, { claimId: first.claimId, tool: 'send_refund', input: { order: 'C-3', cents: 990, to: 'Carol Müller' }, callId: 'one', context: 'The parcel came back.' });
  await add('Refund for Dan', { cents: 120_000, order: 'D-4' }, { priority: 2 });
  const second = await claim();
  await server.post(`${tasks}/${second.id}/suspend`, { claimId: second.claimId, reason: 'The amount is above 1000 francs', payload: { order: 'D-4', cents: 120_000, said: 'The customer sent a photo.' }, resumeSchema: { type: 'object', required: ['allowed'], properties: { allowed: { type: 'boolean', title: 'Refund it' }, note: { type: 'string', title: 'Note for the customer' } } } });
  await add('Refund for Eve', { cents: 100, order: 'E-5' });
  const third = await claim();
  await server.post(`${tasks}/${third.id}/start`, { claimId: third.claimId });
  await add('Refund for Finn', { cents: 100, order: 'F-6' });
  const fourth = await claim();
  await server.post(`${tasks}/${fourth.id}/complete`, { claimId: fourth.claimId, result: { paid: true } });
  await add('Refund for Gus', { cents: 100, order: 'G-7' }, { maxAttempts: 1 });
  const fifth = await claim();
  await server.post(`${tasks}/${fifth.id}/fail`, { claimId: fifth.claimId, error: { message: 'the bank does not know this account', retryable: false } });
  await add('Refund for Hal', 'Please look at order H-8, it came back **twice**.', { priority: 0 });
  const { holds } = await server.api('/holds');
  const held = (kind) => `/approve/${holds.find((hold) => hold.kind === kind).id}`;
  const gate = await server.post('/api/v1/gates', { tool: 'send_refund', arguments: { order: 'A-7', amount: 40 }, agent: 'billing', session: 'case-7', call: 'call_1', words: 'the customer sent it back', context: [{ text: 'Order of 2 November.' }, { diff: '--- a/refunds\n+++ b/refunds\n@@ -1 +1,2 @@\n A-6\n+A-7\n' }, { json: { customer: 'Müller', orders: 12 } }, { link: 'https://example.org/orders/A-7' }] });
  const lost = await server.post('/api/v1/gates', { tool: 'send_refund', arguments: { order: 'B-2' }, agent: 'billing', session: 'case-8', call: 'call_2' });
  const again = (await server.api(`/gates/${lost.gate}`));
  await server.api(`/holds/${again.hold}/resolve`, { resolution: 'approve' });
  const { digest } = await server.api(`/gates/${lost.gate}`);
  await server.post(`/api/v1/gates/${lost.gate}/start`, { digest, lease_ms: 1_000 });
  let recovery;
  await until('it is overdue', async () => { [recovery] = (await server.api('/holds?kind=recovery')).holds; return recovery !== undefined; });
  return { base: server.base, pages: {
    'worker-inbox': '/inboxes/desk', 'worker-waiting': '/inboxes/desk?status=waiting_for_input', 'worker-completed': '/inboxes/desk?status=completed', 'worker-inboxes': '/inboxes',
    'worker-call': held('approval'), 'worker-question': held('input'), 'worker-run': `/runs/${first.id}`, 'worker-pending': '/', 'worker-failed': `/runs/${fifth.id}`,
    'gate-hold': new URL(gate.url).pathname, 'gate-run': `/runs/${gate.gate}`, 'gate-overdue': `/approve/${recovery.id}`,
  } };
}

/** The addresses of a pause of Teal Agents. */
async function teal() {
  const server = await started();
  const chat = async (agent) => (await server.post(`/tealagents/v1alpha1/${agent}`, { items: [{ content_type: 'text', content: 'Please' }] }));
  const [open, other, question] = [await chat('ops'), await chat('ops'), await chat('travel')];
  const path = (address) => { const { pathname, search } = new URL(address); return pathname + search; };
  await server.get(path(other.approval_url)).catch(() => {});
  const decided = async (page) => {
    await page.goto(server.base + path(other.approval_url));
    const button = page.getByRole('button', { name: /Approve: run/ });
    if (await button.count() > 0) await button.click();
    await page.getByRole('heading', { name: 'This request has been decided' }).waitFor();
  };
  return { base: server.base, pages: { 'teal-approve': path(open.approval_url), 'teal-reject': path(open.rejection_url), 'teal-question': path(question.approval_url), 'teal-decided': decided } };
}

/** People who sign in at a provider, several times; a call that wants a fresh sign-in; a link whose time is over. */
async function people(browser) {
  const server = new Server();
  server.port = await freePort();
  const provider = await new Provider(server.base).start();
  atEnd(() => provider.stop());
  atEnd(() => server.stop());
  writeFileSync(join(server.data, 'script.yaml'), script(calls('The table is old.', ['execute_command', { command: 'echo drop' }]), { text: 'done' }));
  writeFileSync(join(server.data, 'pair.yaml'), script(calls('Two of you, please.', ['pay', { command: 'echo paid' }]), { text: 'done' }));
  const config = join(server.data, 'standfast.yaml');
  writeFileSync(config, `llms: {script: {type: scripted, script: script.yaml}, pair: {type: scripted, script: pair.yaml}}
tools: {execute_command: {allowed_commands: [echo]}, pay: {type: command, requires_approval: true, quorum: 2, allowed_commands: [echo]}}
agents:
  ops: {llm: script, tools: [execute_command], task: {}, approvers: ['group:finance']}
  pair: {llm: pair, tools: [pay], task: {}, approvers: ['group:finance']}
people: {ann: {groups: [finance]}}
policy: {rules: [{id: drop, hold: execute_command, risk: destructive, sign_in_max_age: 10m}]}
server:
  public_url: ${server.base}
  links: {key: 'a key of links that is long enough', sign_in: none, issue_by_admin: true, expires: 1s}
  webhooks: {key: the-same-key-on-every-node-and-long-enough}
  auth:
    api_keys: true
    jwt:
      issuer: ${provider.issuer}
      audience: standfast-api
      sign_in: {client_id: standfast, client_secret: 'a-secret-of-the-server: with %&+', label: Example, cli_client_id: standfast-cli}
`);
  server.more = ['--config', config];
  await server.start();
  const keyOf = (user, ...more) => execFileSync(BINARY, ['keys', 'create', '--user', user, ...more, '--config', config, '--data', server.data], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();
  const [owner, root, bob, ann] = [keyOf('owner'), keyOf('root', '--role', 'admin', '--scope', 'admin'), keyOf('bob', '--group', 'finance'), keyOf('ann', '--group', 'finance')];
  const run = (agent) => asking(server.base, owner, `/agents/${agent}/runs`, { input: 'Drop the old table', wait: 'settled' });
  const [drop, pair] = [await run('ops'), await run('pair')];
  await asking(server.base, bob, `/holds/${pair.holds[0].id}/resolve`, { resolution: 'approve' });
  const { url } = await asking(server.base, root, `/holds/${drop.holds[0].id}/link`, { for: 'ann' });
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${server.base}/sign-in/start?next=%2Fruns`);
  await page.locator('input[name=login]').fill('ann');
  await page.locator('input[name=password]').fill('any');
  await page.locator('button[type=submit]').click();
  await page.waitForURL(`${server.base}/runs`);
  const state = await context.storageState();
  await context.close();
  const AGENTS_OF_BROWSERS = ['Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1', 'Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0'];
  for (const userAgent of AGENTS_OF_BROWSERS) await signedIn(browser, server.base, ann, { userAgent });
  const ofBob = await signedIn(browser, server.base, bob);
  return [
    { base: server.base, pages: { 'sign-in-provider': '/sign-in', 'link-expired': new URL(url).pathname } },
    { base: server.base, state, pages: { 'hold-step-up': `/approve/${drop.holds[0].id}`, 'me-sessions': '/me', 'hold-quorum': `/approve/${pair.holds[0].id}`, 'review-step-up': `/review?hold=${drop.holds[0].id}&hold=${pair.holds[0].id}`, 'conversation-step-up': `/sessions/${drop.session}?agent=ops&owner=owner` } },
    { base: server.base, state: ofBob, pages: { 'hold-quorum-agreed': `/approve/${pair.holds[0].id}`, 'refused-other': '/sessions/nothing?agent=ops&owner=owner' } },
  ];
}

/** A page whose server is gone, and one whose paused task is remembered. */
async function interrupted() {
  const server = await started();
  const { hold, run } = await server.held('ops', 'Free some space');
  const { session } = await server.api(run);
  let isAway = false;
  const back = async () => { if (isAway) await server.start(); isAway = false; };
  const lost = async (page) => {
    await back();
    await page.goto(server.base + hold);
    await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
    await server.kill();
    isAway = true;
    await page.locator('#live').waitFor();
  };
  const remembered = async (page) => {
    await back();
    await page.goto(`${server.base}/sessions/${session}?agent=ops`);
    await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
    await page.goto(`${server.base}/sessions#remembered`);
    await page.locator('#remembered:not([hidden])').waitFor();
  };
  const forgotten = async (page) => {
    await back();
    await page.goto(`${server.base}/sessions/${session}?agent=ops`);
    await page.evaluate("localStorage.setItem('standfast.task', JSON.stringify({ ...JSON.parse(localStorage.getItem('standfast.task')), task: 'run_00000000000000000000000000' }))");
    await page.goto(`${server.base}/sessions#remembered`);
    await page.locator('#remembered:not([hidden])').waitFor();
  };
  return { base: server.base, pages: { 'conversation-remembered': remembered, 'conversation-forgotten': forgotten, 'live-lost': lost } };
}

/** More of the servers of the gallery. */
export const STATES = [changes, workers, teal, people, interrupted];
