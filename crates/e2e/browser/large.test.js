// Much of everything, in Debian's Chromium against the real program: ten thousand holds on the list, five thousand events in a run,
// ten megabytes of arguments, and fifty holds of several kinds that are decided by keyboard alone.
//
// Nothing here looks at a clock: what is too slow to be used fails by the time that a page has for loading.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { launch, Server } from './server.js';
import { accessible, until, watch } from './watch.js';

let browser;
let server;
let folder;
let context;
let page;
let troubles;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
afterEach(async () => {
  await context.close();
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
  assert.deepEqual(troubles.splice(0), []);
});

const ready = () => page.locator('html[data-script=ready]').waitFor({ state: 'attached' });

/** A server whose agents say what is given, each in its first replies, and then that they are done. */
async function begin(agents, tools) {
  troubles = [];
  folder = mkdtempSync(join(tmpdir(), 'standfast-large-'));
  mkdirSync(join(folder, 'workspace'));
  for (const [name, { replies }] of Object.entries(agents)) {
    const all = [...replies, { text: 'All done.' }];
    writeFileSync(join(folder, `${name}.yaml`), `replies:\n${all.map((reply) => `- ${JSON.stringify(reply)}`).join('\n')}\n`);
  }
  const names = Object.keys(agents);
  writeFileSync(join(folder, 'standfast.yaml'), `
llms:
${names.map((name) => `  ${name}: {type: scripted, script: ${name}.yaml}`).join('\n')}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
tools:
${tools}
agents:
${names.map((name) => `  ${name}: {llm: ${name}, session_store: main, tools: [${agents[name].tools}], task: {${agents[name].task ?? ''}}}`).join('\n')}
`);
  server = await new Server('--config', join(folder, 'standfast.yaml')).start();
  context = await browser.newContext();
  page = watch(await context.newPage(), () => server.base, troubles);
  page.setDefaultTimeout(60_000);
}

const asks = (...calls) => ({ calls: calls.map(([tool, args]) => ({ tool, arguments: args })) });

test('ten thousand holds: the list counts them, is walked forwards and back, searched, filtered and decided', async () => {
  const TEN = Array.from({ length: 10 }, (_, at) => ['write_file', { path: `${at}.txt`, content: 'x' }]);
  await begin({
    writer: { replies: [asks(...TEN)], tools: 'write_file' },
    needle: { replies: [asks(['write_file', { path: 'needle.txt', content: 'Grüezi' }])], tools: 'write_file', task: 'input_timeout: 1h' },
  }, '  write_file: {type: write_file, requires_approval: true}');
  let left = 1_000;
  const start = async () => {
    while (left > 0) {
      left -= 1;
      await server.api('/agents/writer/runs', { input: 'Much', wait: 'settled' });
    }
  };
  await Promise.all(Array.from({ length: 32 }, start));
  await server.held('needle', 'The one with a deadline');
  await page.goto(`${server.base}/`);
  await ready();
  await page.getByRole('link', { name: 'All 10001' }).waitFor();
  assert.match(await page.title(), /^\(10001 approvals\) Pending · /);
  const first = await page.locator('.list > li').evaluateAll((all) => all.map((one) => one.id));
  assert.equal(first.length, 25);
  const seen = new Set(first);
  for (let at = 0; at < 4; at += 1) {
    await page.locator('a[rel=next]').click();
    await ready();
    for (const id of await page.locator('.list > li').evaluateAll((all) => all.map((one) => one.id))) {
      assert.ok(!seen.has(id), `${id} is on two pages`);
      seen.add(id);
    }
  }
  assert.equal(seen.size, 125);
  for (let at = 0; at < 4; at += 1) {
    await page.locator('a[rel=prev]').click();
    await ready();
  }
  assert.deepEqual(await page.locator('.list > li').evaluateAll((all) => all.map((one) => one.id)), first);
  // What has no index is looked through in parts, each with the way on; what has one is found at once.
  for (const [query, count] of [['agent=needle', 1], ['agent=needle&q=gr%C3%BCezi', 1], ['agent=needle&deadline=24h&sort=deadline', 1], ['tool=write_file&q=7.txt', 25],
    ['deadline=24h', 1], ['deadline=none', 25], ['owner=local', 25], ['owner=nobody', 0], ['agent=nobody&sort=deadline', 0], ['deadline=24h&mine=1', 1]]) {
    await page.goto(`${server.base}/?${query}`);
    assert.equal(await page.locator('.list > li').count(), count, query);
  }
  // The one with a deadline was the last that was opened; in the order by deadline it is the first of them all.
  await page.goto(`${server.base}/?sort=deadline`);
  await ready();
  const due = await page.locator('.list > li').evaluateAll((all) => all.map((one) => one.id));
  assert.equal(due.length, 25);
  assert.match(await page.locator('.list > li').first().innerText(), /needle/);
  assert.deepEqual(due.slice(1), first.slice(0, 24), 'then those without one, the oldest first');
  await page.locator('a[rel=next]').click();
  await ready();
  const further = await page.locator('.list > li').evaluateAll((all) => all.map((one) => one.id));
  assert.equal(further[0], first[24]);
  assert.ok(!further.some((id) => due.includes(id)));
  await page.goto(`${server.base}/`);
  await ready();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: '✓ Approve: run it as shown' }).click();
  await page.locator('.done').getByText('Approved').waitFor();
  await page.goto(`${server.base}/`);
  await page.getByRole('link', { name: 'All 10000' }).waitFor();
  await accessible(page, 'a long list');
});

