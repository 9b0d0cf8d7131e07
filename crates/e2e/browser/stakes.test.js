// What stands beside the buttons, wherever there are some, in Debian's Chromium with script off and on: why it is held, what is
// different now, what follows, who decides; causes of unknown outcomes; the list that is worked through; ids and files.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { calls, configure, script } from './agents.js';
import { launch, Server } from './server.js';
import { CORPUS, NASTY, until, watch } from './watch.js';

const EXPECTED = /status of 4(09|22)|ERR_(CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)/;
const csv = (length) => `data:text/csv;base64,${Buffer.from(`first,last\n${'x'.repeat(length)}`).toString('base64')}`;

let browser;
let folder;
let model;
let server;
let context;
let page;
let troubles;
let asked = 0;

/** A model with prices that is overloaded at first. */
async function pricedModel() {

  const server = createServer((request, answer) => {
    request.resume();
    request.on('end', () => {
      asked += 1;
      if (asked === 1) {
        answer.writeHead(503, { 'content-type': 'application/json' });
        answer.end(JSON.stringify({ error: { message: 'overloaded', type: 'server_error' } }));
        return;
      }
      const piece = (more) => `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', model: 'gpt-4o', created: 1, ...more })}\n\n`;
      answer.writeHead(200, { 'content-type': 'text/event-stream' });
      answer.write(piece({ choices: [{ index: 0, delta: { role: 'assistant', content: 'Two disks are full.' }, finish_reason: null }] }));
      answer.write(piece({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }));
      answer.write(piece({ choices: [], usage: { prompt_tokens: 1000, completion_tokens: 200, total_tokens: 1200 } }));
      answer.end('data: [DONE]\n\n');
    });
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  return server;
}

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'standfast-stakes-'));
  model = await pricedModel();
  const extra = {
    sleeper: calls('This takes a while.', ['slow', { command: 'sleep 600' }]),
    late: calls('In a moment.', ['brief', { command: 'ls' }]),
    filer: calls('Some files.', ['write_rows', { about: csv(5_000), files: Array.from({ length: 22 }, () => csv(3)) }]),
    nastyform: calls('A form.', ['suspend', { reason: NASTY, question: NASTY, resumeSchema: { type: 'object', title: NASTY, required: [], properties: {
      choice: { enum: [NASTY, 'b'], title: NASTY, description: NASTY, default: NASTY }, words: { type: 'string', title: NASTY, default: NASTY },
      lines: { type: 'array', items: { type: 'string' }, default: [NASTY], title: NASTY },
    } } }]),
  };
  for (const [name, reply] of Object.entries(extra)) writeFileSync(join(folder, `${name}.yaml`), script(reply, { text: 'All **done**.' }));
  const names = Object.keys(extra);
  const tools = { sleeper: 'slow', late: 'brief', filer: 'write_rows', nastyform: 'suspend' };
  configure(folder, {
    llms: [...names.map((name) => `  ${name}: {type: scripted, script: ${name}.yaml}`),
      `  priced: {type: openai, model: gpt-4o, api_key: none, base_url: 'http://127.0.0.1:${model.address().port}/v1', price: {input: 2.5, output: 10}}`].join('\n'),
    agents: [...names.map((name) => `  ${name}: {llm: ${name}, session_store: main, tools: [${tools[name]}], task: {}}`),
      '  priced: {llm: priced, session_store: main, task: {}}'].join('\n'),
    tools: '  slow: {type: command, requires_approval: false}\n  brief: {type: command, requires_approval: true, input_timeout: 1s, on_timeout: keep}',
    rest: `policy:
  grants: {max_uses: 20}
  rules:
  - {id: nasty, hold: http_request, because: ${JSON.stringify(NASTY)}}`,
  });
});
after(async () => {
  await browser.close();
  model.closeAllConnections();
  model.close();
  rmSync(folder, { recursive: true, force: true });
});
beforeEach(async () => {
  troubles = [];
  asked = 0;
  for (const end of ['', '-wal', '-shm']) rmSync(join(folder, `sessions.db${end}`), { force: true });
  writeFileSync(join(folder, 'workspace', 'hello.txt'), 'one\nHello\nthree\n');
  server = await new Server('--config', join(folder, 'standfast.yaml')).start();
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

async function visit(options = {}) {
  context = await browser.newContext(options);
  page = watch(await context.newPage(), () => server.base, troubles, EXPECTED);
}

/** A test with script on and off. */
function both(name, body) {
  for (const javaScriptEnabled of [false, true]) {
    test(`${name}, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      await visit({ javaScriptEnabled });
      await body();
    });
  }
}

async function open(path) {
  const response = await page.goto(server.base + path);
  assert.equal(response.status(), 200, path);
}

const press = (name) => page.getByRole('button', { name }).click();
const heading = (name) => page.getByRole('heading', { name, exact: true }).waitFor();
const idOf = (hold) => hold.split('/').at(-1);
const conversation = async (run, agent) => `/sessions/${(await server.api(run)).session}?agent=${agent}`;
const pending = async (kind) => (await server.api('/holds')).holds.filter((hold) => hold.kind === kind);

both('why it is held, what changed, what follows, votes and who decides stand wherever there is a button', async () => {
  const { hold, run } = await server.held('pair');
  const places = [hold, await conversation(run, 'pair'), `/review?hold=${idOf(hold)}`];
  const says = async (text) => {
    for (const place of places) {
      await open(place);
      await page.locator('main').getByText(text).first().waitFor();
    }
  };
  await says('Its tool asks before every call.');
  await says('Your approval counts. pay runs when 1 other person has approved as well.');
  await says('The agent gets your reason and continues.');
  await says('0 of 2');
  await says('Who may decide');
  for (const place of places) {
    await open(place);
    assert.equal(await page.getByText('Changed since this was asked').count(), 0, place);
  }
  const config = join(folder, 'standfast.yaml');
  const whole = readFileSync(config, 'utf8');
  await server.kill();
  try {
    writeFileSync(config, whole.replace('pair: {llm: pair, session_store: main, tools: [edit_file, ', 'pair: {llm: pair, session_store: main, tools: ['));
    await server.start();
    await says('Changed since this was asked.');
    await says('The agent has changed since this run began.');
    await open(hold);
    await press('Ask again');
    await page.getByText('Revision 1: changed, or asked again').waitFor();
  } finally {
    writeFileSync(config, whole);
  }
});

both('a rule says why in its own words, and those are only text', async () => {
  const { hold, run } = await server.held('caller');
  for (const place of [hold, await conversation(run, 'caller'), `/review?hold=${idOf(hold)}`, '/']) {
    await open(place);
    await page.locator('main').getByText('onerror="alert(1)"').first().waitFor();
    assert.equal(await page.locator('main img, main script, main iframe, main style, [onerror], [onload], [onfocus]').count(), 0, place);
  }
});

test('an agent whose questions, titles, choices and defaults look like markup has forms of text', async () => {
  await visit();
  const { hold, run } = await server.held('nastyform');
  for (const place of [hold, await conversation(run, 'nastyform'), `/review?hold=${idOf(hold)}`, '/']) {
    await open(place);
    await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
    assert.equal(await page.locator('main img, main script, main iframe, main style, main a[href^="javascript"], [onerror], [onload], [onfocus]').count(), 0, place);
  }
  await open(hold);
  await press('Send the answer');
  await heading('Answered');
  await page.getByText('onerror').first().waitFor();
});

test('every visible field takes every text and shows it as text', async () => {
  await visit();
  const { hold } = await server.held('editor');
  const asked = await server.held('waiter');
  const pages = ['/', '/runs', '/history', '/sessions', '/inboxes/desk', hold, asked.hold, await conversation(asked.run, 'waiter')];
  const forms = 'main form:not([action$="/cancel"])';
  for (const [at, text] of CORPUS.entries()) {
    for (const address of pages) {
      await page.goto(server.base + address);
      await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
      // Each time another form of the page is sent; all of its fields have the text.
      const count = await page.locator(forms).count();
      const form = page.locator(forms).nth(at % count);
      for (const field of await form.locator('input[type=text]:visible, input[type=search]:visible, textarea:visible').all()) await field.fill(text);
      const button = form.locator('button:visible:not(.for-readers)').first();
      if (await button.count() > 0) await button.click();
      await page.locator('main').waitFor();
      assert.equal(await page.locator('main img, main script, main iframe, main style, main a[href^="javascript"], [onerror], [onload], [onfocus]').count(), 0, `${address} ${text}`);
    }
  }
  troubles = troubles.filter((said) => !/status of 4(00|03|04)/.test(said));
});

both('an unknown outcome says its cause: a server that stopped, a worker that never reported', async () => {
  const lost = await server.held('sleeper', 'Wait for it');
  await server.api(`/holds/${idOf(lost.hold)}/resolve`, { resolution: 'approve' });
  await until('the call runs', async () => (await server.api(`/runs/${lost.id}/events`)).events.some((event) => event.type === 'call.started'));
  await server.kill();
  await server.start();
  await until('it is asked about', async () => (await pending('recovery')).length === 1);
  const [first] = await pending('recovery');
  await open(`/approve/${first.id}`);
  await page.getByText('The server that ran this call stopped').waitFor();
  assert.equal(await page.getByText('never reported').count(), 0);
  await page.locator('summary', { hasText: 'It happened' }).click();
  await page.getByLabel('Its result, for the agent').fill('It had slept');
  await press('It happened, with this result');
  await heading('It happened');
  const gate = await server.post('/api/v1/gates', { tool: 'send_refund', arguments: { order: 'A-7' }, agent: 'billing', session: 'case-7', call: 'call_1' });
  await open(new URL(gate.url).pathname);
  await page.getByText('No rule allows this call, so a person decides.').waitFor();
  await press('Approve: run it as shown');
  await heading('Approved');
  const { digest } = await server.get(`/api/v1/gates/${gate.gate}`);
  await server.post(`/api/v1/gates/${gate.gate}/start`, { digest, lease_ms: 1_000 });
  await until('it is overdue', async () => (await pending('recovery')).some((hold) => hold.id !== first.id));
  const second = (await pending('recovery')).find((hold) => hold.id !== first.id);
  await open(`/approve/${second.id}`);
  await page.getByText('The worker was allowed to run this call and never reported').waitFor();
  assert.equal(await page.getByText('The server that ran this call stopped').count(), 0);
});

both('what was answered ran nothing, and a question that the agent asks has its name', async () => {
  const { hold } = await server.held('waiter');
  await open(hold);
  await page.getByText('The agent says why').waitFor();
  await page.getByLabel('Your answer').fill('Ann');
  await press('Send the answer');
  await heading('Answered');
  assert.equal(await page.getByText('What ran').count(), 0);
  const former = await server.held('former');
  await open(former.hold);
  await heading('Who comes?');
});

both('a list is worked through: a sub-run that works is passed over', async () => {
  await server.held('lister');
  await server.api('/agents/leader/runs', { input: 'Hand it over', wait: 'settled' });
  await until('the sub-run is held', async () => (await pending('approval')).length === 2);
  await server.held('remover');
  await open('/');
  assert.deepEqual(await page.locator('#nav a.kind-count').allTextContents(), ['3 approvals', '1 job or sub-run']);
  assert.match(await page.title(), /^\(3 approvals, 1 job or sub-run\) Pending · /);
  await page.locator('.list > li a').first().click();
  for (const agent of ['lister', 'lister', 'remover']) {
    await heading('Approve execute_command?');
    await page.locator('.lead').getByText(`agent ${agent}`).waitFor();
    await press('Approve: run it as shown');
    if (agent !== 'remover') await page.getByRole('status').getByText('Approved: execute_command').waitFor();
  }
  await heading('Approved');
});

both('who is asked is changed on the page: assigned, given back, delegated', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  const unfold = () => page.locator('summary', { hasText: 'Who is asked' }).click();
  await unfold();
  await page.getByLabel('Assign it to').fill('ann');
  await page.getByRole('button', { name: 'Assign', exact: true }).click();
  await page.locator('summary', { hasText: 'Who is asked: ann' }).click();
  await press('Assign it to me');
  await page.locator('summary', { hasText: 'Who is asked: local' }).click();
  await press('Assign it to nobody in particular');
  assert.equal(await page.locator('summary', { hasText: 'Who is asked: local' }).count(), 0);
  await unfold();
  await page.getByLabel('Let somebody decide in your place').fill('ben');
  await page.locator('#delegate-hours').fill('2');
  await press('Delegate');
  await page.locator('dt', { hasText: 'In place of local' }).waitFor();
  await page.getByText('ben until').waitFor();
  const late = await server.held('late');
  await until('it has expired', async () => (await server.api(`/runs/${late.id}/events`)).events.some((event) => event.type === 'hold.expired'));
  await open(late.hold);
  await page.getByText('deadline was').waitFor();
  await unfold();
  await page.locator('#reopen-hours').fill('2');
  await press('Reopen');
  await page.getByText('it is marked as late and stays open').waitFor();
  assert.equal(await page.getByText('deadline was').count(), 0);
});

both('a standing approval is made from a call, used by the next one, and revoked', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  await page.getByRole('link', { name: 'Approve this and further calls like it' }).click();
  await page.getByLabel('Further calls, at most').fill('3');
  await press('Show the rule');
  await page.getByRole('heading', { name: 'The rule that would be saved' }).waitFor();
  await press('Approve this call, and save the rule');
  await heading('Standing approvals');
  await page.getByText('execute_command: 0 of 3 used').waitFor();
  const next = await server.api('/agents/lister/runs', { input: 'Again', wait: 'settled' });
  await until('nobody is asked', async () => (await server.api(`/runs/${next.id}`)).status === 'completed');
  await open('/grants');
  await page.getByText('execute_command: 1 of 3 used').waitFor();
  await press('Revoke: ask again from now on');
  await page.locator('.badge', { hasText: 'Revoked' }).waitFor();
  await server.held('lister');
});

both('text files show how they begin, and of many files the page says how many there are', async () => {
  const { hold, run } = await server.held('filer');
  for (const place of [hold, await conversation(run, 'filer')]) {
    await open(place);
    const first = page.locator('.media', { hasText: 'text/csv' }).first();
    await first.locator('summary', { hasText: 'How it begins' }).click();
    await first.getByText('first,last').waitFor();
    await first.getByText('… and 1011 more characters, not shown here.').waitFor();
    assert.equal(await page.locator('.media').count(), 20);
    await page.getByText('And 3 more files').waitFor();
  }
});

test('ids are copied by a click, those that are links by the button beside them', async () => {
  await visit({ permissions: ['clipboard-read', 'clipboard-write'] });
  const { hold, id } = await server.held('lister');
  await open(hold);
  await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await page.getByRole('button', { name: `Copy ${id}` }).first().click();
  await page.getByText(`Copied ${id}`).waitFor();
  assert.equal(await copied(), id);
  await page.locator(`span.id[data-id="${idOf(hold)}"]`).click();
  await page.getByText(`Copied ${idOf(hold)}`).waitFor();
  assert.equal(await copied(), idOf(hold));
  await press('Approve: run it as shown');
  await heading('Approved');
  await open(`${hold}/receipt`);
  await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
  const head = page.locator('span.id[data-id]').last();
  const whole = await head.getAttribute('data-id');
  assert.equal(await head.textContent(), whole, 'a receipt is printed with all of it');
  await head.click();
  await page.getByText(`Copied ${whole}`).waitFor();
  assert.equal(await copied(), whole);
});

both('tokens, cost and retries are on the page of a run, and runs are found by agent, owner and session', async () => {
  const run = await server.api('/agents/priced/runs', { input: 'Which disks are full?', wait: 'settled' });
  await until('it is over', async () => (await server.api(`/runs/${run.id}`)).status === 'completed');
  const { hold } = await server.held('lister');
  await open(`/runs/${run.id}`);
  await page.locator('.timeline').getByText('1000 input tokens, 200 output tokens').waitFor();
  const facts = page.getByRole('complementary', { name: 'About this run' });
  await facts.getByText('1000 input tokens, 200 output tokens').waitFor();
  assert.match(await facts.locator('dt:text-is("Cost") + dd').textContent(), /0\.0045/);
  assert.equal(await facts.locator('dt:text-is("Retries") + dd').textContent(), '1');
  await page.getByText('Model request failed (failure 1)').waitFor();
  for (const [query, count] of [['agent=priced', 1], ['agent=lister', 1], ['owner=local', 2], ['owner=ann', 0], [`session=${run.session}`, 1], [`session=${run.session}&agent=lister`, 0]]) {
    await open(`/runs?${query}`);
    assert.equal(await page.locator('main .list.rows > li').count(), count, query);
  }
  await server.api(`/holds/${idOf(hold)}/resolve`, { resolution: 'deny' });
  for (const over of ['7d', '30d']) {
    await open(`/charts?over=${over}`);
    await heading('Time to decision by tool');
  }
});

both('data and files of a message are shown where it stands, and beside what it led to', async () => {
  const parts = [{ data: { who: 'Müller', rows: [{ a: 1 }, { a: 2 }] } }, { url: 'https://example.org/plan.txt', filename: 'plan.txt', mediaType: 'text/plain' }];
  const answer = await fetch(`${server.base}/v1/agents/lister/message:send`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ message: { messageId: '1', role: 'ROLE_USER', parts } }),
  });
  assert.ok(answer.ok, await answer.text());
  const [hold] = await pending('approval');
  await open(`/approve/${hold.id}`);
  await page.locator('.before .json').getByText('Müller').waitFor();
  await page.locator('.before').getByText('File plan.txt (text/plain)').waitFor();
  const run = (await server.api(`/holds/${hold.id}`)).run;
  await open(await conversation(`/runs/${run}`, 'lister'));
  await page.locator('.talk .json').getByText('Müller').waitFor();
  assert.equal(await page.getByText('(a message without text)').count(), 0);
});
