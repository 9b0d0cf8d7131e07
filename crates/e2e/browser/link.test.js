// An approval link in Debian's Chromium at the width of a phone, as somebody opens it from a mail: without a session, a cookie or a
// script. T6, T7: looking decides nothing, the form decides once, and nobody is told the address.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { AGENTS, script } from './agents.js';
import { freePort } from './provider.js';
import { BINARY, launch, Server } from './server.js';
import { accessible, watch } from './watch.js';

// The mail server of the tests of mail, with the Python that `cargo xtask test` has installed it for.
const TARGET = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL('../../../target', import.meta.url));
const PYTHON = join(TARGET, 'mail-server/bin/python');
const MAIL = fileURLToPath(new URL('../tests/outside/mail', import.meta.url));

let browser;
let folder;
let server;
let troubles;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  folder = mkdtempSync(join(tmpdir(), 'standfast-link-'));
  mkdirSync(join(folder, 'workspace'));
  const call = JSON.stringify({ path: 'notes.txt', content: '<b>hello</b>' });
  writeFileSync(join(folder, 'script.yaml'), `replies:\n- calls:\n  - {tool: write_file, arguments: '${call}'}\n- text: done\n`);
  writeFileSync(join(folder, 'form.yaml'), script(AGENTS.former(), { text: 'done' }));
  writeFileSync(join(folder, 'standfast.yaml'), `
llms: {script: {type: scripted, script: script.yaml}, form: {type: scripted, script: form.yaml}}
server: {links: {key: 'a key of links that is long enough', sign_in: none, issue_by_admin: true}}
people: {alice: {groups: [ops]}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
tools: {write_file: {type: write_file, requires_approval: true}, suspend: {type: suspend-for-input}}
agents:
  writer: {llm: script, session_store: main, approvers: ['group:ops'], tools: [write_file], task: {input_timeout: 2h}}
  former: {llm: form, session_store: main, approvers: ['group:ops'], tools: [suspend], task: {}}
`);
  server = await new Server('--config', join(folder, 'standfast.yaml')).start();
});
afterEach(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
  assert.deepEqual(troubles, []);
});

/** A link of alice to a new hold. */
async function link(agent = 'writer', input = 'Please') {
  const run = await server.api(`/agents/${agent}/runs`, { input, wait: 'settled' });
  const issued = execFileSync(BINARY, ['holds', 'link', run.holds[0].id, '--for', 'alice', '--server', server.base, '--json']).toString();
  return { url: JSON.parse(issued).url, run: run.id };
}

for (const javaScriptEnabled of [true, false]) {
  test(`a phone decides by a link, ${javaScriptEnabled ? 'with' : 'without'} script`, async () => {
    const { url, run } = await link();
    const context = await browser.newContext({ viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true, javaScriptEnabled });
    const page = watch(await context.newPage(), () => server.base, troubles);
    const referers = [];
    page.on('request', (request) => { referers.push(request.headers().referer); });
    await page.goto(url);
    await page.getByRole('heading', { name: 'Approve write_file?' }).waitFor();
    await page.getByText('<b>hello</b>').first().waitFor();
    await page.getByText('Its tool asks before every call.').waitFor();
    assert.deepEqual(await page.locator('.before > .text').allTextContents(), ['Please'], 'what was asked');
    assert.equal(await page.locator('.before a').count(), 0, 'a link leads to no timeline');
    await page.getByText('write_file runs once, with exactly these arguments.').waitFor();
    await page.getByText('Who may decide').waitFor();
    if (javaScriptEnabled) {
      await accessible(page, 'approval link');
      const width = await page.evaluate('document.documentElement.scrollWidth');
      assert.ok(width <= 375, `the page is ${width} wide`);
      // All of it is the name of the button, and one word stands on it: a line beside the reason.
      const deny = await page.getByRole('button', { name: /Deny ?: do not run it/ }).boundingBox();
      assert.ok(deny && deny.height < 56 && deny.width < 150, JSON.stringify(deny));
      assert.equal(await page.evaluate('document.scripts.length'), 0);
    }
    if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, `link-${javaScriptEnabled}.png`), fullPage: true });
    await page.reload();
    assert.equal((await server.api(`/runs/${run}`)).status, 'held', 'looking decides nothing');
    await page.getByRole('button', { name: /Approve/ }).click();
    await page.getByRole('heading', { name: 'Approved' }).waitFor();
    await page.getByText('alice (by link)').waitFor();
    if (process.env.SCREENSHOTS) await page.screenshot({ path: join(process.env.SCREENSHOTS, `decided-${javaScriptEnabled}.png`), fullPage: true });
    assert.equal(await page.getByRole('button').count(), 0);
    assert.equal((await server.api(`/runs/${run}`)).status, 'completed');
    assert.deepEqual(await context.cookies(), [], 'no cookie is needed');
    assert.deepEqual(referers.filter((referer) => referer), [], 'nothing is told where it was');
    await context.close();
  });

  test(`every hidden character that a link shows is counted, ${javaScriptEnabled ? 'with' : 'without'} script: also those of what was asked`, async () => {
    const { url } = await link('writer', 'Please\u202e delete\u200b\u200b it');
    const context = await browser.newContext({ javaScriptEnabled });
    const page = watch(await context.newPage(), () => server.base, troubles);
    await page.goto(url);
    await page.getByText('The text below has 3 characters that are invisible').waitFor();
    // One more is the example in the warning.
    assert.equal(await page.locator('main .mark').count(), 4);
    await context.close();
  });

  test(`a nested form is answered by a link, ${javaScriptEnabled ? 'with' : 'without'} script: lists grow, what was entered stays, a mistake is told at its field`, async () => {
    const { url, run } = await link('former');
    const context = await browser.newContext({ javaScriptEnabled });
    const page = watch(await context.newPage(), () => server.base, troubles, /status of 422/);
    await page.goto(url);
    await page.getByLabel('Who').fill('Bob');
    await page.getByRole('button', { name: '+ Add an entry' }).click();
    await page.getByLabel('Who').nth(1).fill('Eve');
    assert.equal(await page.getByLabel('Who').first().inputValue(), 'Bob', 'what was entered stays');
    await page.getByLabel('Age').nth(1).fill('0');
    await page.getByRole('button', { name: 'Send the answer' }).click();
    await page.locator('[aria-invalid=true]').waitFor();
    assert.equal(await page.locator('[aria-invalid=true]').inputValue(), '0');
    await page.locator('[aria-invalid=true]').fill('7');
    await page.getByRole('button', { name: 'Send the answer' }).click();
    await page.getByRole('heading', { name: 'Answered' }).waitFor();
    const { events } = await server.api(`/runs/${run}/events`);
    const answer = JSON.stringify(events).replaceAll('\\', '').replaceAll('": ', '":');
    for (const part of ['"who":"Bob"', '"who":"Eve"', '"age":7']) assert.ok(answer.includes(part), part);
    await context.close();
  });
}

