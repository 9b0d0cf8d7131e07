// Pages that are open while something happens, in Debian's Chromium: what changes is shown, what a person typed stays, and a
// server or a stream that is gone is said.
//
// S0-75: a page looks by itself while there is no stream. T7: what is shown is what is decided, also when it changes meanwhile.

import assert from 'node:assert/strict';
import { createServer, request as ask } from 'node:http';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch, Server } from './server.js';
import { accessible, until, watch } from './watch.js';

let browser;
let server;
let context;
let page;
let troubles;

/** A server that is down, and a stream that is cut, are errors to Chromium. */
const DOWN = /ERR_(CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)|status of (409|502)/;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  server = await new Server().start();
  context = await browser.newContext();
  page = watch(await context.newPage(), () => server.base, troubles, DOWN);
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

const open = (path, on = page) => on.goto(server.base + path);
const live = (on = page) => on.locator('#live');

test('what changes is shown without a reload, and what somebody types, selects and unfolds stays', async () => {
  await open('/sessions');
  await page.evaluate('window.isTheSame = true');
  const box = page.getByLabel('Message');
  await box.fill('half a sentence');
  await box.evaluate((field) => field.setSelectionRange(2, 6));
  await server.held('ops', 'Free some space');
  await page.getByRole('link', { name: /Free some space/ }).waitFor();
  const kept = await box.evaluate((field) => [field.value, field.selectionStart, field.selectionEnd, field === document.activeElement]);
  assert.deepEqual(kept, ['half a sentence', 2, 6, true]);
  await server.held('travel', 'Second');
  await page.getByRole('link', { name: /Second/ }).waitFor();
  assert.equal(await box.inputValue(), 'half a sentence');
  assert.equal(await page.evaluate('window.isTheSame'), true, 'the page was not loaded again');
});

test('the navigation and the title of the tab count what is pending by kind, live, also on a phone', async () => {
  await page.setViewportSize({ width: 360, height: 740 });
  const badges = () => page.locator('#nav a.kind-count').allTextContents();
  const counts = (...all) => until(`it counts ${all.join(', ')}`, async () => (await badges()).join() === all.join());
  await open('/runs');
  assert.equal(await page.title(), 'Runs · Standfast');
  await page.evaluate('window.isTheSame = true');
  const { hold } = await server.held('ops');
  await counts('1 approval');
  assert.equal(await page.title(), '(1 approval) Runs · Standfast');
  await server.held('ops');
  await server.held('travel');
  await counts('2 approvals', '1 question');
  assert.equal(await page.title(), '(2 approvals, 1 question) Runs · Standfast');
  assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 360);
  const sizes = await page.locator('#nav a.kind-count').evaluateAll((all) => all.map((one) => one.getBoundingClientRect().height));
  assert.ok(sizes.every((height) => height >= 24), `${sizes}`);
  await accessible(page, 'runs with counts');
  assert.equal(await page.evaluate('window.isTheSame'), true, 'the page was not loaded again');
  await page.getByRole('link', { name: '1 question', exact: true }).click();
  await until('one hold is listed', async () => await page.locator('.list > li').count() === 1);
  assert.equal(await page.title(), '(2 approvals, 1 question) Pending · Standfast');
  await server.api(`/holds/${hold.split('/').at(-1)}/resolve`, { resolution: 'deny' });
  await counts('1 approval', '1 question');
  assert.equal(await page.title(), '(1 approval, 1 question) Pending · Standfast');
});

test('of two people who decide, one does; the other sees it at once', async () => {
  const { run } = await server.held('ops');
  const address = await sessionOf(run);
  const other = watch(await (await browser.newContext()).newPage(), () => server.base, troubles, DOWN);
  await open(address);
  await open(address, other);
  await other.getByLabel('Reason to deny').fill('I am still reading');
  await page.getByRole('button', { name: '✓ Approve', exact: true }).click();
  await other.getByText('Approved by local').waitFor();
  assert.equal(await other.getByRole('button', { name: /Deny/ }).count(), 0);
  assert.equal(server.effects().length, 1);
  await other.context().close();
});

