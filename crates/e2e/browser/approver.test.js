// The approver's pages in Debian's Chromium, with script off and on: what a hold shows, the list with its filters, several at once,
// the history, runs and charts.
//
// S4-17, S4-18, S4-26: pending holds are shown, found and answered in a browser. T17, T20: text of models, tools and files runs
// nothing and hides nothing, wherever it is shown.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { AGENTS, configure, DRAWING, LIST, NASTY, PAPER } from './agents.js';
import { launch, Server } from './server.js';
import { accessible, until } from './watch.js';

let browser;
let server;
let context;
let page;
let troubles;
let folder;

before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'standfast-approver-'));
  configure(folder);
});
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
});

function watch(watched) {
  watched.on('console', (message) => { if (message.type() === 'error') troubles.push(message.text()); });
  watched.on('pageerror', (error) => troubles.push(String(error)));
  watched.on('dialog', (dialog) => { troubles.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  watched.on('request', (request) => { if (!request.url().startsWith(server.base)) troubles.push(request.url()); });
  return watched;
}

beforeEach(async () => {
  troubles = [];
  rmSync(join(folder, 'sessions.db'), { force: true });
  for (const end of ['-wal', '-shm']) rmSync(join(folder, `sessions.db${end}`), { force: true });
  writeFileSync(join(folder, 'workspace', 'hello.txt'), 'one\nHello\nthree\n');
  rmSync(join(folder, 'workspace', 'new.txt'), { force: true });
  server = await new Server('--config', join(folder, 'standfast.yaml')).start();
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

/** A test with script on and off: everything works without it, and nothing works otherwise with it. */
function both(name, body) {
  for (const javaScriptEnabled of [false, true]) {
    test(`${name}, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
      context = await browser.newContext({ javaScriptEnabled });
      page = watch(await context.newPage());
      page.setDefaultTimeout(15_000);
      await body();
    });
  }
}

async function open(path, status = 200) {
  const response = await page.goto(server.base + path);
  assert.equal(response.status(), status, path);
}

const press = (name) => page.getByRole('button', { name }).click();
const heading = (name) => page.getByRole('heading', { name, exact: true }).waitFor();
const shot = async (name) => {
  if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}.png`, fullPage: true });
};

async function inAllLooks(name) {
  if (!process.env.SCREENSHOTS) return;
  await shot(`${name}-light`);
  await page.emulateMedia({ colorScheme: 'dark' });
  await shot(`${name}-dark`);
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 390, height: 844 });
  await shot(`${name}-phone`);
  await page.setViewportSize({ width: 1280, height: 720 });
}

both('an edit is shown as a diff, with what was asked, what was said, what follows and who decides', async () => {
  const { hold } = await server.held('editor', 'Please greet people in Zurich');
  await open(hold);
  await page.getByText('Please greet people in Zurich').waitFor();
  assert.equal(await page.locator('.before .said strong').textContent(), 'fix');
  const lines = await page.locator('.diff > div').allTextContents();
  assert.deepEqual(lines, ['@@ -1,3 +1,3 @@', ' one', '-Hello', '+Grüezi', ' three']);
  await page.getByText('edit_file runs once, with exactly these arguments.').waitFor();
  await page.getByText('Its tool asks before every call.').waitFor();
  await page.getByText('there is no deadline').waitFor();
  assert.equal(await page.getByText('Cannot be undone').count(), 0);
  assert.equal(await page.getByText('The file changed after this was asked').count(), 0);
  await inAllLooks('hold-diff');
  await press('Approve: run it as shown');
  await heading('Approved');
  assert.equal(readFileSync(join(folder, 'workspace', 'hello.txt'), 'utf8'), 'one\nGrüezi\nthree\n');
});

both('a file that changed since the question is said loudly, and an edit that would fail too', async () => {
  const { hold } = await server.held('editor');
  const file = join(folder, 'workspace', 'hello.txt');
  writeFileSync(file, 'one\nHello\nthree\nfour\n');
  const later = new Date(Date.now() + 60_000);
  utimesSync(file, later, later);
  await open(hold);
  await page.getByText('The file changed after this was asked').waitFor();
  // What counts is what it has, not when it was written.
  writeFileSync(file, 'one\nHello\nthree\n');
  utimesSync(file, later, later);
  await open(hold);
  assert.equal(await page.getByText('The file changed after this was asked').count(), 0, 'it was only written again');
  const before = new Date(Date.now() - 3_600_000);
  writeFileSync(file, 'one\nHello\nthree\nfour\n');
  utimesSync(file, before, before);
  await open(hold);
  await page.getByText('The file changed after this was asked').waitFor();
  writeFileSync(file, 'nothing of the kind\n');
  await open(hold);
  await page.getByText('As the file is now, the call would fail').waitFor();
});

both('a new file is all additions, and text of models and files is never markup', async () => {
  const { hold } = await server.held('writer', NASTY);
  await open(hold);
  await page.getByText('new.txt, new file').waitFor();
  assert.equal(await page.locator('main script, main iframe, main img, main svg, main a[href^="javascript"]').count(), 0);
  assert.equal((await page.content()).includes('\u202e'), false);
  assert.match(await page.locator('.diff .plus').first().textContent(), /onerror/);
  const raw = await page.request.get(`${server.base}${hold}/raw`);
  assert.equal(raw.headers()['content-type'], 'text/plain; charset=utf-8');
  assert.match(raw.headers()['content-security-policy'], /sandbox/);
  assert.equal(JSON.parse(await raw.text()).path, 'new.txt');
});

both('a command is shown word by word with what the sandbox allows; only what is known is claimed', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  assert.deepEqual(await page.locator('.argv li').allTextContents(), ['ls', '-la']);
  await page.getByText('use the network').waitFor();
  await page.locator('.signs').getByText('Read-only').waitFor();
  assert.equal(await page.getByText('Cannot be undone').count(), 0);
  await inAllLooks('hold-command');
  const other = await server.held('remover');
  await open(other.hold);
  assert.deepEqual(await page.locator('.argv li').allTextContents(), ['rm', '-rf', 'a b']);
  assert.equal(await page.locator('.signs .sign.irreversible, .signs [class*=risk-]').count(), 0);
});

both('a request is shown with method, address and body', async () => {
  const { hold } = await server.held('caller');
  await open(hold);
  assert.equal(await page.locator('.method').textContent(), 'POST');
  await page.getByText('https://example.org/a?b=c').first().waitFor();
  await page.getByText('Müller').waitFor();
});

both('arguments are a tree with real characters, lists of objects are tables, pictures are previews', async () => {
  const { hold } = await server.held('table');
  await open(hold);
  assert.deepEqual(await page.locator('.json th').allTextContents(), ['a', 'b']);
  await page.locator('.json').getByText('Müller').waitFor();
  assert.equal(await page.locator('main script, main img').count(), 0);
  await inAllLooks('hold-table');
  const picture = await server.held('picture');
  await open(picture.hold);
  const image = page.locator('.media img');
  await image.waitFor();
  const served = await page.request.get(server.base + await image.getAttribute('src'));
  assert.equal(served.headers()['content-type'], 'image/png');
  assert.equal(served.headers()['content-disposition'], 'attachment');
  assert.match(served.headers()['content-security-policy'], /sandbox/);
});

both('a table of files shows what each is and leads to it; its bytes stand in the raw arguments', async () => {
  const { hold } = await server.held('files');
  await open(hold);
  const cells = page.locator('.json tbody tr');
  assert.deepEqual(await cells.locator('td:first-child').allTextContents(), ['dot.png', 'list.csv', 'paper.pdf']);
  assert.deepEqual(await cells.locator('a.file').allTextContents(), ['image/png, 70 bytes', `text/csv, ${LIST.length} bytes`, `application/pdf, ${PAPER.length} bytes`]);
  assert.equal(await cells.locator('a.file img').count(), 1);
  const tree = await page.locator('.json').innerText();
  for (const bytes of [LIST, PAPER]) assert.ok(!tree.includes(Buffer.from(bytes).toString('base64')));
  const served = await page.request.get(server.base + await cells.locator('a.file').nth(2).getAttribute('href'));
  assert.equal(await served.text(), PAPER);
  assert.match(served.headers()['content-security-policy'], /sandbox/);
  await page.locator('summary', { hasText: 'Raw arguments' }).click();
  assert.ok((await page.locator('[data-arguments]').innerText()).includes(Buffer.from(PAPER).toString('base64')));
  await inAllLooks('hold-files');
});

both('filters combine, live in the address, and an unknown one is an error', async () => {
  await server.held('editor');
  await server.held('lister');
  await server.held('remover');
  await open('/');
  assert.match(await page.title(), /^\(3 approvals\) Pending · /);
  assert.deepEqual(await page.locator('#nav a.kind-count').allTextContents(), ['3 approvals']);
  assert.equal(await page.locator('.list > li').count(), 3);
  await inAllLooks('pending');
  await page.getByLabel('Search what is asked').fill('grüezi');
  await page.getByRole('button', { name: 'Search' }).click();
  assert.equal(await page.locator('.list > li').count(), 1);
  assert.match(page.url(), /q=gr%C3%BCezi/);
  await open('/?tool=execute_command&risk=read_only');
  assert.equal(await page.locator('.list > li').count(), 1);
  await open('/?tool=execute_command&risk=unknown&sort=deadline&mine=1');
  assert.equal(await page.locator('.list > li').count(), 1);
  await open('/?deadline=passed');
  await page.getByText('Nothing pending fits these filters').waitFor();
  for (const bad of ['/?kind=aproval', '/?tol=x', '/?risk=high', '/history?outcome=maybe', '/runs?state=odd', '/charts?over=1y',
    '/sessions?agnt=x', '/jobs?state=over', '/inboxes/support?stat=x', '/sessions/remembered?task=x&more=1']) {
    await open(bad, 400);
    if (bad === '/?tol=x') await page.getByText('There is no parameter tol at this address. Parameters that it has: q, kind').waitFor();
  }
  troubles = troubles.filter((text) => !/status of 400/.test(text));
});

both('after a decision the next hold of the list opens, with what just happened', async () => {
  await server.held('lister');
  await server.held('remover');
  await server.held('editor');
  await open('/?tool=execute_command');
  await page.locator('.list > li a').first().click();
  await press('Approve: run it as shown');
  await page.getByRole('status').getByText('Approved: execute_command').waitFor();
  assert.deepEqual(await page.locator('.argv li').allTextContents(), ['rm', '-rf', 'a b']);
  await press('Deny: do not run it');
  await heading('Denied');
  await open('/');
  assert.equal(await page.locator('.list > li').count(), 1);
});

both('several are decided together after a page that shows each', async () => {
  const first = await server.held('lister');
  const second = await server.held('editor');
  await server.held('remover');
  await open('/');
  for (const box of await page.getByRole('checkbox', { name: /Select/ }).all()) await box.check();
  await page.getByRole('checkbox', { name: /Select/ }).nth(2).uncheck();
  await press('Review the selected ones together');
  await heading('Review: 2 holds');
  await page.locator('.diff').waitFor();
  await page.locator('.argv').waitFor();
  await inAllLooks('review');
  await server.api(`/holds/${first.hold.split('/').at(-1)}/resolve`, { resolution: 'deny' });
  await press('Approve all 2 as shown');
  await heading('What came of it: 2 holds');
  await page.getByText('Approved by').waitFor();
  assert.equal((await server.api(`/runs/${second.id}`)).status !== 'held', true);
  troubles = troubles.filter((text) => !/status of 409/.test(text));
});

both('a question is answered on the page of several, beside an approval; what the agent shows with it is a tree', async () => {
  const asked = await server.held('asker');
  await server.held('lister');
  await open('/');
  for (const box of await page.getByRole('checkbox', { name: /Select/ }).all()) await box.check();
  await press('Review the selected ones together');
  await heading('Review: 2 holds');
  const question = page.locator('.widget');
  assert.deepEqual(await question.locator('.json th').allTextContents(), ['name', 'km']);
  await question.getByText('Müller').waitFor();
  // Whose run it is and what was said before stand with a question as with an approval.
  await question.getByText('started by local').waitFor();
  assert.deepEqual(await question.locator('.before .label').allTextContents(), ['local asked', 'asker said just before']);
  assert.deepEqual(await question.locator('.before > .text').allTextContents(), ['Please']);
  await question.getByText('I wonder.').waitFor();
  await inAllLooks('review-mixed');
  await question.getByRole('button', { name: 'right', exact: true }).click();
  await heading('Review: 2 holds');
  await page.getByText('Answered by local').waitFor();
  assert.equal((await server.api(`/runs/${asked.id}`)).status, 'completed');
  await press('Approve the open call as shown');
  await heading('What came of it: 2 holds');
  await page.getByText('Approved by local').waitFor();
  await open(asked.hold);
  assert.deepEqual(await page.locator('.asked .json th').allTextContents(), ['name', 'km']);
  await page.getByText('Raw data, as it was sent').click();
  await page.getByText('"ways"').waitFor();
});

both('a sub-run stands within the timeline of the run that started it, and the page follows it', async () => {
  const { id } = await server.api('/agents/leader/runs', { input: 'Hand it over', wait: 'settled' });
  /** @type {{ id: string, kind: string } | undefined} */
  let held;
  await until('the sub-run is held', async () => {
    held = (await server.api('/holds')).holds.find((/** @type {{ kind: string }} */ hold) => hold.kind === 'approval');
    return held !== undefined;
  });
  // What the person asked, and what the agent above asked of this one: neither is taken for the other.
  await open(`/approve/${held?.id}`);
  assert.deepEqual(await page.locator('.before .label').allTextContents(), ['local asked', 'leader asked lister', 'lister said just before']);
  assert.deepEqual(await page.locator('.before > .text').allTextContents(), ['Hand it over', 'List what is there']);
  const { session } = await server.api(`/runs/${id}`);
  await open(`/sessions/${session}?agent=leader`);
  await page.locator('#state').getByText('Task paused - waiting for your input').waitFor();
  await page.getByRole('heading', { name: 'A sub-run works on hand_over' }).waitFor();
  await open(`/runs/${id}`);
  await page.getByText('Paused: Sub-run').waitFor();
  await page.locator('.lead .badge').getByText('Waiting for a sub-run').waitFor();
  await page.getByText('Held: sub-run').waitFor();
  const nested = page.locator('.timeline > li .sub-run');
  assert.equal(await nested.count(), 1);
  await nested.getByText('Sub-run of lister').waitFor();
  assert.ok(await nested.locator('.timeline > li').count() >= 3);
  await inAllLooks('run-nested');
  const withScript = await browser.newContext();
  const followed = await withScript.newPage();
  await followed.goto(`${server.base}/runs/${id}`);
  await server.api(`/holds/${held?.id}/resolve`, { resolution: 'deny' });
  await followed.locator('.sub-run summary .badge', { hasText: 'Completed' }).waitFor();
  await withScript.close();
});

both('where the server asks because a run cannot go on, no page says that the agent does', async () => {
  const { hold, id } = await server.held('editor', 'Greet people');
  const config = join(folder, 'standfast.yaml');
  const whole = readFileSync(config, 'utf8');
  await server.kill();
  writeFileSync(config, whole.replace('editor: {llm: editor, session_store: main, tools: [edit_file, ', 'editor: {llm: editor, session_store: main, tools: ['));
  await server.start();
  await server.api(`/holds/${hold.split('/').at(-1)}/resolve`, { resolution: 'approve' });
  let asked;
  await until('the server asks', async () => {
    asked = (await server.api('/holds')).holds.find((one) => one.kind === 'input');
    return asked !== undefined;
  });
  await open(`/approve/${asked.id}`);
  await page.getByText('The server says why').waitFor();
  assert.equal(await page.getByText('The agent says why').count(), 0);
  assert.equal(await page.getByText('The agent gets no answer').count(), 0);
  await page.locator('summary', { hasText: 'End the run' }).waitFor();
  const { session } = await server.api(`/runs/${id}`);
  await open(`/sessions/${session}?agent=editor`);
  await page.locator('.widget summary', { hasText: 'End the run' }).waitFor();
  writeFileSync(config, whole);
});

both('who has approved what others must approve too is told so, on every page, and can still deny', async () => {
  const { hold, run } = await server.held('pair');
  await open(hold);
  await page.getByText('0 of 2').waitFor();
  await press('Approve: run it as shown');
  await page.getByText('1 of 2').waitFor();
  await page.getByText('You have approved it. Others must approve it too.').waitFor();
  await page.getByText('You have approved already. pay runs when others have approved as well.').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Approve: run it as shown' }).count(), 0);
  await inAllLooks('hold-agreed');
  const { session } = await server.api(run);
  await open(`/sessions/${session}?agent=pair`);
  await page.getByText('You have approved it. Others must approve it too.').waitFor();
  assert.equal(await page.getByRole('button', { name: '✓ Approve', exact: true }).count(), 0);
  await press('✕ Deny');
  await page.getByText('Denied by local').waitFor();
});

both('a table that a model writes is one', async () => {
  const { hold } = await server.held('tabler');
  await open(hold);
  assert.deepEqual(await page.locator('.before .said th').allTextContents(), ['file', 'size']);
  assert.deepEqual(await page.locator('.before .said td').allTextContents(), ['a.txt', '<b>']);
});

both('a widget shows a call as its own page does: diff, words of a command, request', async () => {
  const widget = async (agent) => {
    const { id } = await server.held(agent);
    const { session } = await server.api(`/runs/${id}`);
    await open(`/sessions/${session}?agent=${agent}`);
    return page.locator('.widget');
  };
  await (await widget('editor')).getByText('Its tool asks before every call.').waitFor();
  await page.locator('.widget').getByText('edit_file runs once, with exactly these arguments.').waitFor();
  await page.locator('.widget').getByText('Who may decide').waitFor();
  assert.deepEqual(await (await widget('editor')).locator('.diff > div').allTextContents(), ['@@ -1,3 +1,3 @@', ' one', '-Hello', '+Grüezi', ' three']);
  writeFileSync(join(folder, 'workspace', 'hello.txt'), 'one\nHello\nthree\nfour\n');
  await page.reload();
  await page.locator('.widget').getByText('The file changed after this was asked').waitFor();
  assert.deepEqual(await (await widget('remover')).locator('.argv li').allTextContents(), ['rm', '-rf', 'a b']);
  assert.equal(await (await widget('caller')).locator('.method').textContent(), 'POST');
});

both('a nested schema is a form: objects, lists that grow, choices, dates, defaults; a mistake is told at its field', async () => {
  const { hold, id } = await server.held('former');
  await open(hold);
  await page.getByText('As on the door.').waitFor();
  await answerNested(page.locator('main'), 'Send the answer');
  await heading('Answered');
  await answered(id);
});

/** Fills in the form of the agent `former`, wherever it stands, with a mistake first; Bob and Eve come. */
async function answerNested(place, send) {
  assert.equal(await place.getByLabel('Room').inputValue(), '1', 'the default is chosen');
  await place.getByText('at least 1').waitFor();
  assert.deepEqual(await place.getByLabel('Meal').locator('option').allTextContents(), ['—', 'Vegetarian', 'meat']);
  await place.getByText('such as 2026-11-20T09:30:00Z').waitFor();
  await place.getByLabel('Meal').selectOption('Vegetarian');
  await place.getByLabel('Day').fill('2026-11-20');
  await place.getByLabel('Name').fill('Ann');
  await place.getByLabel('Who').first().fill('Bob');
  await place.getByRole('button', { name: '+ Add an entry' }).click();
  await place.getByLabel('Who').nth(1).fill('Eve');
  assert.equal(await place.getByLabel('Who').first().inputValue(), 'Bob', 'what was entered stays');
  assert.equal(await place.getByLabel('Day').inputValue(), '2026-11-20');
  await place.getByLabel('Age').nth(1).fill('0');
  await place.getByRole('button', { name: send }).click();
  const wrong = place.locator('[aria-invalid=true]');
  await wrong.first().waitFor();
  assert.equal(await wrong.count(), 1);
  assert.equal(await wrong.inputValue(), '0', 'the mistake is told at the inner field');
  await wrong.fill('7');
  await place.getByRole('button', { name: send }).click();
  troubles = troubles.filter((text) => !/status of 422/.test(text));
}

/** What a run was answered. */
async function answered(id) {
  const { events } = await server.api(`/runs/${id}/events`);
  const answer = JSON.stringify(events).replaceAll('\\', '').replaceAll('": ', '":');
  for (const part of ['"room":"Basel"', '"meal":"v"', '"day":"2026-11-20"', '"name":"Ann"', '"who":"Bob"', '"who":"Eve"', '"age":7']) assert.ok(answer.includes(part), `${part} in ${answer}`);
}

both('a nested form is answered within a conversation, and Enter in it sends', async () => {
  const { id, run } = await server.held('former');
  const { session } = await server.api(run);
  await open(`/sessions/${session}?agent=former`);
  const widget = page.locator('.widget');
  await inAllLooks('widget-nested');
  await answerNested(widget, 'Send the answer');
  await page.getByText('Answered by local').waitFor();
  await answered(id);
  const second = await server.held('former');
  const { session: other } = await server.api(second.run);
  await open(`/sessions/${other}?agent=former`);
  await widget.getByLabel('Who').fill('Carla');
  await widget.getByLabel('Who').press('Enter');
  await page.getByText('Answered by local').waitFor();
});

both('a nested form is answered in an inbox, and in a review', async () => {
  const task = await server.post('/api/inboxes/desk/tasks', { type: 'task', title: 'Who comes?', payload: 'x' });
  await until('it asks', async () => (await server.get(`/api/inboxes/desk/tasks/${task.id}`)).status === 'waiting_for_input');
  await open('/inboxes/desk');
  await answerNested(page.locator('.widget'), 'Resume');
  await page.getByText('Completed').first().waitFor();
  const { id, hold } = await server.held('former');
  await open(`/review?hold=${hold.split('/').at(-1)}`);
  await answerNested(page.locator('.widget'), 'Send the answer');
  await page.getByText('Answered by local').waitFor();
  await answered(id);
});

test('a form that asked for one more entry is not lost when somebody looks elsewhere meanwhile', async () => {
  context = await browser.newContext();
  page = watch(await context.newPage());
  const { run, hold } = await server.held('former');
  const { session } = await server.api(run);
  for (const address of [hold, `/sessions/${session}?agent=former`]) {
    await open(address);
    await page.getByRole('textbox', { name: /Who/ }).fill('Bob');
    await press('+ Add an entry');
    await page.getByRole('textbox', { name: /Who/ }).nth(1).waitFor();
    await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
    const asked = [];
    page.on('request', (request) => { if (request.headers()['x-standfast-fragment']) asked.push(request.url()); });
    await page.evaluate(() => {
      document.dispatchEvent(new Event('visibilitychange'));
      return new Promise((resolve) => { setTimeout(resolve, 400); });
    });
    assert.deepEqual(asked, [], 'nothing is fetched over what was entered');
    assert.equal(await page.getByRole('textbox', { name: /Who/ }).first().inputValue(), 'Bob');
    page.removeAllListeners('request');
  }
});

both('a drawing is shown as a picture and runs nothing; opened by itself it is a file', async () => {
  const { hold } = await server.held('drawer');
  await open(hold);
  const image = page.locator('.media img').first();
  await image.waitFor();
  await until('it is drawn', () => image.evaluate((drawn) => drawn.complete && drawn.naturalWidth > 0));
  const addresses = await page.locator('.media a').evaluateAll((all) => all.map((one) => one.getAttribute('href')));
  assert.equal(addresses.length, 2);
  for (const address of addresses) {
    const served = await page.request.get(server.base + address);
    assert.equal(await served.text(), DRAWING);
    assert.equal(served.headers()['content-type'], 'image/svg+xml');
    assert.equal(served.headers()['content-disposition'], 'attachment');
    assert.match(served.headers()['content-security-policy'], /default-src 'none'; sandbox/);
    assert.equal(served.headers()['x-content-type-options'], 'nosniff');
  }
  const file = page.waitForEvent('download');
  await page.locator('.media a').first().click();
  await (await file).cancel();
  assert.equal(page.url(), server.base + hold, 'it is not opened in a page');
});

for (const colorScheme of ['light', 'dark']) {
  test(`axe finds nothing on a hold of any kind nor in its widget, in ${colorScheme}, and nothing is wider than a phone`, async () => {
    context = await browser.newContext({ colorScheme, viewport: { width: 360, height: 740 } });
    page = watch(await context.newPage());
    for (const agent of Object.keys(AGENTS).filter((name) => name !== 'leader')) {
      const { hold, run } = await server.held(agent);
      const { session } = await server.api(run);
      for (const address of [hold, `/sessions/${session}?agent=${agent}`]) {
        await open(address);
        await accessible(page, `${agent} ${address}`);
        const width = await page.evaluate('document.documentElement.scrollWidth');
        assert.ok(width <= 360, `${agent} ${address} is ${width} wide`);
      }
    }
  });
}

both('the history has who, when and how, and is exported as CSV and JSON', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  await press('Deny: do not run it');
  await heading('Denied');
  const { run } = await server.held('editor');
  await open(run);
  await page.locator('summary', { hasText: 'Cancel this run' }).click();
  await press('Cancel the run');
  await open('/history');
  assert.deepEqual(await page.locator('.history tbody .badge').allTextContents(), ['Withdrawn: the run ended first', 'Denied']);
  await inAllLooks('history');
  await open('/history?outcome=denied&tool=execute_command');
  assert.equal(await page.locator('.history tbody tr').count(), 1);
  const csv = await (await page.request.get(`${server.base}/history.csv?outcome=denied`)).text();
  assert.equal(csv.trim().split('\r\n').length, 2);
  const json = await (await page.request.get(`${server.base}/history.json`)).json();
  assert.deepEqual(json.holds.map((one) => one.outcome), ['withdrawn', 'denied']);
  // By time: from an instant that is yet to come nothing, until it everything.
  const later = new Date(Date.now() + 3_600_000).toISOString();
  for (const [query, count] of [[`since=${later}`, 0], [`until=${later}`, 2], [`since=2020-01-01T00:00:00Z&until=${later}&outcome=denied`, 1], ['until=2020-01-01T00:00:00Z', 0]]) {
    await open(`/history?${query}`);
    assert.equal(await page.locator('.history tbody tr').count(), count, query);
    assert.equal((await server.api(`/holds?state=decided&${query.replace('&outcome=denied', '')}`)).holds.length, query.includes('denied') ? 2 : count, query);
  }
  const { holds } = await server.api('/holds?state=denied');
  assert.equal(holds.length, 1);
  assert.equal(holds[0].state, 'decided');
});

