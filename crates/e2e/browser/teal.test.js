// The addresses of a Teal Agents pause in Debian's Chromium: looking decides nothing, the button does, once.
//
// S1-12: the published addresses work, also in a browser. S1-19, S1-30: reject stops the task.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch, Server } from './server.js';

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
  page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.on('console', (message) => { if (message.type() === 'error') troubles.push(message.text()); });
  page.on('pageerror', (error) => troubles.push(String(error)));
  page.on('request', (request) => { if (!request.url().startsWith(server.base)) troubles.push(request.url()); });
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

async function teal(path, body) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${server.base}/tealagents/v1alpha1${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  assert.equal(response.status, 200, path);
  return response.json();
}

const chat = (agent) => teal(`/${agent}`, { items: [{ content_type: 'text', content: 'Please' }] });

async function status(paused) {
  const response = await fetch(`${server.base}/tealagents/v1alpha1/ops/tasks/${paused.task_id}`);
  return (await response.json()).status;
}

test('an approval address asks once more, over kill -9, and then runs the call once', async () => {
  const paused = await chat('ops');
  await page.goto(paused.approval_url);
  await page.getByRole('heading', { name: 'Approve this call?' }).waitFor();
  assert.equal(await page.locator('[data-arguments]').textContent(), '{"path": "/srv/cache/old"}');
  await page.reload();
  assert.equal(await status(paused), 'Paused');
  await server.kill();
  await server.start();
  await page.getByRole('button', { name: 'Approve: run it as shown' }).click();
  await page.getByRole('heading', { name: 'This request has been decided' }).waitFor();
  await page.getByText('Approved by').waitFor();
  assert.equal(await page.locator('main form button').count(), 0);
  assert.equal(server.effects().length, 1);
  await page.reload();
  assert.equal(server.effects().length, 1);
  assert.equal(await status(paused), 'Completed');
});

test('a rejection address stops the task with a reason', async () => {
  const paused = await chat('ops');
  await page.goto(paused.rejection_url);
  await page.getByLabel('Reason to reject').fill('<b>still needed</b>');
  await page.getByRole('button', { name: 'Reject: run nothing and stop the task' }).click();
  await page.getByText('Denied by').waitFor();
  await page.getByRole('link', { name: 'The run and its timeline' }).click();
  await page.getByText('<b>still needed</b>').first().waitFor();
  assert.deepEqual(server.effects(), []);
  assert.equal(await status(paused), 'Canceled');
});

test('a question is answered on a page of its own', async () => {
  const paused = await chat('travel');
  await page.goto(paused.approval_url);
  assert.equal(await page.getByRole('button', { name: /Approve/ }).count(), 0);
  await page.getByRole('link', { name: 'Answer this on a page of its own' }).click();
  await page.getByRole('button', { name: '09:40, one change, 54 EUR' }).click();
  await page.getByRole('heading', { name: 'Answered', exact: true }).waitFor();
});

test('the page is readable on a phone, in the dark', async () => {
  const paused = await chat('ops');
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(paused.approval_url);
  const width = await page.evaluate('document.documentElement.scrollWidth');
  assert.ok(width <= 390, `${width} wide`);
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/teal-phone.png`, fullPage: true });
});
