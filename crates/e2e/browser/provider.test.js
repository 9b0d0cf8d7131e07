// Signing in at an identity provider in Debian's Chromium, at the command line and by HTTP: a real server, and the certified
// `oidc-provider` as the provider.
//
// T5, T21: a sign-in counts once and in the browser that began it; nobody is sent elsewhere. T9, T36: whatever an ID token or
// a logout token lacks lets nobody in, and a provider that is away neither lets anybody in nor signs anybody out.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { freePort, Provider } from './provider.js';
import { BINARY, launch, Server } from './server.js';
import { accessible } from './watch.js';

const SCRIPT = 'replies:\n- calls:\n  - tool: execute_command\n    arguments: \'{"command": "echo hello"}\'\n- text: done\n';
const SECRET = 'a-secret-of-the-server: with %&+';

let browser;
let server;
let provider;
let context;
let page;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
afterEach(async () => {
  await context?.close();
  await server.stop();
  await provider.stop();
});

async function begin(more = '', sessions = '', policy = '') {
  server = new Server();
  server.port = await freePort();
  provider = await new Provider(server.base).start();
  const config = join(server.data, 'standfast.yaml');
  writeFileSync(join(server.data, 'script.yaml'), SCRIPT);
  writeFileSync(config, `llms: {script: {type: scripted, script: script.yaml}}
tools: {execute_command: {allowed_commands: [echo]}}
agents: {ops: {llm: script, tools: [execute_command], task: {}, approvers: ['group:finance']}}
${policy}server:
  public_url: ${server.base}
  sessions: {${sessions}}
  webhooks: {key: the-same-key-on-every-node-and-long-enough}
  auth:
    api_keys: true
    jwt:
      issuer: ${provider.issuer}
      audience: standfast-api
      sign_in: {client_id: standfast, client_secret: "\${OIDC_SECRET}", label: Example, cli_client_id: standfast-cli${more}}
`);
  process.env.OIDC_SECRET = SECRET;
  server.more = ['--config', config];
  await server.start();
  context = await browser.newContext();
  page = await context.newPage();
}

