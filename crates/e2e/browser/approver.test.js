// The approver's pages in Debian's Chromium, with script off: what a hold shows, the list with its filters, several at once,
// the history, runs and charts.
//
// S4-17, S4-18, S4-26: what waits is shown, found and answered in a browser. T17, T20: text of models, tools and files runs
// nothing and hides nothing, wherever it is shown.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync, mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch, Server } from './server.js';
import { until } from './watch.js';

const NASTY = '</pre></dd><img src=http://127.0.0.1:1/x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>[x](javascript:alert(4))\u202e';
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

let browser;
let server;
let context;
let page;
let troubles;
let folder;

const script = (...replies) => `replies:\n${replies.map((reply) => `- ${JSON.stringify(reply)}`).join('\n')}\n`;
const calls = (text, ...asked) => ({ text, calls: asked.map(([tool, args]) => ({ tool, arguments: args })) });

/** An agent whose model says this and then that it is done. */
function agentOf(name, reply) {
  writeFileSync(join(folder, `${name}.yaml`), script(reply, { text: 'All **done**.' }));
  return {
    llm: `llms: {${name}: {type: scripted, script: ${name}.yaml}}`,
    name,
  };
}

const AGENTS = {
  editor: () => calls('I will **fix** the greeting.', ['edit_file', { path: 'hello.txt', old: 'Hello', new: 'Grüezi' }]),
  writer: () => calls(NASTY, ['write_file', { path: 'new.txt', content: `${NASTY}\nline two\n` }]),
  lister: () => calls('Looking around.', ['execute_command', { command: 'ls -la' }]),
  remover: () => calls('Cleaning up.', ['execute_command', { command: "rm -rf 'a b'" }]),
  caller: () => calls('Calling.', ['http_request', { method: 'POST', url: 'https://example.org/a?b=c', body: '{"name": "M\\u00fcller"}' }]),
  table: () => calls('Writing rows.', ['write_rows', JSON.stringify({ note: 'NAME', rows: [{ a: 1, b: 'x' }, { a: 2, b: NASTY }] }).replace('NAME', 'M\\u00fcller')]),
  asker: () => calls('I wonder.', ['suspend', { reason: 'Two ways', question: 'Which way?', options: ['left', 'right'], data: { who: 'M\u00fcller', ways: [{ name: 'left', km: 1 }, { name: 'right', km: 2 }] } }]),
  leader: () => calls('I hand it over.', ['hand_over', { message: 'List what is there' }]),
  picture: () => calls('A picture.', ['write_rows', { rows: [{ a: 1, b: 'y' }], picture: `data:image/png;base64,${PIXEL}` }]),
};

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'standfast-approver-'));
  const workspace = join(folder, 'workspace');
  mkdirSync(workspace);
  const agents = Object.entries(AGENTS).map(([name, reply]) => agentOf(name, reply()));
  const llms = agents.map(({ name }) => `  ${name}: {type: scripted, script: ${name}.yaml}`).join('\n');
  const ask = agents.map(({ name }) => `  ${name}: {llm: ${name}, session_store: main, tools: [edit_file, write_file, execute_command, http_request, write_rows, suspend, hand_over], task: {}}`).join('\n');
  writeFileSync(join(folder, 'standfast.yaml'), `
llms:
${llms}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
agents:
${ask}
tools:
  edit_file: {type: edit_file}
  write_file: {type: write_file}
  execute_command: {type: command, requires_approval: true}
  http_request: {type: http_request}
  suspend: {type: suspend-for-input}
  hand_over: {type: agent, agent: lister, requires_approval: false}
  write_rows: {type: external, url: 'http://127.0.0.1:9/', allowed_hosts: ['127.0.0.1:9'], requires_approval: true, description: Writes rows}
`);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

