// Texts that would do something if they were markup, in every field of every form of every page, in Debian's Chromium.
//
// T17, T20: what a person types is text wherever it comes back: in the page that refuses it, in the field that keeps it, in what
// it became. Each text is put into all fields of a form at once; all of them together into each field by itself, also into those
// that no person sees. Answers are read as a browser reads them, and whatever would be an element of its own is found there; then
// each form is sent in a page in which scripts run.

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { launch } from './server.js';
import { CORPUS, NASTY, until, watch } from './watch.js';
import { world } from './world.js';

/** @typedef {{ name: string, value: string, kind: string }} Entry */
/** @typedef {{ action: string, method: string, fields: Entry[], says: [string, string] | null }} Sent */

const BAD = 'main img, main script, script:not([src]), main svg:not(.chart, .legend svg), main iframe, main style, a[href^="javascript"], '
  + '[onerror], [onload], [onfocus], [autofocus], [srcdoc]';

let browser;
let here;
let context;
let page;
let troubles;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
beforeEach(async () => {
  troubles = [];
  here = await world();
  context = await browser.newContext();
  page = watch(await context.newPage(), () => here.server.base, troubles, /status of 4\d\d/);
});
afterEach(async () => {
  await context.close();
  await here.stop();
  assert.deepEqual(troubles, []);
});

/** What each page with a form is made of: its address, made anew, since a form that counts is gone afterwards. */
function pages(server) {
  const started = (agent) => server.api(`/agents/${agent}/runs`, { input: 'Please', wait: 'settled' });
  const held = async (agent) => (await started(agent)).holds[0].id;
  const conversation = async (agent) => `/sessions/${(await server.api(`/runs/${(await started(agent)).id}`)).session}?agent=${agent}`;
  const task = async () => {
    const added = await server.post('/api/inboxes/support/tasks', { type: 'refund', title: 'Refund', payload: 'x' });
    await until('the task waits', async () => (await server.get(`/api/inboxes/support/tasks/${added.id}`)).status === 'waiting_for_input');
    return added.id;
  };
  return {
    pending: async () => '/',
    runs: async () => '/runs',
    history: async () => '/history',
    sessions: async () => '/sessions',
    approval: async () => `/approve/${await held('writer')}`,
    question: async () => `/approve/${await held('asker')}`,
    form: async () => `/approve/${await held('former')}`,
    options: async () => `/approve/${(await server.api(`/runs/${await task()}`)).holds[0].id}`,
    job: async () => `/approve/${await held('builder')}`,
    jobs: async () => { await held('builder'); return '/jobs'; },
    run: async () => `/runs/${(await started('writer')).id}`,
    approved: () => conversation('writer'),
    talk: () => conversation('asker'),
    fields: () => conversation('former'),
    over: () => conversation('talker'),
    inbox: async () => { await task(); return '/inboxes/support?status=waiting_for_input'; },
    several: async () => `/review?hold=${await held('writer')}&hold=${await held('asker')}&hold=${await held('former')}`,
    offer: async () => {
      // A rule that was saved would approve the next one.
      for (const { id } of (await server.api('/grants')).grants) await server.post(`/api/v1/grants/${id}/revoke`, {}).catch(() => {});
      return `/approve/${await held('writer')}/grant?uses=2&hours=24`;
    },
  };
}

/** The forms of a page, with what they would send as they are. */
const read = (html) => page.evaluate((text) => {
  const forms = [...new DOMParser().parseFromString(text, 'text/html').querySelectorAll('form')];
  return forms.map((form) => {
    const fields = [...form.querySelectorAll('input[name], textarea[name], select[name]')];
    const button = form.querySelector('button[name]');
    return {
      action: form.getAttribute('action'), method: form.getAttribute('method') ?? 'get',
      says: button && [button.getAttribute('name'), button.getAttribute('value')],
      fields: fields.filter((field) => !/^(checkbox|radio)$/.test(field.type) || field.checked)
        .map((field) => ({ name: field.name, value: field.value, kind: field.type })),
    };
  });
}, html);

