// Deciding by keyboard alone in Debian's Chromium.
//
// WCAG 2.1.4: single keys can be switched off, and are never taken from somebody who types. A call that cannot be undone is not
// approved by one key.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch, Server } from './server.js';
import { watch } from './watch.js';

let browser;
let server;
let context;
let page;
let troubles;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  server = await new Server().start();
  context = await browser.newContext();
  page = watch(await context.newPage(), () => server.base, troubles);
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

const focused = () => page.evaluate('document.activeElement.textContent || document.activeElement.name || document.activeElement.tagName');
const ready = () => page.locator('html[data-script=ready]').waitFor({ state: 'attached' });

test('j and k move, Enter opens, a needs a second key where nothing can be undone, d asks for the reason', async () => {
  for (const input of ['First', 'Second', 'Third']) await server.held('ops', input);
  await page.goto(`${server.base}/sessions`);
  await ready();
  await page.keyboard.press('j');
  assert.match(await focused(), /Third/);
  await page.keyboard.press('J');
  assert.match(await focused(), /Second/);
  await page.keyboard.press('k');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Conversation with ops' }).waitFor();
  await ready();
  await page.keyboard.press('A');
  await page.locator('#live').getByText('cannot be undone').waitFor();
  assert.match(await focused(), /Approve/);
  assert.deepEqual(server.effects(), [], 'one key approves nothing that cannot be undone');
  await page.keyboard.press('Enter');
  await page.getByText('Approved by local').waitFor();
  assert.equal(server.effects().length, 1);
  await page.goBack();
  await page.goto(`${server.base}/sessions`);
  await ready();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Conversation with ops' }).waitFor();
  await ready();
  await page.keyboard.press('d');
  assert.equal(await focused(), 'reason');
  await page.keyboard.type('just a jacket, not a deed');
  assert.equal(await page.getByLabel('Reason to deny').inputValue(), 'just a jacket, not a deed', 'keys are not taken from fields');
  await page.keyboard.press('Enter');
  await page.getByText('Denied by local').waitFor();
});