test('of two people who decide without JavaScript, the second is told', async () => {
  const { run } = await server.held('ops');
  const address = await sessionOf(run);
  const plain = await browser.newContext({ javaScriptEnabled: false });
  const [first, second] = [await plain.newPage(), await plain.newPage()];
  await open(address, first);
  await open(address, second);
  await first.getByRole('button', { name: '✓ Approve', exact: true }).click();
  await first.getByText('Approved by local').waitFor();
  await second.getByRole('button', { name: '✕ Deny' }).click();
  await second.getByRole('alert').getByText('Already decided').waitFor();
  await second.getByText('Approved by local').waitFor();
  assert.equal(server.effects().length, 1);
  await plain.close();
});

test('kill -9 and restart while a page is open: it says so, comes back, and nothing that was typed is lost', async () => {
  const { run } = await server.held('ops');
  await open(await sessionOf(run));
  await page.getByLabel('Reason to deny').fill('not yet');
  await server.kill();
  await live().getByText('Live updates are interrupted').waitFor();
  await server.start();
  await live().getByText('Connected again').waitFor();
  assert.equal(await page.getByLabel('Reason to deny').inputValue(), 'not yet');
  await page.getByRole('button', { name: '✕ Deny' }).click();
  await page.getByText('Denied by local').waitFor();
  assert.deepEqual(server.effects(), []);
});

test('a reload in the middle of typing brings back the page, and the task', async () => {
  const { run } = await server.held('ops');
  await open(await sessionOf(run));
  await page.getByLabel('Reason to deny').fill('half');
  await page.reload();
  await page.getByText('⏸️ Task paused - waiting for your input').waitFor();
  await until('what was typed is there again', async () => await page.getByLabel('Reason to deny').inputValue() === 'half');
  // Only a reload brings it back: who comes later, or after the call has changed, begins anew.
  await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
  await open(await sessionOf(run));
  assert.equal(await page.getByLabel('Reason to deny').inputValue(), '');
  await page.getByRole('button', { name: '✓ Approve', exact: true }).click();
  await page.getByText('Approved by local').waitFor();
  assert.equal(server.effects().length, 1);
});

/**
 * Something in between that lets no stream through, or cuts those that are open when it is told to, or goes silent: streams stay
 * open, those that are open and new ones, and nothing comes through any more.
 */
async function cutter({ lets = false } = {}) {
  const streams = new Set();
  let opened = 0;
  let isSilent = false;
  const proxy = createServer((asked, answer) => {
    const isStream = asked.url.startsWith('/events');
    if (isStream && !lets) { answer.writeHead(502).end(); return; }
    if (isStream) {
      opened += 1;
      streams.add(answer);
      answer.on('close', () => streams.delete(answer));
    }
    const headers = { ...asked.headers, host: `127.0.0.1:${server.port}` };
    if (headers.origin) headers.origin = server.base;
    const onward = ask({ port: server.port, method: asked.method, path: asked.url, headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      if (!isStream) { got.pipe(answer); return; }
      answer.flushHeaders();
      got.on('data', (piece) => { if (!isSilent) answer.write(piece); });
      got.on('end', () => { if (!isSilent) answer.end(); });
      got.on('error', () => { if (!isSilent) answer.destroy(); });
      answer.on('close', () => got.destroy());
    });
    onward.on('error', () => answer.destroy());
    asked.pipe(onward);
  });
  await new Promise((resolve) => { proxy.listen(0, '127.0.0.1', resolve); });
  return {
    base: `http://127.0.0.1:${proxy.address().port}`,
    opened: () => opened,
    cut: () => { for (const one of streams) one.destroy(); },
    silence: (wanted) => { isSilent = wanted; },
    close: () => { proxy.closeAllConnections(); proxy.close(); },
  };
}

