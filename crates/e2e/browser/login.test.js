// A login at an MCP server in Debian's Chromium: the owner of the run is led there and back, and the run goes on; an
// approver sees whose login it is.
//
// T21: only the form begins it. T29: the account is the owner's. The MCP server and its authorization server are those of
// the tests in `../tests/outside/mcp`, by the official Python SDK, which `cargo xtask test` installs.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { BINARY, launch, Server } from './server.js';
import { accessible } from './watch.js';

const PYTHON = fileURLToPath(new URL('../../../target/mcp-servers/bin/python', import.meta.url));
const PROTECTED = fileURLToPath(new URL('../tests/outside/mcp/protected.py', import.meta.url));
assert.ok(existsSync(PYTHON), `${PYTHON} is missing: \`cargo xtask test\` installs it`);

const folder = mkdtempSync(join(tmpdir(), 'standfast-login-'));
const config = join(folder, 'standfast.yaml');
let browser;
let server;
let mcp;

async function freePort() {
  const listener = createServer();
  await new Promise((resolve) => { listener.listen(0, '127.0.0.1', resolve); });
  const { port } = listener.address();
  await new Promise((resolve) => { listener.close(resolve); });
  return port;
}

async function listens(port) {
  for (let tries = 0; tries < 600; tries += 1) {
    const socket = connect(port, '127.0.0.1');
    const there = await new Promise((resolve) => { socket.once('connect', () => resolve(true)).once('error', () => resolve(false)); });
    socket.destroy();
    if (there) return;
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
  throw new Error(`nobody listens on ${port}`);
}

before(async () => {
  const port = await freePort();
  writeFileSync(join(folder, 'script.yaml'), 'replies:\n- calls:\n  - {tool: payments__pay, arguments: {to: Ann}}\n- text: done\n');
  writeFileSync(config, `
llms: {script: {type: scripted, script: script.yaml}}
server: {auth: {api_keys: true}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
agents: {helper: {llm: script, session_store: main, tools: [payments], task: {}, approvers: [bob]}}
tools:
  payments: {type: mcp, url: 'http://127.0.0.1:${port}/mcp', overrides: {pay: {requires_approval: false}}}
`);
  mcp = spawn(PYTHON, [PROTECTED, folder, String(port)], { stdio: 'ignore' });
  await listens(port);
  server = await new Server('--config', config).start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  mcp?.kill();
  rmSync(folder, { recursive: true, force: true });
});

const key = (user) => execFileSync(BINARY, ['keys', 'create', '--user', user, '--config', config], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();

/** A page of somebody who has signed in with their key. */
async function pageOf(key, troubles) {
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(`${server.base}/sign-in`);
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Pending' }).waitFor();
  page.on('console', (message) => { if (message.type() === 'error') troubles.push(message.text()); });
  page.on('pageerror', (error) => troubles.push(String(error)));
  return page;
}

test('the owner is led to the login and back; an approver is told whose it is', async () => {
  const [ann, bob] = [key('ann'), key('bob')];
  const ask = async (path, body) => {
    const headers = { authorization: `Bearer ${ann}`, 'content-type': 'application/json' };
    const response = await fetch(`${server.base}/api/v1${path}`, { method: body ? 'POST' : 'GET', body: body && JSON.stringify(body), headers });
    return response.json();
  };
  const run = await ask('/agents/helper/runs', { input: 'pay', wait: 'settled' });
  const { data } = await ask(`/holds/${run.holds[0].id}`);
  assert.equal(data.auth_url, `${server.base}/login/${run.holds[0].id}`);

  const approver = await pageOf(bob, []);
  await approver.goto(data.auth_url);
  await approver.getByRole('heading', { name: "Not your login" }).waitFor();
  await approver.getByText('Only ann can log in here').waitFor();
  assert.equal(await approver.getByRole('button').count(), 0);
  await approver.goto(`${server.base}/approve/${run.holds[0].id}`);
  assert.equal(await approver.getByRole('link', { name: 'Log in' }).count(), 0);

  const troubles = [];
  const page = await pageOf(ann, troubles);
  await page.goto(`${server.base}/approve/${run.holds[0].id}`);
  await page.getByRole('link', { name: 'Log in' }).click();
  await page.getByRole('heading', { name: 'Log in for' }).waitFor();
  await page.waitForLoadState('load');
  const looks = await page.getByRole('button', { name: 'Log in at' }).evaluate((button) => getComputedStyle(button).backgroundColor);
  assert.notEqual(looks, 'rgb(239, 239, 239)', 'the page has its looks, also with keys');
  await accessible(page, 'login');
  await page.getByRole('button', { name: 'Log in at' }).click();
  await page.waitForURL(/\/approve\/hold_/);
  assert.deepEqual(troubles, []);
  let status;
  for (let tries = 0; tries < 600 && status !== 'completed'; tries += 1) {
    ({ status } = await ask(`/runs/${run.id}`));
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  assert.equal(status, 'completed');
  assert.equal(readFileSync(join(folder, 'paid.txt'), 'utf8'), 'Ann pay\n');
});
