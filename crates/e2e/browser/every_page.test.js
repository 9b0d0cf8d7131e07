// Every page in Debian's Chromium: what axe checks, phone and dark, and texts that would do something if they were markup.
//
// T17, T20: text of models, tools and people is text. S4-17, S4-18, S4-26: an inbox shows pending tasks and takes the answer.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { after, afterEach, before, test } from 'node:test';
import { BINARY, launch, Server } from './server.js';
import { accessible, CORPUS, NASTY, until, watch } from './watch.js';
import { fill, REFUSED, world } from './world.js';

let browser;
let here;
let troubles = [];
let contexts = [];

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
afterEach(async () => {
  for (const context of contexts.splice(0)) await context.close();
  await here?.stop();
  here = undefined;
  assert.deepEqual(troubles.splice(0), []);
});

async function visitor(more = {}) {
  const context = await browser.newContext(more);
  contexts.push(context);
  return watch(await context.newPage(), () => here.server.base, troubles, /status of 4(00|04|22|09)/);
}

test('axe finds nothing on any page, in light and dark, and nothing is wider than a phone', async () => {
  here = await world();
  const pages = await fill(here);
  for (const colorScheme of ['light', 'dark']) {
    const page = await visitor({ colorScheme, viewport: { width: 360, height: 740 } });
    for (const [name, address] of Object.entries(pages)) {
      const response = await page.goto(here.server.base + address);
      assert.equal(response.status(), 200, address);
      await accessible(page, `${name} (${colorScheme})`);
      const width = await page.evaluate('document.documentElement.scrollWidth');
      assert.ok(width <= 360, `${name} is ${width} wide`);
      if (process.env.SCREENSHOTS) await page.screenshot({ path: `${process.env.SCREENSHOTS}/${name}-phone-${colorScheme}.png`, fullPage: true });
    }
    for (const [name, [address, status]] of Object.entries(REFUSED)) {
      const response = await page.goto(here.server.base + address);
      assert.equal(response.status(), status, address);
      await accessible(page, `${name} (${colorScheme})`);
    }
    await page.context().close();
  }
});

test('text that looks like markup is text on every page, also when it comes in live', async () => {
  here = await world(NASTY);
  const page = await visitor();
  const early = await visitor();
  await early.goto(`${here.server.base}/sessions`);
  const pages = await fill(here, NASTY);
  await until('the open page shows it', async () => await early.locator('main .item').count() >= 3);
  await early.context().close();
  for (const [name, address] of Object.entries(pages)) {
    await page.goto(here.server.base + address);
    await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
    await page.waitForTimeout(300);
    assert.equal(await page.locator('main img, main script, main svg:not(.chart, .legend svg), main iframe, main style, main a[href^="javascript"], [onerror], [onload], [onfocus]').count(), 0, name);
  }
  // Pictures are opened as pages of their own: the timeline, and one that the arguments of a call bring along.
  await page.goto(`${here.server.base}${pages.run}/timeline.svg`);
  await page.waitForTimeout(300);
  assert.equal(await page.locator('script, image, foreignObject, a').count(), 0, 'timeline');
  // Fields of filters show what was looked for.
  for (const text of CORPUS) {
    for (const [address, label] of [['/', 'Search what is asked'], ['/runs', 'Started by'], ['/history', 'By']]) {
      const name = label === 'Search what is asked' ? 'q' : label === 'By' ? 'by' : 'owner';
      const response = await page.goto(`${here.server.base}${address}?${name}=${encodeURIComponent(text)}`);
      assert.ok([200, 400].includes(response.status()), `${address} ${text}`);
      assert.equal(await page.locator('main img, main script, main iframe, main style, main a[href^="javascript"], [onerror], [onload], [onfocus]').count(), 0, `${address} ${text}`);
    }
  }
  // The forms that take text take all of it.
  for (const text of CORPUS) {
    await page.goto(here.server.base + pages.elsewhere);
    await page.getByLabel('Title').fill(text);
    await page.getByLabel('What to do').fill(text);
    await page.getByRole('button', { name: 'Add the task' }).click();
    await page.getByRole('link', { name: text }).first().waitFor();
  }
});