test('five thousand events in a run: the latest are there, and all the others one click further', async () => {
  const many = asks(...Array.from({ length: 32 }, () => ['list_dir', { path: '.' }]));
  await begin({ walker: { replies: Array.from({ length: 78 }, () => many), tools: 'list_dir' } }, '  list_dir: {type: list_dir, requires_approval: false}');
  const { id } = await server.api('/agents/walker/runs', { input: 'Walk around', wait: 'settled' });
  for (let tries = 0; tries < 8; tries += 1) {
    await until('it is over', async () => (await server.api(`/runs/${id}`)).status === 'completed').catch(() => {});
  }
  const { seq } = await server.api(`/runs/${id}`);
  assert.ok(seq >= 5_000, `${seq} events`);
  await page.goto(`${server.base}/runs/${id}`);
  await ready();
  const numbers = () => page.locator('.timeline > li').evaluateAll((all) => all.map((one) => Number(one.id.slice(1))));
  let all = await numbers();
  assert.equal(all.at(-1), seq, 'the last event is on the first page');
  while (await page.getByRole('link', { name: /Show earlier events/ }).count() > 0) {
    await page.getByRole('link', { name: /Show earlier events/ }).click();
    await ready();
    all = [...await numbers(), ...all];
  }
  assert.deepEqual(all, Array.from({ length: seq }, (_, at) => at + 1), 'every event, once and in order');
  await page.getByRole('link', { name: 'Show the latest events' }).click();
  const picture = await context.request.get(`${server.base}/runs/${id}/timeline.svg`);
  assert.equal(picture.status(), 200);
  assert.match(await picture.text(), /earlier events are not in this picture/);
  // The conversation has the beginning and the end, and says where the rest is.
  const { session } = await server.api(`/runs/${id}`);
  await page.goto(`${server.base}/sessions/${session}?agent=walker`);
  await ready();
  await page.getByText(/\d+ parts of this run are not shown here/).waitFor();
  assert.ok(await page.locator('.conversation > div').count() <= 201);
  await page.locator('.talk').getByText('Walk around').waitFor();
  await page.locator('.talk.agent').getByText('All done.').waitFor();
});

