// Signing in and out in Debian's Chromium: a form instead of the browser's password box, a session that ends with its key.
//
// T21: the cookie is none that scripts can read, forms of others cannot use it, and it says nothing to the API.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { BINARY, launch, Server } from './server.js';
import { accessible, watch } from './watch.js';

let browser;
let server;
let context;
let page;
let troubles;

const keys = (...more) => execFileSync(BINARY, ['keys', ...more, '--data', server.data], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();
const key = (user) => keys('create', '--user', user);
const heading = (name) => page.getByRole('heading', { name, exact: true }).waitFor();
const UNAUTHORIZED = /status of 4(01|29)|ERR_(CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)/;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  server = await new Server('--auth', 'keys').start();
  context = await browser.newContext();
  page = watch(await context.newPage(), () => server.base, troubles, UNAUTHORIZED);
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

/** A test with script on and off; what only a script of the page can try is tried with it. */
function both(name, body) {
  test(`${name}, with JavaScript`, () => body({ hasScript: true }));
  test(`${name}, without JavaScript`, async () => {
    await context.close();
    context = await browser.newContext({ javaScriptEnabled: false });
    page = watch(await context.newPage(), () => server.base, troubles, UNAUTHORIZED);
    await body({ hasScript: false });
  });
}

async function signIn(text) {
  await page.getByLabel('API key').fill(text);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

async function held(authorization) {
  const headers = { authorization: `Bearer ${authorization}`, 'content-type': 'application/json' };
  const response = await fetch(`${server.base}/api/v1/agents/ops/runs`, { method: 'POST', headers, body: JSON.stringify({ input: 'x', wait: 'settled' }) });
  return (await response.json()).holds[0].id;
}

both('a key becomes a session that ends with sign-out', async ({ hasScript }) => {
  const ann = key('ann');
  const hold = await held(ann);
  const first = await page.goto(`${server.base}/approve/${hold}?from=mail`);
  assert.equal(first.status(), 401);
  assert.equal(first.headers()['www-authenticate'], 'Bearer', 'no password box of the browser');
  if (hasScript) await accessible(page, 'sign in');
  await signIn(`${ann.slice(0, -1)}x`);
  await page.getByRole('alert').getByText('This key is not valid').waitFor();
  assert.equal(await page.getByLabel('API key').inputValue(), '', 'what was typed is not sent back');
  await signIn(ann);
  await page.waitForURL(`${server.base}/approve/${hold}?from=mail`);
  const cookie = (await context.cookies()).find((one) => one.name === 'standfast_session');
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.value.includes(ann.slice(12))], [true, 'Lax', false]);
  if (hasScript) {
    assert.equal(await page.evaluate('document.cookie'), '');
    const api = await page.evaluate(async () => (await fetch('/api/v1/holds')).status);
    assert.equal(api, 401, 'programs show a key');
  }
  await page.getByRole('link', { name: /ann/ }).click();
  await page.getByText(`API key ${ann.slice(0, 12)}…`, { exact: true }).waitFor();
  await page.getByText('Chrome on Linux').waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await heading('Sign in');
  await context.addCookies([cookie]);
  assert.equal((await page.goto(`${server.base}/runs`)).status(), 401, 'a cookie that was kept opens nothing');
});

both('every link of a run and of a hold opens with a session, without a key', async () => {
  const ann = key('ann');
  const hold = await held(ann);
  await page.goto(`${server.base}/approve/${hold}`);
  await signIn(ann);
  const linked = () => page.locator('main a[href]').evaluateAll((all) => all.map((one) => one.getAttribute('href')).filter((href) => href.startsWith('/')));
  await page.getByRole('button', { name: /Approve: run/ }).waitFor();
  const all = new Set(await linked());
  await page.getByRole('link', { name: 'The whole timeline' }).click();
  await page.getByRole('link', { name: 'Raw events' }).waitFor();
  for (const href of await linked()) all.add(href);
  assert.ok([...all].some((href) => href.endsWith('/events.json')));
  for (const href of all) assert.equal((await page.request.get(server.base + href)).status(), 200, href);
});

both('a session ends with its key, survives kill -9, and a form sent afterwards changes nothing', async () => {
  const ann = key('ann');
  const hold = await held(ann);
  await page.goto(`${server.base}/approve/${hold}`);
  await signIn(ann);
  await page.getByRole('button', { name: /Approve: run/ }).waitFor();
  await server.kill();
  await server.start();
  assert.equal((await page.goto(`${server.base}/approve/${hold}`)).status(), 200);
  keys('revoke', ann.split('_')[1]);
  await page.getByRole('button', { name: /Approve: run/ }).click();
  await page.getByRole('alert').getByText('nothing was changed').waitFor();
  assert.deepEqual(server.effects(), []);
  await signIn(key('ann'));
  await heading('Pending');
});

both('nobody is led to another server, and guessing is throttled', async () => {
  const ann = key('ann');
  await page.goto(`${server.base}/sign-in?next=${encodeURIComponent('//evil.example/')}`);
  await signIn(ann);
  await page.waitForURL(`${server.base}/`);
  await page.getByRole('link', { name: /ann/ }).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  let status = 0;
  for (let tries = 0; tries < 40 && status !== 429; tries += 1) {
    const [answer] = await Promise.all([page.waitForResponse((one) => one.request().method() === 'POST'), signIn(`guess ${tries}`)]);
    status = answer.status();
  }
  assert.equal(status, 429);
  await signIn(ann);
  await heading('Pending');
});

test('an open page says that its session has ended', async () => {
  const ann = key('ann');
  await page.goto(`${server.base}/`);
  await signIn(ann);
  await heading('Pending');
  keys('revoke', ann.split('_')[1]);
  await page.getByText('You are signed out.').waitFor({ timeout: 40_000 });
  await page.getByRole('link', { name: 'Sign in' }).click();
  await heading('Sign in');
});