test('names of people that look like markup are text, in charts, in the history and wherever else they stand', async () => {
  const server = await new Server('--auth', 'keys').start();
  here = { server, stop: () => server.stop() };
  const keys = (user) => execFileSync(BINARY, ['keys', 'create', '--user', user, '--role', 'admin', '--data', server.data], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();
  const names = [...CORPUS, 'turned \u202eround'];
  const all = names.map((user) => ({ user, key: keys(user) }));
  let run;
  let hold;
  for (const { key } of all) {
    const ask = async (path, body) => {
      const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
      const response = await fetch(`${server.base}/api/v1${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      assert.ok(response.ok, `${path}: ${response.status}`);
      return response.json();
    };
    run = await ask('/agents/ops/runs', { input: NASTY, wait: 'settled' });
    hold = run.holds[0].id;
    await ask(`/holds/${hold}/resolve`, { resolution: 'approve' });
  }
  const page = await visitor();
  await page.goto(`${server.base}/sign-in`);
  await page.getByLabel('API key').fill(all[0].key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Pending' }).waitFor();
  for (const address of ['/charts?over=24h', '/history', '/runs', '/sessions', '/me', '/grants', `/runs/${run.id}`, `/approve/${hold}`, `/approve/${hold}/receipt`, '/']) {
    await page.goto(server.base + address);
    await page.locator('details').evaluateAll((details) => details.forEach((one) => { one.open = true; }));
    await page.waitForTimeout(200);
    assert.equal(await page.locator('main img, script:not([src]), main svg:not(.chart, .legend svg), main iframe, main style, a[href^="javascript"], [onerror], [onload], [onfocus]').count(), 0, address);
    assert.equal((await page.content()).includes('\u202e'), false, address);
  }
  await page.goto(`${server.base}/charts?over=24h`);
  const drawn = await page.locator('section', { hasText: 'Time to decision by person' }).locator('svg > text:not(.q)').allTextContents();
  assert.deepEqual(drawn.map((name) => name.slice(0, 7)).sort(), names.map((name) => name.slice(0, 7)).sort());
});

for (const javaScriptEnabled of [true, false]) {
  test(`an inbox shows pending tasks and takes the answer, ${javaScriptEnabled ? 'with' : 'without'} JavaScript (S4-17, S4-18, S4-26)`, async () => {
    here = await world();
    const pages = await fill(here);
    const page = await visitor({ javaScriptEnabled });
    await page.goto(here.server.base + pages.inboxes);
    await page.getByRole('link', { name: 'support' }).click();
    await page.getByText('Waiting for Input').first().waitFor();
    const widget = page.locator('.widget');
    await widget.getByText('The agent says why').waitFor();
    await widget.getByRole('button', { name: 'yes', exact: true }).click();
    await page.getByText('Completed').first().waitFor();
    await page.getByRole('button', { name: 'Add the task' }).waitFor();
    await page.getByLabel('Title').fill('Another one');
    await page.getByLabel('What to do').fill('{"cents": 1250}');
    await page.getByRole('button', { name: 'Add the task' }).click();
    await page.getByRole('link', { name: 'Another one' }).waitFor();
    await page.getByText('{"cents": 1250}').waitFor();
  });

  test(`an external job is shown with its reference and deadline, and cancelled, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
    here = await world();
    const pages = await fill(here);
    const page = await visitor({ javaScriptEnabled });
    await page.goto(here.server.base + pages.jobs);
    await page.getByText('ref Refund for Ann').waitFor();
    await page.locator('summary', { hasText: 'Cancel this job' }).click();
    await page.getByRole('button', { name: 'Cancel the job' }).click();
    await page.getByText('No job is outstanding').waitFor();
    await page.getByRole('link', { name: 'Ended' }).click();
    await page.getByText('Canceled').first().waitFor();
  });
}

test('an unknown filter is an error', async () => {
  here = await world();
  const page = await visitor();
  const response = await page.goto(`${here.server.base}/inboxes/support?status=lost`).catch(() => null);
  assert.equal(response.status(), 400);
  troubles.splice(0);
});