test('ten megabytes of arguments: a summary first, the buttons in reach, nothing cut silently, every byte one click away', async () => {
  const line = 'A line of a file that is long enough to be one. Grüezi.\n';
  const content = line.repeat(Math.ceil(10_485_760 / line.length));
  const rows = { note: 'many', rows: Array.from({ length: 20_000 }, (_, at) => ({ id: at, name: `Müller ${at}`, note: 'x'.repeat(480) })) };
  await begin({
    writer: { replies: [asks(['write_file', { path: 'big.txt', content }])], tools: 'write_file' },
    rower: { replies: [asks(['write_rows', JSON.stringify(rows)])], tools: 'write_rows' },
  }, `  write_file: {type: write_file, requires_approval: true}
  write_rows: {type: external, url: 'http://127.0.0.1:9/', allowed_hosts: ['127.0.0.1:9'], requires_approval: true, description: Writes rows}`);
  for (const agent of ['writer', 'rower']) {
    const { hold, id } = await server.held(agent);
    await page.goto(server.base + hold);
    await ready();
    await page.getByText(/In short \(1\d{7} bytes\)/).waitFor();
    assert.ok(await page.getByRole('button', { name: '✓ Approve: run it as shown' }).evaluate((button) => {
      const { top, bottom } = button.getBoundingClientRect();
      return top >= 0 && bottom <= innerHeight;
    }), 'the button is in reach at once');
    await page.getByText(/more lines are not shown here|more rows are not shown here|more characters, not shown here/).first().waitFor();
    const raw = await context.request.get(`${server.base}${hold}/raw`);
    const text = await raw.text();
    const given = JSON.parse(text);
    if (agent === 'writer') assert.equal(given.content, content); else assert.deepEqual(given, rows);
    await accessible(page, `${agent} with ten megabytes`);
    // A widget is as short, and what is too long to edit has no editor.
    const { session } = await server.api(`/runs/${id}`);
    const response = await page.goto(`${server.base}/sessions/${session}?agent=${agent}`);
    await ready();
    await page.locator('.widget').getByText(/In short \(1\d{7} bytes\)/).waitFor();
    assert.ok((await response.body()).length < 2_000_000, 'the page has not all of it');
    await page.locator('.widget summary', { hasText: 'Edit the arguments' }).click();
    await page.locator('.widget').getByText('These arguments are too long to edit on a page').waitFor();
    await page.locator('.widget a', { hasText: 'Open the bytes by themselves' }).waitFor({ state: 'attached' });
    assert.equal(await page.locator('.widget textarea').count(), 0);
    await page.getByRole('button', { name: '✕ Deny' }).click();
    await page.getByText('by local').first().waitFor();
  }
  await page.goto(`${server.base}/`);
  await page.getByText('Nothing is pending').waitFor();
});

test('fifty mixed holds are decided by keyboard, with at most three keys for each, and none is lost', async () => {
  await begin({
    reader: { replies: [asks(['read_file', { path: 'a.txt' }])], tools: 'read_file' },
    remover: { replies: [asks(['delete_file', { path: 'gone.txt' }])], tools: 'delete_file' },
    chooser: { replies: [asks(['suspend', { reason: 'Two ways', question: 'Which way?', options: ['left', 'right'] }])], tools: 'suspend' },
    asker: { replies: [asks(['suspend', { reason: 'No name', question: 'Which name?' }])], tools: 'suspend' },
    writer: { replies: [asks(['write_file', { path: 'b.txt', content: 'x' }])], tools: 'write_file' },
  }, `  read_file: {type: read_file, requires_approval: true}
  delete_file: {type: delete_file, requires_approval: true}
  suspend: {type: suspend-for-input}
  write_file: {type: write_file, requires_approval: true}`);
  for (const name of ['a.txt', 'gone.txt']) writeFileSync(join(folder, 'workspace', name), 'there\n');
  const agents = ['reader', 'remover', 'chooser', 'asker', 'writer'];
  const keys = {
    reader: ['a'],
    remover: ['A', 'Enter'],
    chooser: ['e', 'Enter'],
    asker: ['E', 'y', 'Control+Enter'],
    writer: ['d', 'n', 'Enter'],
  };
  const outcomes = { reader: 'approved', remover: 'approved', chooser: 'answered', asker: 'answered', writer: 'denied' };
  for (let at = 0; at < 50; at += 1) await server.held(agents[at % agents.length], `Number ${at}`);
  await page.goto(`${server.base}/`);
  await ready();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  for (let at = 0; at < 50; at += 1) {
    await page.waitForURL(/\/approve\//);
    await ready();
    const address = page.url();
    const agent = await page.locator('.lead strong').first().textContent();
    assert.ok(keys[agent].length <= 3);
    for (const key of keys[agent]) await page.keyboard.press(key);
    await page.waitForURL((url) => url.toString() !== address);
  }
  const { holds } = await server.api('/holds?state=decided&limit=100');
  assert.equal(holds.length, 50);
  for (const hold of holds) assert.equal(hold.decided.how, outcomes[hold.agent], JSON.stringify(hold));
  assert.equal((await server.api('/holds')).holds.length, 0);
});