both('runs have titles and states; a run has its timeline, its picture and its raw events', async () => {
  const { run, id } = await server.held('editor', 'Greet people <b>nicely</b>');
  await open('/runs?state=waiting');
  await page.getByText('Greet people <b>nicely</b>').waitFor();
  await inAllLooks('runs');
  await open('/runs?state=completed');
  await page.getByText('No run fits these filters').waitFor();
  await open(run);
  await page.getByText('⏸️ Paused').waitFor();
  assert.deepEqual(await page.locator('.timeline .json dt').allTextContents(), ['path', 'old', 'new'], 'short JSON is a tree');
  await inAllLooks('run');
  const svg = await page.request.get(`${server.base}${run}/timeline.svg`);
  assert.equal(svg.headers()['content-type'], 'image/svg+xml');
  assert.match(await svg.text(), /^<svg /);
  const raw = await page.request.get(server.base + await page.getByRole('link', { name: 'Raw events' }).getAttribute('href'));
  const events = await raw.json();
  assert.deepEqual(events.map((event) => event.seq), (await server.api(`/runs/${id}/events`)).events.map((event) => event.seq));
  assert.ok('run.started' in events[0].event);
});

both('charts have figures of what was decided, as pictures and as JSON', async () => {
  const { hold } = await server.held('lister');
  await open(hold);
  await press('Approve: run it as shown');
  await heading('Approved');
  await server.held('editor');
  await open('/charts?over=24h');
  await heading('Time to decision by tool');
  assert.ok(await page.locator('svg.chart').count() >= 3);
  await inAllLooks('charts');
  const figures = await (await page.request.get(`${server.base}/charts.json?over=24h`)).json();
  assert.equal(figures.open_now, 1);
  assert.equal(figures.decided, 1);
  assert.equal(figures.time_to_decision_by_tool[0].name, 'execute_command');
  assert.deepEqual(figures.outcomes_by_tool[0].outcomes, { approved: 1 });
});
