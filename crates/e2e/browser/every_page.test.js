// Every page in Debian's Chromium: what axe checks, phone and dark, and texts that would do something if they were markup.
//
// T17, T20: text of models, tools and people is text. S4-17, S4-18, S4-26: an inbox shows what waits and takes the answer.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { launch } from './server.js';
import { accessible, CORPUS, NASTY, until, watch } from './watch.js';
import { fill, world } from './world.js';

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
  return watch(await context.newPage(), () => here.server.base, troubles, /status of 4(22|09)/);
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
  // The forms that take text take all of it.
  for (const text of CORPUS) {
    await page.goto(here.server.base + pages.elsewhere);
    await page.getByLabel('Title').fill(text);
    await page.getByLabel('What to do').fill(text);
    await page.getByRole('button', { name: 'Add the task' }).click();
    await page.getByRole('link', { name: text }).first().waitFor();
  }
});

for (const javaScriptEnabled of [true, false]) {
  test(`an inbox shows what waits and takes the answer, ${javaScriptEnabled ? 'with' : 'without'} JavaScript (S4-17, S4-18, S4-26)`, async () => {
    here = await world();
    const pages = await fill(here);
    const page = await visitor({ javaScriptEnabled });
    await page.goto(here.server.base + pages.inboxes);
    await page.getByRole('link', { name: 'support' }).click();
    await page.getByText('Waiting for Input').first().waitFor();
    const widget = page.locator('.widget');
    await widget.getByText('Why it is held').waitFor();
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
    await page.getByText('Cancelled').first().waitFor();
  });
}

test('an unknown filter is an error', async () => {
  here = await world();
  const page = await visitor();
  const response = await page.goto(`${here.server.base}/inboxes/support?status=lost`).catch(() => null);
  assert.equal(response.status(), 400);
  troubles.splice(0);
});