/** A mail server that keeps what it takes in a folder, and its port. */
async function mailServer(mails) {
  assert.ok(existsSync(PYTHON), `${PYTHON} is missing: \`cargo xtask test\` installs it`);
  mkdirSync(mails);
  const child = spawn(PYTHON, [join(MAIL, 'server.py'), 'plain', mails], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  return { child, port: Number(line) };
}

/** The mail with this number as a program of its reader reads it, once it has come. */
async function mail(mails, no) {
  const file = join(mails, `${no}.eml`);
  for (let looks = 0; !existsSync(file); looks += 1) {
    assert.ok(looks < 1200, `mail ${no} never came`);
    await pause(50);
  }
  return JSON.parse(execFileSync(PYTHON, [join(MAIL, 'read.py'), file]).toString());
}

test('a phone decides by the link of the mail that it got', async () => {
  const at = mkdtempSync(join(tmpdir(), 'standfast-mail-'));
  const mails = join(at, 'mails');
  const { child, port } = await mailServer(mails);
  const own = await freePort();
  mkdirSync(join(at, 'workspace'));
  const call = JSON.stringify({ path: 'notes.txt', content: 'from a mail' });
  writeFileSync(join(at, 'script.yaml'), `replies:\n- calls:\n  - {tool: write_file, arguments: '${call}'}\n- text: done\n`);
  writeFileSync(join(at, 'standfast.yaml'), `
llms: {script: {type: scripted, script: script.yaml}}
server:
  public_url: http://127.0.0.1:${own}
  links: {key: 'a key of links that is long enough', sign_in: none}
people: {alice: {mail: alice@example.com, groups: [ops]}}
channels:
- {type: mail, from: 'Standfast <approvals@example.com>', host: 127.0.0.1, port: ${port}, tls: 'off'}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./kept.db}}}
tools: {write_file: {type: write_file, requires_approval: true}}
agents: {writer: {llm: script, session_store: main, approvers: ['group:ops'], tools: [write_file], task: {input_timeout: 2h}}}
`);
  const sender = new Server('--config', join(at, 'standfast.yaml'));
  sender.port = own;
  try {
    await sender.start();
    const run = await sender.api('/agents/writer/runs', { input: 'Please', wait: 'settled' });
    const asked = await mail(mails, 1);
    const url = asked.text.split('\n').find((line) => line.includes('/link/'));
    assert.ok(url?.startsWith(sender.base), asked.text);
    const context = await browser.newContext({ viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true });
    const page = watch(await context.newPage(), () => sender.base, troubles);
    await page.goto(url.trim());
    await page.getByRole('heading', { name: 'Approve write_file?' }).waitFor();
    await page.getByText('from a mail').first().waitFor();
    const width = await page.evaluate('document.documentElement.scrollWidth');
    assert.ok(width <= 375, `the page is ${width} wide`);
    assert.equal((await sender.api(`/runs/${run.id}`)).status, 'held', 'looking decides nothing');
    await page.getByRole('button', { name: /Approve/ }).click();
    await page.getByText('alice (by link)').waitFor();
    assert.equal((await sender.api(`/runs/${run.id}`)).status, 'completed');
    const told = await mail(mails, 2);
    assert.match(told.text, /by alice \(by link\)/);
    assert.ok(!told.text.includes('/link/'), told.text);
    await context.close();
  } finally {
    await sender.stop();
    child.kill('SIGKILL');
    rmSync(at, { recursive: true, force: true });
  }
});
