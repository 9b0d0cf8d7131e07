// Talking to agents in Debian's Chromium against the real program, with JavaScript and without.
//
// S0-70: the page keeps the task and sends it. S0-71: a task that was paused is found again. S0-72: paused looks unlike working.
// S0-73: a lost state is said, with an offer to start again. S0-74: each approval is a widget of its own. S0-76: all of it over
// a reload and a restart.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch, Server } from './server.js';
import { until, watch } from './watch.js';

const PAUSED = '⏸️ Task paused - waiting for your input';
const REFUSED = /status of 4(09|22)|ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|CONNECTION_RESET|EMPTY_RESPONSE)/;

let browser;
let server;
let folder;
let troubles;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  folder = mkdtempSync(join(tmpdir(), 'standfast-talk-'));
  server = await new Server().start();
});
afterEach(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
  assert.deepEqual(troubles, []);
});

/** Every part is tried with JavaScript and without. */
function both(name, run) {
  for (const javaScriptEnabled of [true, false]) {
    test(`${name}, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      const context = await browser.newContext({ javaScriptEnabled });
      const page = watch(await context.newPage(), () => server.base, troubles, REFUSED);
      await run(page, context);
      await context.close();
    });
  }
}

async function begin(page, agent, text) {
  await page.goto(`${server.base}/sessions`);
  await page.getByLabel('Agent', { exact: true }).selectOption(agent);
  await page.getByLabel('Message').fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('heading', { name: `Conversation with ${agent}` }).waitFor();
}

const press = (page, name) => page.getByRole('button', { name, exact: true }).click();

both('a message, a pause that looks unlike working, an approval after kill -9, and the next message (S0-70, S0-72, S0-76)', async (page) => {
  await begin(page, 'ops', 'Free some space');
  await page.getByText(PAUSED).waitFor();
  await page.getByText('Task paused - click approve/deny to continue').waitFor();
  assert.equal(await page.locator('[data-arguments]').textContent(), '{"path": "/srv/cache/old"}');
  assert.equal(await page.title(), '(1 approval) ⏸️ ops · Standfast');
  const address = page.url();
  await page.reload();
  await page.getByText(PAUSED).waitFor();
  await server.kill();
  await server.start();
  await page.goto(address);
  await page.getByText(PAUSED).waitFor();
  await press(page, '✓ Approve');
  await page.getByText('Approved by local').waitFor();
  await page.getByText('I have dealt with the old cache.').waitFor();
  assert.equal(await page.getByText(PAUSED).count(), 0, 'paused looks unlike done');
  assert.equal(server.effects().length, 1);
  await page.getByLabel('Continue the conversation').fill('And once more');
  await press(page, 'Send');
  await page.getByText(PAUSED).waitFor();
  await page.getByText('And once more').waitFor();
  await page.getByText('Free some space').first().waitFor();
  await press(page, '✕ Deny');
  await page.getByText('Denied by local').waitFor();
  assert.equal(server.effects().length, 1);
});

both('options, a text box and a form are answered in the conversation', async (page) => {
  await begin(page, 'travel', 'Book the trip');
  await press(page, '09:40, one change, 54 EUR');
  await page.getByLabel('Your answer').fill('Late');
  await press(page, '✓ Send the answer');
  await page.getByText('The train is booked').waitFor();
  await begin(page, 'receipts', 'Read it');
  await page.getByLabel('Amount').fill('-3');
  await page.getByLabel('Yes').check();
  await press(page, '✓ Send the answer');
  await page.locator('.hint').getByText('the minimum of 0').waitFor();
  assert.equal(await page.getByLabel('Amount').inputValue(), '-3', 'what was entered stays');
  await page.getByLabel('Amount').fill('12.50');
  await press(page, '✓ Send the answer');
  await page.getByText('The receipt is in the books').waitFor();
});

both('several pauses of one task are decided independently, by the widget of each (S0-74)', async (page) => {
  await server.stop();
  mkdirSync(join(folder, 'workspace'));
  writeFileSync(join(folder, 'script.yaml'), `replies:
- calls:
  - {tool: write_file, arguments: {path: one.txt, content: "1"}}
  - {tool: write_file, arguments: {path: two.txt, content: "2"}}
- text: both are dealt with
`);
  writeFileSync(join(folder, 'standfast.yaml'), `
llms: {script: {type: scripted, script: script.yaml}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
tools: {write_file: {type: write_file, requires_approval: true}}
agents: {helper: {llm: script, session_store: main, tools: [write_file], task: {}}}
`);
  server = await new Server('--config', join(folder, 'standfast.yaml')).start();
  await begin(page, 'helper', 'Write two files');
  const widgets = page.locator('.widget');
  assert.equal(await widgets.count(), 2);
  const second = widgets.filter({ hasText: 'two.txt' });
  await second.getByLabel('Reason to deny').fill('only one');
  await second.getByRole('button', { name: '✕ Deny' }).click();
  await page.getByText('Denied by local').waitFor();
  await page.getByText(PAUSED).waitFor();
  assert.equal(await widgets.count(), 1);
  await widgets.getByRole('button', { name: '✓ Approve', exact: true }).click();
  await page.getByText('both are dealt with').waitFor();
  assert.equal(readFileSync(join(folder, 'workspace', 'one.txt'), 'utf8'), '1');
});

both('the session of a hold leads to its conversation, whatever its name, and the conversation back to the hold', async (page) => {
  const session = 'a/b?c&d=ü %2F"#';
  const run = await server.api('/agents/ops/runs', { input: 'Free some space', session, wait: 'settled' });
  const hold = `${server.base}/approve/${run.holds[0].id}`;
  await page.goto(hold);
  await page.locator('dt', { hasText: /^Session$/ }).locator('xpath=following-sibling::dd[1]').getByRole('link').click();
  await page.getByRole('heading', { name: 'Conversation with ops' }).waitFor();
  await page.getByText(PAUSED).waitFor();
  await page.getByText('Free some space').first().waitFor();
  await page.getByRole('link', { name: 'Details' }).click();
  await page.getByRole('heading', { name: 'Approve delete_file?' }).waitFor();
  assert.equal(page.url(), hold);
  await press(page, '✓ Approve: run it as shown');
  await page.getByRole('heading', { name: 'Approved', exact: true }).waitFor();
  await page.locator('dt', { hasText: /^Session$/ }).locator('xpath=following-sibling::dd[1]').getByRole('link').click();
  await page.getByText('Approved by local').waitFor();
});

test('a paused task is remembered by the browser, and found again (S0-70, S0-71, S0-76)', async () => {
  const context = await browser.newContext();
  const page = watch(await context.newPage(), () => server.base, troubles, REFUSED);
  await begin(page, 'ops', 'Free some space');
  await page.getByText(PAUSED).waitFor();
  const address = page.url();
  const task = JSON.parse(await page.evaluate('localStorage.getItem("standfast.task")'));
  assert.match(task.task, /^run_/);
  assert.equal(await page.locator('#main').getAttribute('data-task'), task.task);
  await server.kill();
  await server.start();
  const again = watch(await context.newPage(), () => server.base, troubles, REFUSED);
  await again.goto(`${server.base}/sessions`);
  await again.locator('#remembered').getByText('Task paused - waiting for your input').waitFor();
  await again.getByRole('link', { name: 'Open the conversation' }).click();
  await again.waitForURL(address.split('#')[0]);
  await press(again, '✓ Approve');
  await again.getByText('Approved by local').waitFor();
  await until('the task is forgotten', async () => (await again.evaluate('localStorage.getItem("standfast.task")')) === null);
  await context.close();
});

test('a task whose state is lost is said to be, and can be started again (S0-73)', async () => {
  const context = await browser.newContext();
  const page = watch(await context.newPage(), () => server.base, troubles, REFUSED);
  await begin(page, 'ops', 'Free some space');
  await page.getByText(PAUSED).waitFor();
  await page.close();
  await server.stop();
  server = await new Server().start();
  const port = server.port;
  const again = watch(await context.newPage(), () => server.base, troubles, REFUSED);
  await again.goto(`http://127.0.0.1:${port}/sessions`);
  // Another port is another origin to a browser: what it remembered of the old server is put where it would be.
  const remembered = { task: 'run_0000000000000000000000', asked: 'Free some space', agent: 'ops', href: '/sessions' };
  await again.evaluate((task) => localStorage.setItem('standfast.task', JSON.stringify(task)), remembered);
  await again.reload();
  const notice = again.locator('#remembered');
  await notice.getByText('Task state lost. Would you like to restart?').waitFor();
  await notice.getByText('execution state not found for task').waitFor();
  await notice.getByRole('link', { name: 'Yes, start again' }).click();
  assert.equal(await again.getByLabel('Message').inputValue(), 'Free some space');
  assert.equal(await again.evaluate('localStorage.getItem("standfast.task")'), null);
  await again.getByRole('button', { name: 'Send' }).click();
  await again.getByText(PAUSED).waitFor();
  await context.close();
});

both('a message that is sent twice is said once', async (page) => {
  await begin(page, 'ops', 'Free some space');
  await press(page, '✓ Approve');
  await page.getByLabel('Continue the conversation').fill('Again');
  // What was sent, to the letter: a page that looks at itself exchanges the form's mark before.
  const sent = page.waitForRequest((request) => request.method() === 'POST');
  await press(page, 'Send');
  await page.getByText(PAUSED).waitFor();
  const address = page.url().split('#')[0];
  const body = new URLSearchParams((await sent).postData());
  const cookie = (await page.context().cookies()).map((one) => `${one.name}=${one.value}`).join('; ');
  const repeated = await fetch(address, { method: 'POST', body, headers: { cookie, origin: server.base }, redirect: 'manual' });
  assert.equal(repeated.status, 303);
  const { runs } = await server.api('/runs');
  assert.equal(runs.length, 2);
});
