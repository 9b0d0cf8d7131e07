// Servers with something of everything on their pages, for pictures: every page that there is, as people find it. `every()` begins one
// after the other, each with its pages by name; whoever takes the pictures opens them in several looks. What is rare is in
// `gallery_states.js`.

import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AGENTS, calls, configure, script } from './agents.js';
import { STATES } from './gallery_states.js';
import { freePort } from './provider.js';
import { BINARY } from './server.js';
import { asking, atEnd, newFolder, signedIn, speakingModel, started } from './stage.js';
import { until } from './watch.js';
import { fill, REFUSED, world } from './world.js';

const PYTHON = fileURLToPath(new URL('../../../target/mcp-servers/bin/python', import.meta.url));
const PROTECTED = fileURLToPath(new URL('../tests/outside/mcp/protected.py', import.meta.url));

/** The agents of the tests of the approver's pages, and some more: much of every kind. */
async function approvers() {
  const folder = newFolder();
  mkdirSync(join(folder, 'workspace'), { recursive: true });
  const long = Array.from({ length: 120 }, (_, at) => `Line ${at + 1} of a page about opening hours, prices and how to find us.`).join('\n');
  const extra = {
    deleter: calls('The cache is old, **nobody** reads it.\n\n1. I looked at `workspace/`\n2. It has one file\n\n| file | size |\n|---|---|\n| gone.txt | 6 B |', ['delete_file', { path: 'gone.txt' }]),
    sleeper: calls('This takes a while.', ['slow', { command: 'sleep 600' }]),
    long: calls('A long page.', ['write_file', { path: 'long.txt', content: long }]),
    wide: calls('Many rows.', ['write_rows', { customer: { name: 'Ann Müller', address: { street: 'Bahnhofstrasse 1', zip: '8001' } }, notes: [], items: Array.from({ length: 6 }, (_, at) => ({ sku: `A-${at}`, name: `Chair number ${at}`, price: 129.9, currency: 'CHF', stock: at * 3, colour: 'oak', supplier: 'Example Ltd.', since: '2026-01-01' })) }]),
    hidden: calls('Harmless.', ['execute_command', { command: 'echo safe\u202etxt.exe\u200b' }]),
  };
  for (const [name, reply] of Object.entries(extra)) writeFileSync(join(folder, `${name}.yaml`), script(reply, { text: 'All **done**.' }));
  const names = Object.keys(extra);
  const tools = { deleter: 'delete_file', sleeper: 'slow', long: 'write_file', wide: 'write_rows', hidden: 'execute_command' };
  const config = configure(folder, {
    llms: [...names.map((name) => `  ${name}: {type: scripted, script: ${name}.yaml}`), `  gpt: {type: openai, model: gpt-4o, api_key: none, base_url: '${await speakingModel()}'}`].join('\n'),
    agents: [...names.map((name) => `  ${name}: {llm: ${name}, session_store: main, tools: [${tools[name]}], task: {${name === 'deleter' ? 'input_timeout: 2h' : ''}}}`),
      '  speaker: {llm: gpt, session_store: main, task: {}, reasoning: {enable_streaming: true}}'].join('\n'),
    tools: `  delete_file: {type: delete_file, requires_approval: true}
  slow: {type: command, requires_approval: false}`,
    rest: 'policy: {grants: {max_uses: 20}}',
  });
  writeFileSync(join(folder, 'workspace', 'hello.txt'), 'one\nHello\nthree\n');
  writeFileSync(join(folder, 'workspace', 'gone.txt'), 'there\n');
  const server = await started('--config', config);
  const pages = {};
  const asked = { editor: 'Please greet people in Zurich', deleter: 'Free some space on the build server, please', leader: 'List what is there' };
  for (const name of [...Object.keys(AGENTS), ...names].filter((name) => !['leader', 'sleeper'].includes(name))) {
    const { hold, run } = await server.held(name, asked[name] ?? `Do what ${name} does`);
    pages[`hold-${name}`] = hold;
    if (['editor', 'former', 'asker', 'deleter'].includes(name)) pages[`conversation-${name}`] = `/sessions/${(await server.api(run)).session}?agent=${name}`;
    if (['editor', 'lister'].includes(name)) pages[`run-${name}`] = run;
    if (name === 'pair') await server.api(`/holds/${hold.split('/').at(-1)}/resolve`, { resolution: 'approve' });
  }
  // Decided in every way.
  const decide = async (agent, body) => {
    const { hold, run, id } = await server.held(agent, `Decided: ${agent}`);
    await server.api(`/holds/${hold.split('/').at(-1)}/resolve`, body);
    await until('it is over', async () => ['completed', 'canceled'].includes((await server.api(run)).status));
    return { hold, run, id };
  };
  const done = await decide('lister', { resolution: 'approve' });
  pages['decided-approved'] = done.hold;
  pages['run-completed'] = done.run;
  pages['decided-denied'] = (await decide('deleter', { resolution: 'deny', reason: 'Not on a Friday' })).hold;
  pages['decided-edited'] = (await decide('remover', { resolution: 'approve', arguments: { command: 'echo instead' } })).hold;
  pages['decided-answered'] = (await decide('waiter', { resolution: 'answer', value: 'Ann' })).hold;
  const nested = await server.api('/agents/leader/runs', { input: asked.leader, wait: 'settled' });
  pages['run-nested'] = `/runs/${nested.id}`;
  pages['conversation-nested'] = `/sessions/${nested.session}?agent=leader`;
  const canceled = await server.held('editor', 'Canceled in between');
  await server.api(`/runs/${canceled.id}/cancel`, { reason: 'no longer needed' });
  pages['run-canceled'] = canceled.run;
  // A crash while a call runs: nobody knows what became of it.
  const lost = await server.held('sleeper', 'Wait for it');
  await server.api(`/holds/${lost.hold.split('/').at(-1)}/resolve`, { resolution: 'approve' });
  await until('the call runs', async () => (await server.api(`/runs/${lost.id}/events`)).events.some((event) => event.type === 'call.started'));
  pages['decided-lost'] = lost.hold;
  await server.kill();
  await server.start();
  let recovery;
  await until('it is asked about', async () => {
    recovery = (await server.api('/holds?kind=recovery')).holds[0];
    return recovery !== undefined;
  });
  pages['hold-recovery'] = `/approve/${recovery.id}`;
  const busy = await server.api('/agents/speaker/runs', { input: 'Which disks are full?' });
  pages['run-busy'] = `/runs/${busy.id}`;
  pages['conversation-busy'] = `/sessions/${busy.session}?agent=speaker`;
  const ids = ['editor', 'lister', 'deleter', 'former', 'asker'].map((name) => `hold=${pages[`hold-${name}`].split('/').at(-1)}`);
  Object.assign(pages, {
    'list-pending': '/', 'list-filtered': '/?tool=execute_command&risk=unknown&sort=deadline', 'list-nothing-fits': '/?tool=nothing', 'list-questions': '/?kind=input',
    'list-review': `/review?${ids.join('&')}`, 'list-review-nothing': '/review', 'list-runs': '/runs', 'list-runs-paused': '/runs?state=waiting', 'list-history': '/history',
    'list-history-denied': '/history?outcome=denied', 'list-charts': '/charts?over=24h', 'list-sessions': '/sessions', 'list-inboxes': '/inboxes', 'list-inbox-empty': '/inboxes/desk', 'list-jobs': '/jobs', 'list-jobs-ended': '/jobs?over=true',
    'grant-offer': `${pages['hold-lister']}/grant?uses=3&hours=24`, 'grant-none': '/grants', 'receipt-print': async (page) => { await page.emulateMedia({ media: 'print' }); await page.goto(`${server.base}${pages['decided-approved']}/receipt`); },
  });
  return { base: server.base, pages };
}