const keys = (...more) => execFileSync(BINARY, ['keys', ...more, '--data', server.data], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();

async function held() {
  const headers = { authorization: `Bearer ${keys('create', '--user', 'owner')}`, 'content-type': 'application/json' };
  const response = await fetch(`${server.base}/api/v1/agents/ops/runs`, { method: 'POST', headers, body: JSON.stringify({ input: 'x', wait: 'settled' }) });
  return (await response.json()).holds[0].id;
}

/** At the provider, in the form of its own development pages. */
async function atProvider(who, on = page) {
  await on.locator('input[name=login]').fill(who);
  await on.locator('input[name=password]').fill('any');
  await on.locator('button[type=submit]').click();
}

async function signIn(who = 'ann', path = '/runs') {
  await page.goto(`${server.base}/sign-in/start?next=${encodeURIComponent(path)}`);
  await atProvider(who);
  await page.waitForURL(`${server.base}${path}`);
}

/** What the audit has of one kind. */
function entries(kind) {
  const lines = execFileSync(BINARY, ['audit', 'export', join(server.data, 'standfast.db')], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();
  return lines.split('\n').filter(Boolean).map((line) => JSON.parse(line).data).filter((data) => data?.kind === kind);
}

const session = async () => (await context.cookies()).find((one) => one.name === 'standfast_session');

/** Waits for a condition of the server. */
async function until(what, condition) {
  for (let tries = 0; tries < 300; tries += 1) {
    if (await condition()) return;
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
  assert.fail(`never: ${what}`);
}

/** Where the provider sends the browser, while the server is away: it was killed after it had sent the browser there. */
async function wayBack(next) {
  let back;
  const note = (request) => { if (request.url().includes('/sign-in/callback')) back = request.url(); };
  page.on('request', note);
  await page.goto(`${server.base}/sign-in/start?next=${next}`);
  await server.kill();
  await atProvider('ann').catch(() => {});
  await until('the browser comes back', () => back);
  page.off('request', note);
  return back;
}

const status = async (path = '/runs') => (await page.goto(`${server.base}${path}`)).status();

test('somebody signs in at the provider, comes back to the hold, approves it, and signs out', async () => {
  await begin();
  const hold = await held();
  assert.equal(await status(`/approve/${hold}?from=mail`), 401);
  await accessible(page, 'sign in with a provider');
  await page.getByRole('link', { name: 'Sign in with Example' }).click();
  await atProvider('ann');
  await page.waitForURL(`${server.base}/approve/${hold}?from=mail`);
  const cookie = await session();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, 'Lax']);
  assert.equal(await page.evaluate('document.cookie'), '');
  await page.getByRole('button', { name: /Approve: run/ }).click();
  await page.getByText(/by\s+ann/).first().waitFor();
  await page.goto(`${server.base}/me`);
  await page.getByText('this one').waitFor();
  await accessible(page, 'where one is signed in');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('link', { name: 'Sign out of Example as well' }).waitFor();
  await context.addCookies([cookie]);
  assert.equal(await status(), 401, 'a cookie that was kept opens nothing');
});

test('somebody without the right groups is signed in and decides nothing', async () => {
  await begin();
  const hold = await held();
  await signIn('bob');
  assert.equal(await status(`/approve/${hold}`), 404, 'for bob there is no such hold');
});

test('a sign-in counts once, in the browser that began it, and leads nowhere else', async () => {
  await begin();
  const back = await wayBack('//evil.example/');
  await server.start();
  const stranger = await browser.newContext();
  const other = await stranger.newPage();
  assert.equal((await other.goto(back)).status(), 403, 'another browser');
  await stranger.close();
  const forged = new URL(back);
  forged.searchParams.set('state', 'made-up');
  assert.equal((await page.goto(forged.href)).status(), 403, 'another state');
  const mixed = new URL(back);
  mixed.searchParams.set('iss', 'https://evil.example');
  assert.equal((await fetch(mixed, { headers: { cookie: await cookies() } })).status, 403, 'another issuer');
  const kept = await cookies();
  // The server is killed between the redirect and the way back.
  await server.kill();
  await server.start();
  await page.goto(back);
  await page.waitForURL(`${server.base}/`);
  assert.equal(await status(), 200);
  const again = await fetch(back, { headers: { cookie: kept }, redirect: 'manual' });
  assert.equal(again.status, 403, 'the code was used');
  assert.match(await again.text(), /Nobody was signed in/);
});

test('another node finishes what one began', async () => {
  await begin();
  const back = await wayBack('/runs');
  const node = new Server(...server.more);
  await node.start();
  try {
    const kept = await cookies();
    const finished = await fetch(back.replace(server.base, node.base), { headers: { cookie: kept }, redirect: 'manual' });
    assert.deepEqual([finished.status, finished.headers.get('location')], [303, '/runs']);
    const cookie = finished.headers.getSetCookie().find((one) => one.startsWith('standfast_session=')).split(';')[0];
    assert.equal((await fetch(`${node.base}/runs`, { headers: { cookie } })).status, 200);
  } finally {
    await node.stop();
  }
});

const cookies = async () => (await context.cookies(`${server.base}/sign-in/callback`)).map((one) => `${one.name}=${one.value}`).join('; ');

test('an ID token that lies lets nobody in', async () => {
  await begin();
  await signIn();
  await context.clearCookies({ name: 'standfast_session' });
  for (const [what, lie] of Object.entries({
    nonce: (claims) => ({ ...claims, nonce: 'another' }),
    'no nonce': ({ nonce, ...claims }) => claims,
    issuer: (claims) => ({ ...claims, iss: 'https://evil.example' }),
    audience: (claims) => ({ ...claims, aud: 'standfast-cli' }),
    'several audiences': (claims) => ({ ...claims, aud: ['standfast', 'standfast-cli'] }),
    'authorized party': (claims) => ({ ...claims, azp: 'standfast-cli' }),
    expired: (claims) => ({ ...claims, iat: claims.iat - 7200, exp: claims.iat - 3600 }),
    signature: (claims) => ({ ...claims, key: 'other' }),
    'no subject': ({ sub, ...claims }) => claims,
  })) {
    provider.lie = lie;
    const response = await page.goto(`${server.base}/sign-in/start?next=/runs`);
    assert.deepEqual([what, response.status()], [what, 403]);
    await page.getByRole('alert').getByText('Nobody was signed in').waitFor();
    assert.equal(await session(), undefined, what);
  }
  provider.lie = null;
  assert.equal(await status('/sign-in/start?next=/runs'), 200);
  // Each one is in the audit, with what was wrong and nothing that one could sign in with.
  const refused = () => entries('sign_in.refused');
  assert.ok(refused().length >= 8 && refused().every((one) => one.by === 'identity_provider' && one.why === 'refused' && one.client === 'browser'), JSON.stringify(refused()));
  assert.ok(!JSON.stringify(refused()).includes('eyJ'), 'a token is in the audit');
});

test('a provider that answers with an error signs nobody in, and the audit says so', async () => {
  await begin();
  const started = await fetch(`${server.base}/sign-in/start?next=/runs`, { redirect: 'manual' });
  const state = new URL(started.headers.get('location')).searchParams.get('state');
  const cookie = started.headers.getSetCookie().map((one) => one.split(';')[0]).join('; ');
  const back = `${server.base}/sign-in/callback?error=access_denied&state=${encodeURIComponent(state)}`;
  // Whoever began no sign-in here fills no audit.
  assert.equal((await fetch(back)).status, 403);
  assert.deepEqual(entries('sign_in.refused'), []);
  const response = await fetch(back, { headers: { cookie } });
  assert.equal(response.status, 403);
  assert.match(await response.text(), /access_denied/);
  const [entry, ...more] = entries('sign_in.refused');
  assert.deepEqual([entry.why, entry.by, entry.client, more], ['refused', 'identity_provider', 'browser', []]);
  assert.match(entry.detail, /access_denied/);
  // The command line shows a token that nobody signed.
  const shown = await fetch(`${server.base}/api/v1/sign-ins`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ id_token: 'eyJhbGciOiJub25lIn0.e30.', nonce: 'x' }) });
  assert.ok(shown.status >= 400, String(shown.status));
  assert.deepEqual(entries('sign_in.refused').map((one) => one.client), ['browser', 'command_line']);
});