test('a stream that is cut in the middle is opened again, and nothing that happened meanwhile is missed', async () => {
  const proxy = await cutter({ lets: true });
  const visitor = watch(await context.newPage(), () => proxy.base, troubles, DOWN);
  await visitor.goto(`${proxy.base}/sessions`);
  await until('the stream is open', () => proxy.opened() === 1);
  await server.held('ops', 'Before the cut');
  await visitor.getByRole('link', { name: /Before the cut/ }).waitFor();
  proxy.cut();
  await server.held('ops', 'While it was cut');
  await visitor.getByRole('link', { name: /While it was cut/ }).waitFor();
  await until('it is open again', () => proxy.opened() >= 2);
  await server.held('ops', 'After the cut');
  await visitor.getByRole('link', { name: /After the cut/ }).waitFor();
  await visitor.close();
  proxy.close();
});

test('a stream that goes silent without being closed is noticed: the page looks by itself, and goes back to a stream that speaks', async () => {
  const proxy = await cutter({ lets: true });
  const visitor = watch(await context.newPage(), () => proxy.base, troubles, DOWN);
  await visitor.clock.install();
  await visitor.goto(`${proxy.base}/sessions`);
  await until('the stream is open', () => proxy.opened() === 1);
  await server.held('ops', 'Before the silence');
  await visitor.getByRole('link', { name: /Before the silence/ }).waitFor();
  proxy.silence(true);
  await server.held('ops', 'In the silence');
  // A server says every 20 seconds that it is there. Time passes here by the clock of the page alone.
  await visitor.clock.fastForward(51_000);
  await live(visitor).getByText('Live updates are interrupted').waitFor();
  await until('it tried another stream', () => proxy.opened() === 2);
  // The other one is open too, and as silent: that is no connection.
  for (const words of ['In the silence', 'Later in the silence']) {
    await until(`it looks by itself: ${words}`, async () => {
      await visitor.clock.fastForward(5_100);
      return await visitor.getByRole('link', { name: words, exact: false }).count() > 0;
    });
    await live(visitor).getByText('Live updates are interrupted').waitFor();
    if (words === 'In the silence') await server.held('ops', 'Later in the silence');
  }
  // What the page says for a moment only is noted.
  await visitor.evaluate(() => {
    const [line, said] = [document.getElementById('live'), []];
    Object.assign(window, { said });
    new MutationObserver(() => said.push(line.textContent)).observe(line, { childList: true, subtree: true });
  });
  proxy.silence(false);
  await until('it is connected again', async () => {
    await visitor.clock.fastForward(5_100);
    return (await visitor.evaluate(() => window.said)).includes('Connected again.');
  });
  await server.held('ops', 'After the silence');
  await visitor.getByRole('link', { name: /After the silence/ }).waitFor();
  await visitor.close();
  proxy.close();
});

test('an answer that never comes does not keep a page from looking again', async () => {
  let kept = 0;
  await page.route('**/sessions', async (route) => {
    if (!route.request().headers()['x-standfast-fragment'] || kept > 0) { await route.continue(); return; }
    kept += 1;
    // Swallowed: neither answered nor refused.
  });
  // The first look is given up sooner than others would be.
  await page.addInitScript(() => {
    const { timeout } = AbortSignal;
    let looks = 0;
    AbortSignal.timeout = (ms) => { looks += 1; return timeout.call(AbortSignal, looks === 1 ? 500 : ms); };
  });
  await open('/sessions');
  await until('the first look is swallowed', () => kept === 1);
  await server.held('ops', 'Meanwhile');
  await page.getByRole('link', { name: /Meanwhile/ }).waitFor();
});

test('where streams are cut, the page looks by itself, also for what becomes of a task (S0-75)', async () => {
  const proxy = await cutter();
  const visitor = watch(await context.newPage(), () => proxy.base, troubles, DOWN);
  await visitor.goto(`${proxy.base}/sessions`);
  await visitor.locator('#live').getByText('Live updates are interrupted').waitFor();
  await server.held('ops', 'Through a proxy');
  await visitor.getByRole('link', { name: /Through a proxy/ }).waitFor();
  const { run, hold } = await server.held('ops', 'Watched');
  await visitor.goto(proxy.base + await sessionOf(run));
  await visitor.getByText('⏸️ Task paused - waiting for your input').waitFor();
  await server.api(`/holds/${hold.split('/').pop()}/resolve`, { resolution: 'approve' });
  await visitor.getByText('Approved by local').waitFor();
  await visitor.close();
  proxy.close();
});

