// The pages in Debian's Chromium against the real program, which is killed in the middle.
//
// S4-17, S4-18, S4-26: pending holds are shown and decided in a browser. S0-33, S0-34: it survives kill -9.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch, Server } from './server.js';

const ARGUMENTS = '{"path": "/srv/cache/old"}';
const NASTY = '<img src="http://127.0.0.1:1/x" onerror="alert(1)"><script>alert(2)</script><a href="javascript:alert(3)">x</a>';

let browser;
let server;
let context;
let page;
let troubles;

/** An open page that has lost its server says so to its reader; Chromium says it to the console. */
const DOWN = /ERR_(CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)/;

/** Notes whatever a page must never do: errors of the policy, dialogs, requests to elsewhere. */
function watch(watched) {
  watched.on('console', (message) => { if (message.type() === 'error' && !DOWN.test(message.text())) troubles.push(message.text()); });
  watched.on('pageerror', (error) => troubles.push(String(error)));
  watched.on('dialog', (dialog) => { troubles.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  watched.on('request', (request) => { if (!request.url().startsWith(server.base)) troubles.push(request.url()); });
  return watched;
}

/** A refused form is answered with 4xx, which Chromium also writes to the console. */
function expectRefusals(count) {
  const refusals = troubles.filter((text) => /status of 4(09|22|03)/.test(text));
  assert.equal(refusals.length, count, troubles.join('\n'));
  troubles = troubles.filter((text) => !refusals.includes(text));
}

async function open(path) {
  const response = await page.goto(server.base + path);
  assert.equal(response.status(), 200, path);
}

const press = (name) => page.getByRole('button', { name }).click();
const unfold = (name) => page.locator('summary', { hasText: name }).click();
const heading = (name) => page.getByRole('heading', { name, exact: true }).waitFor();

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  server = await new Server().start();
  context = await browser.newContext();
  page = watch(await context.newPage());
  page.setDefaultTimeout(15_000);
});
afterEach(async () => {
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

/** A test with script on and off. */
function both(name, body) {
  test(`${name}, with JavaScript`, body);
  test(`${name}, without JavaScript`, async () => {
    await context.close();
    context = await browser.newContext({ javaScriptEnabled: false });
    page = watch(await context.newPage());
    page.setDefaultTimeout(15_000);
    await body();
  });
}

both('approve after kill -9: the call runs once, with the bytes that were shown', async () => {
  await server.held('ops');
  await open('/');
  await page.getByRole('link', { name: /Approve delete_file\?/ }).click();
  assert.equal(await page.locator('[data-arguments]').textContent(), ARGUMENTS);
  await server.kill();
  assert.deepEqual(server.effects(), []);
  await server.start();
  await press('Approve: run it as shown');
  await heading('Approved');
  await page.getByText('It ran.').waitFor();
  assert.equal(await page.locator('form button').count(), 0);
  assert.equal(server.effects().length, 1);
  assert.ok(server.effects()[0].endsWith(ARGUMENTS));
  await page.reload();
  await heading('Approved');
  assert.equal(server.effects().length, 1);
});

both('deny after kill -9: nothing runs and the reason is told', async () => {
  const { hold, run } = await server.held('ops');
  await open(hold);
  await page.getByLabel('Reason').fill('still needed');
  await server.kill();
  await server.start();
  await press('Deny: do not run it');
  await heading('Denied');
  await open(run);
  await page.getByText('still needed').first().waitFor();
  await page.getByText('Completed').first().waitFor();
  assert.deepEqual(server.effects(), []);
});

both('other arguments are checked, kept after a mistake, and run as they were written', async () => {
  const { hold } = await server.held('ops');
  await open(hold);
  await unfold('Edit the arguments');
  const editor = page.getByLabel('Arguments (JSON)');
  assert.equal(await editor.inputValue(), ARGUMENTS);
  await editor.fill('{"path": 7}');
  await press('Approve with these arguments');
  await page.getByRole('alert').getByText('At /path: 7 is not of type').waitFor();
  assert.equal(await editor.inputValue(), '{"path": 7}');
  assert.deepEqual(server.effects(), []);
  await editor.fill('{"path":\n  "/srv/cache/older"}');
  await press('Approve with these arguments');
  await heading('Approved with edited arguments');
  assert.ok(server.effects().join('\n').endsWith('{"path":\n  "/srv/cache/older"}'));
  expectRefusals(1);
});

both('options are buttons, and then a text box', async () => {
  const { hold, run } = await server.held('travel');
  await open(hold);
  await press('09:40, one change, 54 EUR');
  await heading('Answered');
  await open(run);
  await page.getByRole('link', { name: /Question for/ }).click();
  await page.getByLabel('Your answer').fill('Late arrival,\nafter 22:00');
  await press('Send the answer');
  await heading('Answered');
  await page.getByText('Late arrival,').waitFor();
  await open(run);
  await page.getByText('The train is booked').first().waitFor();
});

both('a flat schema is a form; a mistake is shown at its field', async () => {
  const { hold } = await server.held('receipts');
  await open(hold);
  assert.equal(await page.getByLabel('Currency').inputValue(), '0');
  await page.getByLabel('Amount').fill('-3');
  await page.getByLabel('Currency').selectOption('CHF');
  await page.getByLabel('Yes').check();
  await page.getByLabel('Note').fill('<lunch>');
  await press('Send the answer');
  await page.locator('#field-0-hint').getByText('the minimum of 0').waitFor();
  assert.equal(await page.getByLabel('Note').inputValue(), '<lunch>');
  assert.equal(await page.getByLabel('Currency').inputValue(), '1');
  await page.getByLabel('Amount').fill('12.50');
  await press('Send the answer');
  await heading('Answered');
  const answer = '{"amount": 12.50, "currency": "CHF", "guests": 1, "business": true, "note": "<lunch>"}';
  await page.getByText(answer).waitFor();
  expectRefusals(1);
});

// S4-6, S4-17, S4-18, S4-26: the card of a task that waits: reason, question, a form from the schema, a button for each option.
both('a task of an inbox is answered: reason, question, form, options', async () => {
  const post = async (path, body) => {
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${server.base}/api/inboxes/desk${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    assert.ok(answer.ok, await answer.clone().text());
    return answer.json();
  };
  const asked = async (said) => {
    await post('/tasks', { type: 'refund', payload: { cents: 90000 }, title: 'Refund for Ann' });
    const { task } = await post('/claim', { agentId: 'biller' });
    await post(`/tasks/${task.id}/suspend`, { claimId: task.claimId, ...said });
    await page.goto(server.base);
    await page.getByRole('link', { name: said.payload.question }).first().click();
    await page.getByText('Waiting for Input').waitFor();
    await page.getByText(said.reason).first().waitFor();
    return task.id;
  };
  const state = async (id) => (await fetch(`${server.base}/api/inboxes/desk/tasks/${id}`)).json();
  const resumeSchema = { type: 'object', required: ['cents'], properties: { cents: { type: 'integer', title: 'Cents' } } };
  const form = await asked({ reason: 'a lot of money', payload: { question: 'How much of it?' }, resumeSchema });
  await page.getByLabel('Cents').fill('500');
  await press('Resume');
  await heading('Answered');
  assert.deepEqual((await state(form)).resumePayload, { cents: 500 });
  const choice = await asked({ reason: 'two accounts', payload: { question: 'Which account?', options: ['Account A', 'Account B'] } });
  await press('Account B');
  await heading('Answered');
  assert.equal((await state(choice)).resumePayload, 'Account B');
  assert.equal((await state(choice)).status, 'in_progress');
});

both('everything can be tried in the browser: start, look, cancel', async () => {
  await open('/');
  await page.getByLabel('Agent', { exact: true }).selectOption('ops');
  await page.getByLabel('What should it do?').fill('Free some space');
  await press('Start');
  await heading('Run of ops');
  await page.getByText('Free some space').first().waitFor();
  await unfold('Cancel this run');
  await page.getByLabel('Reason').fill('changed my mind');
  await press('Cancel the run');
  await page.getByText('Canceled').first().waitFor();
  await page.getByRole('link', { name: 'the request' }).click();
  await heading('Withdrawn: the run ended first');
  await open('/runs');
  await page.getByRole('link', { name: /Canceled/ }).click();
  await heading('Run of ops');
  assert.deepEqual(server.effects(), []);
});

test('the keyboard alone is enough to approve', async () => {
  const { hold } = await server.held('ops');
  await open(hold);
  for (let presses = 0; presses < 20; presses += 1) {
    await page.keyboard.press('Tab');
    const focused = await page.evaluate(() => document.activeElement.textContent);
    if (focused.includes('Approve: run it as shown')) break;
  }
  await page.keyboard.press('Enter');
  await heading('Approved');
});

test('two windows and an impatient finger: one decision, one effect', async () => {
  const { hold } = await server.held('ops');
  await open(hold);
  // A window without script: it does not learn of the decision.
  const still = await browser.newContext({ javaScriptEnabled: false });
  const second = watch(await still.newPage());
  await second.goto(server.base + hold);
  await page.getByRole('button', { name: 'Approve: run it as shown' }).dblclick();
  await heading('Approved');
  await second.getByRole('button', { name: 'Deny: do not run it' }).click();
  await second.getByRole('alert').getByText('Already decided').waitFor();
  await still.close();
  assert.equal(server.effects().length, 1);
  expectRefusals(1);
});

test('text of models and people runs nothing, loads nothing and hides nothing (T17, T20)', async () => {
  const { hold, run } = await server.held('ops', `${NASTY}\u202egnp.exe`);
  await open(hold);
  await unfold('Edit the arguments');
  await page.getByLabel('Arguments (JSON)').fill(JSON.stringify({ path: `${NASTY}\u202e` }));
  await press('Approve with these arguments');
  await heading('Approved with edited arguments');
  await page.getByText('onerror').first().waitFor();
  await open(run);
  await page.getByText(`${NASTY}⟨U+202E⟩gnp.exe`).waitFor();
  assert.equal(await page.locator('main img, main script, main a[href^="javascript"]').count(), 0);
  assert.equal((await page.content()).includes('\u202e'), false);
});

test('a page of another origin can neither post here nor frame it (T21)', async () => {
  const { hold } = await server.held('ops');
  await open(hold);
  const token = await page.locator('input[name=csrf]').first().inputValue();
  const digest = await page.locator('input[name=digest]').first().inputValue();
  const fields = Object.entries({ csrf: token, digest, revision: '0' });
  const inputs = fields.map(([name, value]) => `<input type="hidden" name="${name}" value="${value}">`).join('');
  const evil = createServer((_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(`<form method="post" action="${server.base}${hold}">${inputs}
      <button name="decision" value="approve">Win</button></form><iframe src="${server.base}${hold}"></iframe>`);
  });
  await new Promise((resolve) => evil.listen(0, '127.0.0.1', resolve));
  const visitor = await context.newPage();
  await visitor.goto(`http://localhost:${evil.address().port}/`);
  const framed = await visitor.frames().at(-1).content();
  assert.equal(framed.includes('Approve'), false);
  const [answer] = await Promise.all([
    visitor.waitForResponse((response) => response.request().method() === 'POST'),
    visitor.getByRole('button', { name: 'Win' }).click(),
  ]);
  assert.equal(answer.status(), 403);
  await visitor.getByRole('heading', { name: 'Cross-origin request' }).waitFor();
  evil.closeAllConnections();
  evil.close();
  assert.deepEqual(server.effects(), []);
});

test('on a phone nothing is wider than the screen and buttons are large', async () => {
  const path = '/srv/'.concat('x'.repeat(600));
  const { hold, run } = await server.held('ops', 'w'.repeat(400));
  await server.held('travel');
  const receipts = await server.held('receipts');
  await page.setViewportSize({ width: 360, height: 740 });
  const fits = async (address) => {
    await open(address);
    await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `${address} is ${width} wide`);
    for (const button of await page.getByRole('button').all()) {
      const { height, width: wide } = await button.boundingBox();
      assert.ok(height >= 44 && wide >= 44, `${await button.textContent()} is ${wide} by ${height}`);
    }
  };
  for (const address of ['/', '/runs', hold, run, receipts.hold]) await fits(address);
  await open(hold);
  await unfold('Edit the arguments');
  await page.getByLabel('Arguments (JSON)').fill(JSON.stringify({ path }));
  await press('Approve with these arguments');
  await heading('Approved with edited arguments');
  await fits(hold);
  await fits(run);
});

test('every page has landmarks, one first heading, labels for what can be filled in, and no id twice', async () => {
  const [ops, travel, receipts] = [await server.held('ops'), await server.held('travel'), await server.held('receipts')];
  for (const address of ['/', '/runs', ops.hold, ops.run, travel.hold, receipts.hold]) {
    await open(address);
    await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
    const found = await page.evaluate(() => {
      const controls = [...document.querySelectorAll('input:not([type=hidden]), select, textarea')];
      const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
      return {
        language: document.documentElement.lang,
        landmarks: ['header', 'nav', 'main'].filter((name) => !document.querySelector(name)),
        headings: document.querySelectorAll('h1').length,
        unlabelled: controls.filter((one) => one.labels.length === 0).map((one) => one.name),
        nameless: [...document.querySelectorAll('a, button')].filter((one) => !one.textContent.trim()).length,
        twice: ids.filter((id, at) => ids.indexOf(id) !== at),
        described: [...document.querySelectorAll('[aria-labelledby], [aria-describedby]')]
          .map((one) => one.getAttribute('aria-labelledby') ?? one.getAttribute('aria-describedby'))
          .filter((id) => !document.getElementById(id)),
      };
    });
    const expected = { language: 'en', landmarks: [], headings: 1, unlabelled: [], nameless: 0, twice: [], described: [] };
    assert.deepEqual(found, expected, address);
    assert.match(await page.title(), / · Standfast$/);
  }
});