test('the provider is away, comes back, and has another key', async () => {
  await begin();
  await provider.stop();
  await server.kill();
  await server.start();
  assert.equal(await status('/sign-in/start'), 503);
  await page.getByRole('alert').getByText('cannot be reached').waitFor();
  await provider.newKey();
  await until('the provider is found again', async () => (await fetch(`${server.base}/sign-in/start`, { redirect: 'manual' })).status === 303);
  // Keys are fetched again when a token names an unknown one, at most every ten seconds.
  const isSignedIn = async () => {
    await page.goto(`${server.base}/sign-in/start?next=/runs`);
    if (page.url().startsWith(provider.issuer)) await atProvider('ann');
    await page.waitForLoadState();
    return page.url() === `${server.base}/runs`;
  };
  await until('its key is known', isSignedIn);
  await provider.stop();
  assert.equal(await status(), 200, 'whoever is signed in stays so');
  await provider.newKey();
  await context.clearCookies();
  await until('the new key is known', isSignedIn);
});

test('the provider ends sessions, and nobody else does', async () => {
  await begin();
  await signIn();
  const base = { iss: provider.issuer, aud: 'standfast', sub: 'ann', jti: 'j', iat: Math.floor(Date.now() / 1000), exp: Math.floor(Date.now() / 1000) + 60 };
  const events = { 'http://schemas.openid.net/event/backchannel-logout': {} };
  const send = async (token) => (await fetch(`${server.base}/sign-in/backchannel-logout`, { method: 'POST', body: new URLSearchParams({ logout_token: token }) })).status;
  for (const claims of [base, { ...base, events, nonce: 'n' }, { ...base, events, aud: 'other' }, { ...base, events, iss: 'https://evil.example' },
    { ...base, events, key: 'other' }, { ...base, events, iat: base.iat - 7200, exp: undefined }]) {
    assert.equal(await send(await provider.signed(claims, 'logout+jwt')), 400, JSON.stringify(claims));
  }
  assert.equal(await send('nothing'), 400);
  assert.equal(await status(), 200);
  assert.equal(await send(await provider.signed({ ...base, events, sub: 'bob' }, 'logout+jwt')), 200, 'bob has no sessions');
  assert.equal(await status(), 200);
  // The same word from the provider itself, when somebody signs out there.
  await page.goto(`${provider.issuer}/session/end?client_id=standfast`);
  await page.locator('button[type=submit]').first().click();
  await until('the session has ended', async () => (await status()) === 401);
  const bearer = await fetch(`${server.base}/api/v1/holds`, { headers: { authorization: `Bearer ${await provider.signed({ ...base, aud: 'standfast-api', events }, 'logout+jwt')}` } });
  assert.equal(bearer.status, 401, 'a logout token is nobody\'s token');
});

test('groups follow the provider, and a session ends when it does not renew it', async () => {
  await begin(', renew: 1s');
  const hold = await held();
  await signIn();
  assert.equal(await status(`/approve/${hold}`), 200);
  provider.people.ann = { groups: [] };
  await until('ann has left the group', async () => (await status(`/approve/${hold}`)) === 404);
  delete provider.people.ann;
  await until('the session has ended', async () => (await status()) === 401);
});