test('a call that can be undone is approved by one key, and keys can be switched off; pages name the keys that work', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'standfast-keys-'));
  writeFileSync(join(folder, 'script.yaml'), 'replies:\n- calls:\n  - {tool: read_file, arguments: {path: a.txt}}\n- text: done\n');
  writeFileSync(join(folder, 'standfast.yaml'), `
llms: {script: {type: scripted, script: script.yaml}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
tools: {read_file: {type: read_file, requires_approval: true}}
agents: {helper: {llm: script, session_store: main, tools: [read_file], task: {}}}
`);
  const other = await new Server('--config', join(folder, 'standfast.yaml')).start();
  page = watch(await context.newPage(), () => other.base, troubles);
  const begin = async () => {
    const run = await other.held('helper');
    const { session } = await other.api(run.run);
    await page.goto(`${other.base}/sessions/${session}?agent=helper`);
    await ready();
  };
  await page.goto(`${other.base}/`);
  await ready();
  await page.keyboard.press('?');
  await page.getByRole('heading', { name: 'Keyboard shortcuts' }).waitFor();
  await page.getByLabel('Use these shortcuts').uncheck();
  await begin();
  await page.keyboard.press('a');
  await page.getByRole('button', { name: '✓ Approve', exact: true }).waitFor();
  await page.goto(`${other.base}/`);
  await ready();
  await page.getByRole('button', { name: 'Select all on this page' }).waitFor();
  assert.equal(await page.getByText('all keys').isVisible(), false, 'keys that are switched off are not named');
  await page.goto(`${other.base}/me`);
  await page.getByLabel('Use these shortcuts').check();
  await page.goto(`${other.base}/`);
  await page.getByText('all keys').waitFor();
  await begin();
  await page.keyboard.press('e');
  assert.equal(await focused(), await page.getByLabel('Arguments (JSON)').textContent());
  await page.keyboard.press('Escape');
  await page.keyboard.press('a');
  await page.getByText('Approved by local').waitFor();
  await page.close();
  await other.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('a call of which nobody knows whether it can be undone needs a second key, on every page that has it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'standfast-keys-'));
  mkdirSync(join(folder, 'workspace', 'a'), { recursive: true });
  writeFileSync(join(folder, 'script.yaml'), 'replies:\n- calls:\n  - {tool: execute_command, arguments: {command: rm -rf a}}\n- text: done\n');
  writeFileSync(join(folder, 'standfast.yaml'), `
llms: {script: {type: scripted, script: script.yaml}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
tools: {execute_command: {type: command, requires_approval: true}}
agents: {helper: {llm: script, session_store: main, tools: [execute_command], task: {}}}
`);
  const other = await new Server('--config', join(folder, 'standfast.yaml')).start();
  page = watch(await context.newPage(), () => other.base, troubles);
  const { id, run, hold } = await other.held('helper');
  const { session } = await other.api(run);
  const name = hold.split('/').at(-1);
  for (const address of [hold, `/sessions/${session}?agent=helper`, `/review?hold=${name}`]) {
    await page.goto(other.base + address);
    await ready();
    await page.keyboard.press('a');
    await page.locator('#live').getByText('Nothing says that this can be undone').waitFor();
    assert.match(await focused(), /Approve/);
    assert.equal((await other.api(`/runs/${id}`)).status, 'held', address);
  }
  await page.keyboard.press('Enter');
  await page.getByText('Approved by local').waitFor();
  await page.close();
  await other.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('e goes to the first field of a form that people see, and Ctrl+Enter sends it', async () => {
  const { run, hold } = await server.held('receipts');
  const { session } = await server.api(run);
  for (const address of [hold, `/sessions/${session}?agent=receipts`]) {
    await page.goto(server.base + address);
    await ready();
    await page.keyboard.press('e');
    assert.equal(await page.getByLabel('Amount').evaluate((field) => field === document.activeElement), true, address);
  }
  await page.keyboard.type('12.50');
  await page.getByLabel('Yes').check();
  await page.getByLabel('Amount').press('Control+Enter');
  await page.getByText('Answered by local').waitFor();
});

test('x selects in a list, and / goes to the search', async () => {
  for (const input of ['First', 'Second']) await server.held('ops', input);
  await page.goto(`${server.base}/`);
  await ready();
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  assert.equal(await page.getByRole('checkbox', { name: /Select/ }).first().isChecked(), true);
  await page.keyboard.press('j');
  await page.keyboard.press('X');
  assert.equal(await page.getByRole('checkbox', { name: /Select/, checked: true }).count(), 2);
  await page.keyboard.press('x');
  assert.equal(await page.getByRole('checkbox', { name: /Select/, checked: true }).count(), 1);
  for (const all of [2, 0, 2]) {
    await page.getByRole('button', { name: 'Select all on this page' }).click();
    assert.equal(await page.getByRole('checkbox', { name: /Select/, checked: true }).count(), all);
  }
  await page.getByRole('checkbox', { name: /Select/ }).nth(1).uncheck();
  await page.keyboard.press('/');
  assert.equal(await page.getByLabel('Search what is asked').evaluate((field) => field === document.activeElement), true);
  await page.keyboard.type('x/j');
  assert.equal(await page.getByLabel('Search what is asked').inputValue(), 'x/j', 'keys are not taken from fields');
  assert.equal(await page.getByRole('checkbox', { name: /Select/, checked: true }).count(), 1);
});

test('a list of holds is worked through by keyboard, with at most three keys for each, and none is lost', async () => {
  const holds = 8;
  for (let at = 0; at < holds; at += 1) await server.held(at % 4 === 3 ? 'travel' : 'ops', `Number ${at}`);
  await page.goto(`${server.base}/`);
  await ready();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  for (let at = 0; at < holds; at += 1) {
    await page.waitForURL(/\/approve\//);
    await ready();
    const address = page.url();
    if (await page.locator('form[data-action=approve]').count() > 0) {
      await page.keyboard.press('a');
      await page.keyboard.press('Enter');
    } else {
      await page.keyboard.press('e');
      await page.keyboard.press('Enter');
    }
    await page.waitForURL((url) => url.toString() !== address);
  }
  assert.equal(server.effects().length, 6);
});