/** Whatever a text became that is more than a text. */
const odd = (html) => page.evaluate(([text, bad]) => {
  const found = [...new DOMParser().parseFromString(text, 'text/html').querySelectorAll(bad)];
  return found.map((one) => one.outerHTML.slice(0, 200));
}, [html, BAD]);

test('every text is text in every field of every form', async () => {
  const { server } = here;
  await page.goto(`${server.base}/me`);
  const get = async (address) => (await context.request.get(server.base + address)).text();
  /** @param {Sent} form @param {(entry: Entry) => string} value */
  const send = async (form, value) => {
    const entries = [...form.fields.map((entry) => [entry.name, value(entry)]), ...(form.says ? [form.says] : [])];
    const body = new URLSearchParams(entries).toString();
    const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: server.base };
    const answer = form.method === 'get' ? await context.request.get(`${server.base}${form.action}?${body}`)
      : await context.request.post(server.base + form.action, { data: body, headers });
    const found = await odd(await answer.text());
    assert.deepEqual(found, [], `${form.action} ${JSON.stringify(entries)}`);
    assert.ok(answer.status() < 500, `${form.action}: ${answer.status()} ${JSON.stringify(entries)}`);
    return answer.status();
  };
  const isSeen = (entry) => /^(text|search|textarea|number)$/.test(entry.kind);
  const all = pages(server);
  const statuses = new Map();
  let sent = 0;
  const tell = (status) => { sent += 1; statuses.set(status, (statuses.get(status) ?? 0) + 1); };
  for (const [name, make] of Object.entries(all)) {
    let address = await make();
    const count = (await read(await get(address))).length;
    assert.ok(count > 0, `${name} has no form`);
    for (let at = 0; at < count; at += 1) {
      /** The form once more, of a page that still has all of its forms. */
      const again = async () => {
        let forms = await read(await get(address));
        if (forms.length !== count) {
          address = await make();
          forms = await read(await get(address));
        }
        return forms[at] ?? assert.fail(`${name} has ${forms.length} forms, not ${count}`);
      };
      const { fields } = await again();
      if (fields.some(isSeen)) {
        for (const text of CORPUS) tell(await send(await again(), (entry) => isSeen(entry) ? text : entry.value));
      }
      for (const only of fields.filter((entry) => entry.name !== 'csrf')) {
        tell(await send(await again(), (entry) => entry.name === only.name ? NASTY : entry.value));
      }
    }
  }
  assert.ok(sent > 300 && (statuses.get(200) ?? 0) > 50 && (statuses.get(422) ?? 0) > 20, `${sent}: ${[...statuses]}`);
  // What they became stands on these pages.
  for (const address of ['/', '/runs', '/history', '/sessions', '/inboxes', '/inboxes/support', '/jobs', '/grants', '/charts']) {
    assert.deepEqual(await odd(await get(address)), [], address);
  }
});

test('every form is sent with every text in a page in which scripts run, and nothing of it runs', async () => {
  const { server } = here;
  for (const [name, make] of Object.entries(pages(server))) {
    await page.goto(server.base + await make());
    const count = await page.locator('form').count();
    for (let at = 0; at < count; at += 1) {
      await page.goto(server.base + await make());
      await page.locator('html[data-script=ready]').waitFor({ state: 'attached' });
      await page.locator('details').evaluateAll((details) => details.forEach((one) => { one.open = true; }));
      const form = page.locator('form').nth(at);
      const fields = form.locator('input[type=text], input[type=search], textarea');
      if (await fields.count() === 0) continue;
      for (const field of await fields.all()) await field.fill(NASTY);
      for (const field of await form.locator('input[type=number][required]').all()) await field.fill('2');
      await Promise.all([page.waitForEvent('domcontentloaded'), form.locator('button').last().click({ force: true })]);
      await page.waitForTimeout(50);
      assert.equal(await page.locator(BAD).count(), 0, `${name}, form ${at}`);
    }
  }
});
