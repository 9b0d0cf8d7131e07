// What the servers of pictures share: folders and servers that are gone when the pictures are taken, a model that does not end, and
// somebody who signs in.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { script } from './agents.js';
import { Server } from './server.js';

/** What is to be ended afterwards, the last first. */
const endings = [];

export function atEnd(ending) {
  endings.push(ending);
}

export async function end() {
  for (const ending of endings.splice(0).reverse()) await ending();
}

export function newFolder() {
  const folder = mkdtempSync(join(tmpdir(), 'standfast-gallery-'));
  endings.push(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export async function started(...more) {
  const server = await new Server(...more).start();
  endings.push(() => server.stop());
  return server;
}

/** A model that begins to speak and does not end. */
export async function speakingModel() {
  const piece = (delta) => `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;
  const model = createServer((asked, answer) => {
    asked.resume();
    asked.on('end', () => {
      answer.writeHead(200, { 'content-type': 'text/event-stream' });
      answer.write(piece({ role: 'assistant', content: '' }));
      const speaking = setInterval(() => answer.write(piece({ content: 'I look at the **disks** first, and then at what may go. ' })), 150);
      answer.on('close', () => clearInterval(speaking));
    });
  });
  await new Promise((resolve) => { model.listen(0, '127.0.0.1', resolve); });
  endings.push(() => { model.closeAllConnections(); model.close(); });
  return `http://127.0.0.1:${model.address().port}/v1`;
}

/**
 * A configuration with a script for each agent: `agents` is by name what it says (`replies`), its `tools`, and more of its `task`
 * and of itself.
 */
export function written(agents, { tools = '', rest = '' } = {}) {
  const folder = newFolder();
  mkdirSync(join(folder, 'workspace'));
  const names = Object.keys(agents);
  for (const name of names) writeFileSync(join(folder, `${name}.yaml`), script(...agents[name].replies));
  writeFileSync(join(folder, 'standfast.yaml'), `
llms:
${names.map((name) => `  ${name}: {type: scripted, script: ${name}.yaml}`).join('\n')}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
agents:
${names.map((name) => `  ${name}: {llm: ${name}, session_store: main, tools: [${agents[name].tools ?? ''}], task: {${agents[name].task ?? ''}}${agents[name].more ?? ''}}`).join('\n')}
${tools && `tools:\n${tools}`}
${rest}
`);
  return folder;
}

/** The API, as somebody with a key. */
export async function asking(base, key, path, body) {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const response = await fetch(`${base}/api/v1${path}`, { method: body ? 'POST' : 'GET', body: body && JSON.stringify(body), headers });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** Signs somebody in by a key, in a browser of its own; what that browser remembers. */
export async function signedIn(browser, base, key, settings = {}) {
  const context = await browser.newContext(settings);
  const page = await context.newPage();
  await page.goto(`${base}/sign-in`);
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Pending' }).waitFor();
  const state = await context.storageState();
  await context.close();
  return state;
}