test('a session ends when nobody uses it, also when a page stays open', async () => {
  await begin('', 'idle: 2s');
  await signIn();
  await page.goto(`${server.base}/`);
  const cookie = await session();
  const ask = () => fetch(`${server.base}/events`, { headers: { cookie: `standfast_session=${cookie.value}` } });
  await until('it has ended', async () => {
    const response = await ask();
    await response.body?.cancel();
    return response.status === 401;
  });
});

test('one\'s sessions are listed and ended', async () => {
  await begin();
  await signIn();
  const phone = await browser.newContext();
  const other = await phone.newPage();
  await other.goto(`${server.base}/sign-in/start?next=/runs`);
  await atProvider('ann', other);
  await other.waitForURL(`${server.base}/runs`);
  await page.goto(`${server.base}/me`);
  assert.equal(await page.getByRole('button', { name: 'End this session' }).count(), 1);
  await page.getByRole('button', { name: 'End this session' }).click();
  await page.waitForURL(`${server.base}/me`);
  assert.equal((await other.goto(`${server.base}/runs`)).status(), 401);
  assert.equal(await status(), 200);
  await phone.close();
});

/** Starts `standfast login`; the address that it prints, and what it says in the end. */
function login(way) {
  const home = join(server.data, 'home');
  mkdirSync(home, { recursive: true });
  const env = { ...process.env, XDG_CONFIG_HOME: home, HOME: home, DISPLAY: '', WAYLAND_DISPLAY: '' };
  delete env.STANDFAST_KEY;
  delete env.DISPLAY;
  delete env.WAYLAND_DISPLAY;
  const child = spawn(BINARY, ['login', server.base, way], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stdout.on('data', (text) => { said += text; });
  child.stderr.on('data', (text) => { said += text; });
  const ended = new Promise((resolve) => { child.on('exit', (code) => resolve([code, said])); });
  const address = async () => {
    let found;
    await until(`an address: ${said}`, () => { found = /http:\/\/localhost:\S+/.exec(said)?.[0]; return found; });
    return found;
  };
  const run = (...more) => execFileSync(BINARY, more, { env, stdio: ['ignore', 'pipe', 'pipe'] }).toString();
  return { address, ended, run, profile: () => JSON.parse(readFileSync(join(home, 'standfast/profile.json'), 'utf8')) };
}

test('the command line signs in with a browser, decides, and signs out', async () => {
  await begin();
  const hold = await held();
  const cli = login('--browser');
  await page.goto(await cli.address());
  await atProvider('ann');
  // The provider asks for consent of programs on people's machines.
  await page.locator('button[type=submit]').click();
  await page.getByText('You are signed in').waitFor();
  const [code, said] = await cli.ended;
  assert.equal(code, 0, said);
  assert.match(said, /you are ann/);
  const { key } = cli.profile();
  assert.match(key, /^sfs_/);
  assert.match(cli.run('sign-ins', 'list'), /command_line.*identity_provider/);
  assert.match(cli.run('holds', 'approve', hold), /./);
  const api = async (path, authorization) => (await fetch(`${server.base}${path}`, { headers: { authorization } })).status;
  assert.equal(await api('/api/v1/holds', `Bearer ${key}`), 200);
  const asCookie = await fetch(`${server.base}/runs`, { headers: { cookie: `standfast_session=${key.slice(4)}` } });
  assert.equal(asCookie.status, 401, 'what the command line has is no cookie');
  cli.run('logout');
  assert.equal(await api('/api/v1/holds', `Bearer ${key}`), 401);
});

test('the command line signs in with another device', async () => {
  await begin();
  const cli = login('--device');
  await page.goto(await cli.address());
  for (let steps = 0; steps < 4 && !(await page.getByText(/Sign-in Success|success/i).count()); steps += 1) {
    if (await page.locator('input[name=login]').count()) await atProvider('ann');
    else await page.locator('button[type=submit]').first().click();
    await page.waitForLoadState();
  }
  const [code, said] = await cli.ended;
  assert.equal(code, 0, said);
  assert.match(said, /you are ann/);
});

test('an ID token of the command line counts once, and only at the server that offered it', async () => {
  await begin();
  const offer = await (await fetch(`${server.base}/api/v1/sign-ins/offer`)).json();
  assert.deepEqual([offer.issuer, offer.client_id, offer.server], [provider.issuer, 'standfast-cli', server.base]);
  const now = Math.floor(Date.now() / 1000);
  const claims = { iss: provider.issuer, aud: 'standfast-cli', sub: 'ann', iat: now, exp: now + 600 };
  const send = async (id_token, nonce = offer.nonce) => (await fetch(`${server.base}/api/v1/sign-ins`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ id_token, nonce }) })).status;
  assert.equal(await send(await provider.signed({ ...claims, nonce: offer.nonce })), 403, 'a nonce that is not bound to this server');
  assert.equal(await send(await provider.signed({ ...claims, nonce: 'another' })), 403);
  assert.equal(await send(await provider.signed({ ...claims, aud: 'standfast' })), 403, 'of a browser');
  assert.equal(await send(await provider.signed({ ...claims, iat: now - 3600 })), 403, 'an old one');
  assert.equal(await send(await provider.signed({ ...claims, key: 'other' })), 403);
  const good = await provider.signed(claims);
  assert.equal(await send(good, 'made-up'), 403);
  assert.equal(await send(good), 201);
  assert.equal(await send(good), 403, 'a second time');
});