function watch(watched) {
  watched.on('console', (message) => { if (message.type() === 'error') troubles.push(message.text()); });
  watched.on('pageerror', (error) => troubles.push(String(error)));
  watched.on('dialog', (dialog) => { troubles.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  watched.on('request', (request) => { if (!request.url().startsWith(server.base)) troubles.push(request.url()); });
  return watched;
}

beforeEach(async () => {
  troubles = [];
  rmSync(join(folder, 'sessions.db'), { force: true });
  for (const end of ['-wal', '-shm']) rmSync(join(folder, `sessions.db${end}`), { force: true });
  writeFileSync(join(folder, 'workspace', 'hello.txt'), 'one\nHello\nthree\n');
  rmSync(join(folder, 'workspace', 'new.txt'), { force: true });
  server = await new Server('--config', join(folder, 'standfast.yaml')).start();
  context = await browser.newContext({ javaScriptEnabled: false });
  page = watch(await context.newPage());
  page.setDefaultTimeout(15_000);
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

async function open(path, status = 200) {
  const response = await page.goto(server.base + path);
  assert.equal(response.status(), status, path);
}

const press = (name) => page.getByRole('button', { name }).click();
const heading = (name) => page.getByRole('heading', { name, exact: true }).waitFor();
const shot = async (name) => {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png`, fullPage: true });
};

async function inAllLooks(name) {
  if (!process.env.SCREENSHOTS) return;
  await shot(`${name}-light`);
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot(`${name}-dark`);
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 390, height: 844 });
  await shot(`${name}-phone`);
  await page.setViewportSize({ width: 1280, height: 720 });
}

test('an edit is shown as a diff, with what was asked, what was said, what follows and who decides', async () => {
  const { hold } = await server.held('editor', 'Please greet people in Zurich');
  await open(hold);
  await page.getByText('Please greet people in Zurich').waitFor();
  assert.equal(await page.locator('.before .said strong').textContent(), 'fix');
  const lines = await page.locator('.diff > div').allTextContents();
  assert.deepEqual(lines, ['@@ -1 +1 @@', ' one', '-Hello', '+Grüezi', ' three']);
  await page.getByText('edit_file runs once, with exactly these arguments.').waitFor();
  await page.getByText('there is no deadline').waitFor();
  assert.equal(await page.getByText('Cannot be undone').count(), 0);
  assert.equal(await page.getByText('The file changed after this was asked').count(), 0);
  await inAllLooks('hold-diff');
  await press('Approve: run it as shown');
  await heading('Approved');
  assert.equal(readFileSync(join(folder, 'workspace', 'hello.txt'), 'utf8'), 'one\nGrüezi\nthree\n');
});

test('a file that changed since the question is said loudly, and an edit that would fail too', async () => {
  const { hold } = await server.held('editor');
  const file = join(folder, 'workspace', 'hello.txt');
  writeFileSync(file, 'one\nHello\nthree\nfour\n');
  const later = new Date(Date.now() + 60_000);
  utimesSync(file, later, later);
  await open(hold);
  await page.getByText('The file changed after this was asked').waitFor();
  // What counts is what it has, not when it was written.
  writeFileSync(file, 'one\nHello\nthree\n');
  utimesSync(file, later, later);
  await open(hold);
  assert.equal(await page.getByText('The file changed after this was asked').count(), 0, 'it was only written again');
  const before = new Date(Date.now() - 3_600_000);
  writeFileSync(file, 'one\nHello\nthree\nfour\n');
  utimesSync(file, before, before);
  await open(hold);
  await page.getByText('The file changed after this was asked').waitFor();
  writeFileSync(file, 'nothing of the kind\n');
  await open(hold);
  await page.getByText('As the file is now, the call would fail').waitFor();
});

test('a new file is all additions, and text of models and files is never markup', async () => {
  const { hold } = await server.held('writer', NASTY);
  await open(hold);
  await page.getByText('new.txt, new file').waitFor();
  assert.equal(await page.locator('main script, main iframe, main img, main svg, main a[href^="javascript"]').count(), 0);
  assert.equal((await page.content()).includes('\u202e'), false);
  assert.match(await page.locator('.diff .plus').first().textContent(), /onerror/);
  const raw = await page.request.get(`${server.base}${hold}/raw`);
  assert.equal(raw.headers()['content-type'], 'text/plain; charset=utf-8');
  assert.match(raw.headers()['content-security-policy'], /sandbox/);
  assert.equal(JSON.parse(await raw.text()).path, 'new.txt');
});

test('a command is shown word by word with what the sandbox allows; only what is known is claimed', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  assert.deepEqual(await page.locator('.argv li').allTextContents(), ['ls', '-la']);
  await page.getByText('use the network').waitFor();
  await page.locator('.signs').getByText('Read-only').waitFor();
  assert.equal(await page.getByText('Cannot be undone').count(), 0);
  await inAllLooks('hold-command');
  const other = await server.held('remover');
  await open(other.hold);
  assert.deepEqual(await page.locator('.argv li').allTextContents(), ['rm', '-rf', 'a b']);
  assert.equal(await page.locator('.signs .sign.irreversible, .signs [class*=risk-]').count(), 0);
});

test('a request is shown with method, address and body', async () => {
  const { hold } = await server.held('caller');
  await open(hold);
  assert.equal(await page.locator('.method').textContent(), 'POST');
  await page.getByText('https://example.org/a?b=c').first().waitFor();
  await page.getByText('Müller').waitFor();
});

test('arguments are a tree with real characters, lists of objects are tables, pictures are previews', async () => {
  const { hold } = await server.held('table');
  await open(hold);
  assert.deepEqual(await page.locator('.json th').allTextContents(), ['a', 'b']);
  await page.locator('.json').getByText('Müller').waitFor();
  assert.equal(await page.locator('main script, main img').count(), 0);
  await inAllLooks('hold-table');
  const picture = await server.held('picture');
  await open(picture.hold);
  const image = page.locator('.media img');
  await image.waitFor();
  const served = await page.request.get(server.base + await image.getAttribute('src'));
  assert.equal(served.headers()['content-type'], 'image/png');
  assert.equal(served.headers()['content-disposition'], 'attachment');
  assert.match(served.headers()['content-security-policy'], /sandbox/);
});

test('filters combine, live in the address, and an unknown one is an error', async () => {
  await server.held('editor');
  await server.held('lister');
  await server.held('remover');
  await open('/');
  assert.match(await page.title(), /^\(3\) Pending/);
  assert.equal(await page.locator('.list > li').count(), 3);
  await inAllLooks('pending');
  await page.getByLabel('Search what is asked').fill('grüezi');
  await page.getByRole('button', { name: 'Search' }).click();
  assert.equal(await page.locator('.list > li').count(), 1);
  assert.match(page.url(), /q=gr%C3%BCezi/);
  await open('/?tool=execute_command&risk=read_only');
  assert.equal(await page.locator('.list > li').count(), 1);
  await open('/?tool=execute_command&risk=unknown&sort=deadline&mine=1');
  assert.equal(await page.locator('.list > li').count(), 1);
  await open('/?deadline=passed');
  await page.getByText('Nothing pending fits these filters').waitFor();
  for (const bad of ['/?kind=aproval', '/?tol=x', '/?risk=high', '/history?outcome=maybe', '/runs?state=odd', '/charts?over=1y']) {
    await open(bad, 400);
  }
  troubles = troubles.filter((text) => !/status of 400/.test(text));
});

test('after a decision the next hold of the list opens, with what just happened', async () => {
  await server.held('lister');
  await server.held('remover');
  await server.held('editor');
  await open('/?tool=execute_command');
  await page.locator('.list > li a').first().click();
  await press('Approve: run it as shown');
  await page.getByRole('status').getByText('Approved: execute_command').waitFor();
  assert.deepEqual(await page.locator('.argv li').allTextContents(), ['rm', '-rf', 'a b']);
  await press('Deny: do not run it');
  await heading('Denied');
  await open('/');
  assert.equal(await page.locator('.list > li').count(), 1);
});

test('several are decided together after a page that shows each', async () => {
  const first = await server.held('lister');
  const second = await server.held('editor');
  await server.held('remover');
  await open('/');
  for (const box of await page.getByRole('checkbox', { name: /Select/ }).all()) await box.check();
  await page.getByRole('checkbox', { name: /Select/ }).nth(2).uncheck();
  await press('Review the selected ones together');
  await heading('Review: 2 holds');
  await page.locator('.diff').waitFor();
  await page.locator('.argv').waitFor();
  await inAllLooks('review');
  await server.api(`/holds/${first.hold.split('/').at(-1)}/resolve`, { resolution: 'deny' });
  await press('Approve all 2 as shown');
  await heading('What came of it: 2 holds');
  await page.getByText('Approved by').waitFor();
  assert.equal((await server.api(`/runs/${second.id}`)).status !== 'held', true);
  troubles = troubles.filter((text) => !/status of 409/.test(text));
});

test('a question is answered on the page of several, beside an approval; what the agent shows with it is a tree', async () => {
  const asked = await server.held('asker');
  await server.held('lister');
  await open('/');
  for (const box of await page.getByRole('checkbox', { name: /Select/ }).all()) await box.check();
  await press('Review the selected ones together');
  await heading('Review: 2 holds');
  const question = page.locator('.widget');
  assert.deepEqual(await question.locator('.json th').allTextContents(), ['name', 'km']);
  await question.getByText('Müller').waitFor();
  await inAllLooks('review-mixed');
  await question.getByRole('button', { name: 'right', exact: true }).click();
  await heading('Review: 2 holds');
  await page.getByText('Answered by local').waitFor();
  assert.equal((await server.api(`/runs/${asked.id}`)).status, 'completed');
  await press('Approve it as shown');
  await heading('What came of it: 2 holds');
  await page.getByText('Approved by local').waitFor();
  await open(asked.hold);
  assert.deepEqual(await page.locator('.asked .json th').allTextContents(), ['name', 'km']);
  await page.getByText('Raw data, as the agent sent it').click();
  await page.getByText('"ways"').waitFor();
});

test('a sub-run stands within the timeline of the run that started it, and the page follows it', async () => {
  const { id } = await server.api('/agents/leader/runs', { input: 'Hand it over', wait: 'settled' });
  /** @type {{ id: string, kind: string } | undefined} */
  let held;
  await until('the sub-run is held', async () => {
    held = (await server.api('/holds')).holds.find((/** @type {{ kind: string }} */ hold) => hold.kind === 'approval');
    return held !== undefined;
  });
  await open(`/runs/${id}`);
  const nested = page.locator('.timeline > li .sub-run');
  assert.equal(await nested.count(), 1);
  await nested.getByText('Sub-run of lister').waitFor();
  assert.ok(await nested.locator('.timeline > li').count() >= 3);
  await inAllLooks('run-nested');
  const withScript = await browser.newContext();
  const followed = await withScript.newPage();
  await followed.goto(`${server.base}/runs/${id}`);
  await server.api(`/holds/${held?.id}/resolve`, { resolution: 'deny' });
  await followed.locator('.sub-run summary .badge', { hasText: 'Completed' }).waitFor();
  await withScript.close();
});

test('the history has who, when and how, and is exported as CSV and JSON', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  await press('Deny: do not run it');
  await heading('Denied');
  const { run } = await server.held('editor');
  await open(run);
  await page.locator('summary', { hasText: 'Cancel this run' }).click();
  await press('Cancel the run');
  await open('/history');
  assert.deepEqual(await page.locator('.history tbody .badge').allTextContents(), ['Withdrawn: the run ended first', 'Denied']);
  await inAllLooks('history');
  await open('/history?outcome=denied&tool=execute_command');
  assert.equal(await page.locator('.history tbody tr').count(), 1);
  const csv = await (await page.request.get(`${server.base}/history.csv?outcome=denied`)).text();
  assert.equal(csv.trim().split('\r\n').length, 2);
  const json = await (await page.request.get(`${server.base}/history.json`)).json();
  assert.deepEqual(json.holds.map((one) => one.outcome), ['withdrawn', 'denied']);
  const { holds } = await server.api('/holds?state=denied');
  assert.equal(holds.length, 1);
  assert.equal(holds[0].state, 'decided');
});

test('runs have titles and states; a run has its timeline, its picture and its raw events', async () => {
  const { run, id } = await server.held('editor', 'Greet people <b>nicely</b>');
  await open('/runs?state=waiting');
  await page.getByText('Greet people <b>nicely</b>').waitFor();
  await inAllLooks('runs');
  await open('/runs?state=completed');
  await page.getByText('No run fits these filters').waitFor();
  await open(run);
  await page.getByText('⏸️ Paused').waitFor();
  await inAllLooks('run');
  const svg = await page.request.get(`${server.base}${run}/timeline.svg`);
  assert.equal(svg.headers()['content-type'], 'image/svg+xml');
  assert.match(await svg.text(), /^<svg /);
  const raw = await page.request.get(`${server.base}/api/v1/runs/${id}/events`);
  assert.equal(raw.status(), 200);
});

test('charts have figures of what was decided, as pictures and as JSON', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  await press('Approve: run it as shown');
  await heading('Approved');
  await server.held('editor');
  await open('/charts?over=24h');
  await heading('Time to decision by tool');
  assert.ok(await page.locator('svg.chart').count() >= 3);
  await inAllLooks('charts');
  const figures = await (await page.request.get(`${server.base}/charts.json?over=24h`)).json();
  assert.equal(figures.open_now, 1);
  assert.equal(figures.decided, 1);
  assert.equal(figures.time_to_decision_by_tool[0].name, 'execute_command');
  assert.deepEqual(figures.outcomes_by_tool[0].outcomes, { approved: 1 });
});