/** A server that has identities: signing in, who one is, what others may see, approval links. */
async function identities(browser) {
  const folder = newFolder();
  mkdirSync(join(folder, 'workspace'));
  writeFileSync(join(folder, 'form.yaml'), script(AGENTS.former(), { text: 'done' }));
  writeFileSync(join(folder, 'plain.yaml'), script(calls('I keep notes.', ['write_file', { path: 'notes.txt', content: 'Milk, bread\n' }]), { text: 'done' }));
  const config = join(folder, 'standfast.yaml');
  writeFileSync(config, `
llms: {plain: {type: scripted, script: plain.yaml}, form: {type: scripted, script: form.yaml}}
server: {auth: {api_keys: true}, links: {key: 'a key of links that is long enough', sign_in: none, issue_by_admin: true}}
people: {alice: {groups: [ops]}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
tools: {write_file: {type: write_file, requires_approval: true}, suspend: {type: suspend-for-input}}
agents:
  writer: {llm: plain, session_store: main, approvers: ['group:ops'], tools: [write_file], task: {input_timeout: 2h}}
  former: {llm: form, session_store: main, approvers: ['group:ops'], tools: [suspend], task: {}}
`);
  const server = await started('--config', config);
  const keyOf = (user, ...more) => execFileSync(BINARY, ['keys', 'create', '--user', user, ...more, '--config', config], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();
  const [ann, bob, root] = [keyOf('ann'), keyOf('bob', '--group', 'ops'), keyOf('root', '--role', 'admin', '--scope', 'admin')];
  const ask = (...more) => asking(server.base, ...more);
  const linked = async (agent) => {
    const run = await ask(ann, `/agents/${agent}/runs`, { input: 'Keep my shopping list', wait: 'settled' });
    const hold = run.holds[0].id;
    const { url } = await ask(root, `/holds/${hold}/link`, { for: 'alice' });
    return { hold, address: new URL(url).pathname };
  };
  const [open, form, decided] = [await linked('writer'), await linked('former'), await linked('writer')];
  await ask(bob, `/holds/${decided.hold}/resolve`, { resolution: 'approve' });
  const signedOut = { 'sign-in': '/', 'link-approval': open.address, 'link-form': form.address, 'link-decided': decided.address, 'link-invalid': '/link/nonsense' };
  const wrong = async (page) => {
    await page.goto(`${server.base}/sign-in`);
    await page.getByLabel('API key').fill('sf_wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
  };
  // For pages of somebody who has signed in.
  const state = await signedIn(browser, server.base, ann);
  return [
    { base: server.base, pages: { ...signedOut, 'sign-in-wrong': wrong } },
    { base: server.base, state, pages: { me: '/me', 'hold-not-yours': `/approve/${open.hold}`, 'list-not-yours': '/', 'inboxes-none': '/inboxes' } },
  ];
}

/** A login that a tool needs, where the packages of the MCP servers are installed. */
async function login(browser) {
  const folder = newFolder();
  const port = await freePort();
  writeFileSync(join(folder, 'script.yaml'), 'replies:\n- calls:\n  - {tool: payments__pay, arguments: {to: Ann}}\n- text: done\n');
  const config = join(folder, 'standfast.yaml');
  writeFileSync(config, `
llms: {script: {type: scripted, script: script.yaml}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
agents: {helper: {llm: script, session_store: main, tools: [payments], task: {}}}
tools:
  payments: {type: mcp, url: 'http://127.0.0.1:${port}/mcp', overrides: {pay: {requires_approval: false}}}
`);
  const mcp = spawn(PYTHON, [PROTECTED, folder, String(port)], { stdio: 'ignore' });
  atEnd(() => mcp.kill());
  await until('the MCP server listens', () => fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false));
  const server = await started('--config', config);
  const { hold, run } = await server.held('helper', 'Pay Ann');
  const { session } = await server.api(run);
  return { base: server.base, pages: { 'hold-login': hold, 'login': hold.replace('/approve/', '/login/'), 'conversation-login': `/sessions/${session}?agent=helper` } };
}

/** The demo, step by step. */
async function demo() {
  const empty = await started();
  const asked = await started();
  const ask = async (page, server) => {
    await page.goto(`${server.base}/first-minute`);
    const button = page.getByRole('button', { name: 'Ask it' });
    if (await button.count() > 0) await button.click();
    await page.getByText('In a terminal').waitFor();
  };
  const again = await started();
  await again.held('ops', 'Free some space');
  await again.kill();
  await again.start();
  const done = await started();
  const { hold } = await done.held('ops', 'Free some space');
  await done.api(`/holds/${hold.split('/').at(-1)}/resolve`, { resolution: 'approve' });
  return [
    { base: empty.base, pages: { 'empty-pending': '/', 'empty-sessions': '/sessions', 'empty-runs': '/runs', 'empty-history': '/history', 'empty-charts': '/charts', 'empty-inboxes': '/inboxes', 'empty-jobs': '/jobs', 'first-minute-1': '/first-minute' } },
    { base: asked.base, pages: { 'first-minute-2': (page) => ask(page, asked) } },
    { base: again.base, pages: { 'first-minute-3': '/first-minute' } },
    { base: done.base, pages: { 'first-minute-4': '/first-minute' } },
  ];
}

/** Something of everything, of the tests of all pages. */
async function everything() {
  const here = await world();
  atEnd(() => here.stop());
  const refused = Object.entries(REFUSED).map(([name, [address]]) => [`refused-${name}`, address]);
  return { base: here.server.base, pages: { ...await fill(here), ...Object.fromEntries(refused) } };
}

/** Each begins its servers; what it gives is a list of pages by name, or several. */
export const SERVERS = [everything, approvers, identities, login, demo, ...STATES];

/** Every page, by the server that has it; each server begins when it is wanted. */
export async function* every(browser) {
  for (const begin of SERVERS) yield* [await begin(browser)].flat();
}