test('a call that changes under somebody’s eyes is not exchanged: they are told (T7)', async () => {
  const { run } = await server.held('ops');
  await page.route('**/sessions/**', async (route) => {
    if (!route.request().headers()['x-standfast-fragment']) { await route.continue(); return; }
    const response = await route.fetch();
    await route.fulfill({ response, body: (await response.text()).replaceAll('name="revision" value="0"', 'name="revision" value="7"') });
  });
  await open(await sessionOf(run));
  await live().getByText('The call changed since you saw it').waitFor();
  assert.equal(await page.locator('form[data-action=approve] input[name=revision]').inputValue(), '0');
});

for (const place of ['conversation', 'run']) test(`words are shown on the page of a ${place} while a model speaks, and replaced by its reply`, async () => {
  const model = await speakingModel();
  const speaking = await new Server('--config', model.config).start();
  const reader = watch(await context.newPage(), () => speaking.base, troubles, DOWN);
  await reader.goto(`${speaking.base}/sessions`);
  await reader.getByLabel('Message').fill('Say something');
  await reader.getByRole('button', { name: 'Send' }).click();
  await until('the model is asked', () => model.isAsked());
  await reader.getByText('The agent is working').waitFor();
  if (place === 'run') {
    const { runs } = await speaking.api('/runs');
    await reader.goto(`${speaking.base}/runs/${runs[0].id}`);
  }
  // A look of the page at itself takes the words away until the model speaks on, as models do.
  await until('the words are shown', async () => { model.say('Once upon '); return await reader.locator('#live-words').getByText('Once upon').count() > 0; });
  model.end('a time <b>there</b> was');
  await reader.locator(place === 'run' ? '.timeline .said' : '.talk.agent').getByText('a time <b>there</b> was').first().waitFor();
  assert.equal(await reader.locator('#live-words').count(), 0);
  await reader.close();
  await speaking.stop();
  model.close();
});

/** A model that says what the test tells it to, when it tells it. */
async function speakingModel() {
  const { mkdtempSync, rmSync, writeFileSync } = await import('node:fs');
  const { tmpdir } = await import('node:os');
  const { join } = await import('node:path');
  const folder = mkdtempSync(join(tmpdir(), 'standfast-speaks-'));
  let answer;
  const piece = (delta, finish = null) => `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const provider = createServer((asked, answering) => {
    asked.resume();
    asked.on('end', () => {
      answering.writeHead(200, { 'content-type': 'text/event-stream' });
      answering.write(piece({ role: 'assistant', content: '' }));
      answer = answering;
    });
  });
  await new Promise((resolve) => { provider.listen(0, '127.0.0.1', resolve); });
  const config = join(folder, 'standfast.yaml');
  writeFileSync(config, `
llms: {gpt: {type: openai, model: gpt-4o, api_key: none, base_url: 'http://127.0.0.1:${provider.address().port}/v1'}}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
agents: {talker: {llm: gpt, session_store: main, task: {}, reasoning: {enable_streaming: true}}}
`);
  return {
    config,
    isAsked: () => answer !== undefined,
    say: (text) => answer.write(piece({ content: text })),
    end: (text) => { answer.write(piece({ content: text })); answer.write(piece({}, 'stop')); answer.end('data: [DONE]\n\n'); },
    close: () => { provider.closeAllConnections(); provider.close(); rmSync(folder, { recursive: true, force: true }); },
  };
}

/** The conversation of a run. */
async function sessionOf(run) {
  const { session } = await server.api(run);
  return `/sessions/${session}?agent=ops`;
}