const DROP = "policy: {rules: [{id: drop, hold: execute_command, risk: destructive, sign_in_max_age: 10m}]}\n";

test('a destructive approval needs a fresh sign-in, and a denial does not', async () => {
  await begin('', '', DROP);
  const [hold, other] = [await held(), await held()];
  const ann = `Bearer ${keys('create', '--user', 'ann', '--group', 'finance')}`;
  const decide = (id, resolution, authorization = ann) => fetch(`${server.base}/api/v1/holds/${id}/resolve`, {
    method: 'POST', headers: { authorization, 'content-type': 'application/json' }, body: JSON.stringify({ resolution }),
  });
  // A key is no sign-in.
  const refused = await decide(hold, 'approve');
  assert.equal(refused.status, 401);
  assert.match(refused.headers.get('www-authenticate'), /error="insufficient_user_authentication".*max_age="600"/);
  assert.match((await refused.json()).detail, /standfast login --fresh/);
  const shown = await (await fetch(`${server.base}/api/v1/holds/${hold}`, { headers: { authorization: ann } })).json();
  assert.deepEqual([shown.may_decide, shown.needs_sign_in, shown.demands.find((one) => one.rule === 'rule:drop').sign_in_max_age], [true, 600, 600]);
  assert.equal((await decide(other, 'deny')).status, 200);
  // The provider says when somebody signed in where it is asked how long ago: this sign-in says nothing of it.
  await signIn('ann', `/approve/${hold}`);
  assert.equal(await page.getByRole('button', { name: /Approve: run/ }).count(), 0);
  assert.equal(await page.getByRole('button', { name: /Deny/ }).count(), 1);
  await accessible(page, 'a hold that needs a fresh sign-in');
  const before = await session();
  await page.getByRole('link', { name: 'Sign in again' }).click();
  // The provider knows her, and asks her again all the same.
  await atProvider('ann');
  await page.waitForURL(`${server.base}/approve/${hold}`);
  assert.notEqual((await session()).value, before.value, 'another session');
  await page.getByRole('button', { name: /Approve: run/ }).click();
  await page.getByText(/by\s+ann/).first().waitFor();
  const audit = execFileSync(BINARY, ['audit', 'export', join(server.data, 'standfast.db')], { stdio: ['ignore', 'pipe', 'ignore'] }).toString();
  assert.match(audit, /"kind":"decision.refused","user":"ann","by":"api_key".*"why":"stale_sign_in"/);
});

test('at the command line a fresh sign-in approves, and an old one does not', async () => {
  await begin('', '', DROP);
  const hold = await held();
  const atBrowser = async (cli) => {
    await page.goto(await cli.address());
    await atProvider('ann');
    await page.locator('button[type=submit]').click();
    await page.getByText('You are signed in').waitFor();
    const [code, said] = await cli.ended;
    assert.equal(code, 0, said);
  };
  // Signed in an hour ago, as the provider says.
  provider.lie = (claims) => ({ ...claims, auth_time: claims.iat - 3600 });
  const old = login('--fresh');
  await atBrowser(old);
  assert.throws(() => old.run('holds', 'approve', hold), /needs a sign-in at the identity provider within the last 10m/);
  provider.lie = null;
  await context.clearCookies();
  const fresh = login('--fresh');
  await atBrowser(fresh);
  assert.match(fresh.run('holds', 'approve', hold), /./);
});
