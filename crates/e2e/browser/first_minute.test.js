// The first minute of a newcomer, in Debian's Chromium: ask, kill -9, start again, approve; the page leads through it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { launch, Server } from './server.js';
import { accessible, until, watch } from './watch.js';

let browser;

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });

for (const javaScriptEnabled of [true, false]) {
  test(`the first page leads through approve, kill -9, restart, still there, ${javaScriptEnabled ? 'with' : 'without'} JavaScript`, async () => {
    const troubles = [];
    const server = await new Server().start();
    const context = await browser.newContext({ javaScriptEnabled });
    const page = watch(await context.newPage(), () => server.base, troubles, /ERR_/);
    await page.goto(`${server.base}/`);
    await page.getByRole('link', { name: 'The first minute' }).click();
    await page.getByRole('button', { name: 'Ask it' }).click();
    await page.getByText(`kill -9 ${server.child.pid}`).waitFor();
    if (javaScriptEnabled) await accessible(page, 'first minute');
    await server.kill();
    await server.start();
    if (javaScriptEnabled) await page.getByText('This is another process').waitFor({ timeout: 20_000 });
    else await page.reload();
    await page.getByRole('link', { name: 'Open it' }).click();
    await page.getByRole('button', { name: /Approve/ }).first().click();
    await page.getByText('Approved').first().waitFor();
    await page.goto(`${server.base}/first-minute`);
    await page.getByText('Of this run it wrote 1 line').waitFor();
    assert.equal(server.effects().length, 1);
    // A change with its diff, approved where it is asked.
    await page.getByRole('button', { name: 'Ask for a change' }).click();
    await page.getByRole('heading', { name: 'Conversation with website' }).waitFor();
    assert.deepEqual((await page.locator('.widget .diff > div').allTextContents()).filter((line) => /^[+-]/.test(line)),
      ['-Saturday          closed', '+Saturday          10:00 to 14:00']);
    await page.getByRole('button', { name: '✓ Approve', exact: true }).click();
    await page.getByText('The opening hours are up to date.').waitFor();
    assert.match(readFileSync(join(server.data, 'demo', 'opening-hours.txt'), 'utf8'), /10:00 to 14:00/);
    await context.close();
    await server.stop();
    assert.deepEqual(troubles, []);
  });
}

test('from the start to an approved change whose diff was read, in under a minute and five steps', async () => {
  const began = Date.now();
  const troubles = [];
  const server = await new Server().start();
  const context = await browser.newContext({ viewport: { width: 1280, height: 720 } });
  const page = watch(await context.newPage(), () => server.base, troubles);
  let steps = 0;
  const step = async (does) => { steps += 1; await does; };
  await step(page.goto(`${server.base}/`));
  await step(page.getByLabel('Agent', { exact: true }).selectOption('website'));
  await page.getByLabel('What should it do?').fill('We open on Saturdays from now on');
  await step(page.getByRole('button', { name: 'Start', exact: true }).click());
  await step(page.getByRole('link', { name: /Approval for edit_file/ }).click());
  await page.getByRole('heading', { name: 'Approve edit_file?' }).waitFor();
  // Everything that is needed to understand it is there at once, beside the button.
  const seen = async (what, place) => {
    const { top, bottom } = await place.evaluate((element) => { const { top, bottom } = element.getBoundingClientRect(); return { top, bottom }; });
    assert.ok(top >= 0 && bottom <= 720, `${what} is at ${top} to ${bottom}`);
  };
  await seen('what was asked', page.getByText('We open on Saturdays from now on'));
  await seen('what goes', page.locator('.diff .minus').getByText('Saturday          closed'));
  await seen('what comes', page.locator('.diff .plus').getByText('Saturday          10:00 to 14:00'));
  const button = page.getByRole('button', { name: '✓ Approve: run it as shown' });
  await seen('the button', button);
  await step(button.click());
  await page.getByRole('heading', { name: 'Approved', exact: true }).waitFor();
  await until('the file is changed', () => /10:00 to 14:00/.test(readFileSync(join(server.data, 'demo', 'opening-hours.txt'), 'utf8')));
  const took = Date.now() - began;
  assert.ok(took < 60_000, `it took ${took} ms`);
  assert.equal(steps, 5);
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});

test('what was skipped or denied is not said to have been done', async () => {
  const troubles = [];
  const server = await new Server().start();
  const context = await browser.newContext();
  const page = watch(await context.newPage(), () => server.base, troubles);
  await page.goto(`${server.base}/first-minute`);
  await page.getByRole('button', { name: 'Ask it' }).click();
  await page.getByRole('link', { name: 'decide now' }).click();
  await page.getByLabel('Reason to deny').fill('Not today');
  await page.getByRole('button', { name: 'Deny: do not run it' }).click();
  await page.getByRole('heading', { name: 'Denied', exact: true }).waitFor();
  await page.goto(`${server.base}/first-minute`);
  await page.getByText('Of this run it wrote 0 lines, because the call was not approved').waitFor();
  await page.getByText('It did not run.').waitFor();
  await page.getByText('Skipped.').waitFor();
  assert.deepEqual(await page.locator('.steps > li').evaluateAll((all) => all.map((one) => one.className)), ['is-done', '', '', 'is-now']);
  // Neither does the agent go on as if it had been allowed, and its conversation has the reason.
  await page.getByRole('link', { name: 'The run and its timeline' }).click();
  await page.locator('.said').getByText('Then I leave it as it is.').first().waitFor();
  const run = await server.api('/runs?agent=ops').then(({ runs }) => runs[0]);
  await page.goto(`${server.base}/sessions/${run.session}?agent=ops`);
  await page.locator('.note').getByText('Not today').waitFor();
  assert.deepEqual(server.effects(), []);
  // With a restart and an approval both are said.
  await page.goto(`${server.base}/first-minute`);
  await page.getByRole('button', { name: 'Once more' }).click();
  await server.kill();
  await server.start();
  await page.reload();
  await page.getByRole('link', { name: 'Open it' }).click();
  await page.getByRole('button', { name: /Approve/ }).first().click();
  await page.getByRole('heading', { name: 'Approved', exact: true }).waitFor();
  await page.goto(`${server.base}/first-minute`);
  await page.getByText('It ran once.').waitFor();
  assert.equal(await page.getByText('Skipped.').count(), 0);
  await context.close();
  await server.stop();
  assert.deepEqual(troubles.filter((said) => !/ERR_/.test(said)), []);
});

test('on a phone a message leads to what the agent asks, and a result says which call it is of', async () => {
  const troubles = [];
  const server = await new Server().start();
  const context = await browser.newContext({ viewport: { width: 390, height: 844 } });
  const page = watch(await context.newPage(), () => server.base, troubles);
  await page.goto(`${server.base}/sessions`);
  await page.getByLabel('Agent', { exact: true }).selectOption('ops');
  await page.getByLabel('Message').fill('Free some space');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('button', { name: '✓ Approve', exact: true }).click();
  await page.locator('.note').getByText('delete_file finished').waitFor();
  await page.getByLabel('Continue the conversation').fill('And now?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.waitForURL(/#hold-hold_/);
  const top = await page.locator('.widget h2').evaluate((heading) => heading.getBoundingClientRect().top);
  assert.ok(top >= 0 && top < 844, `what is asked is at ${top}`);
  await context.close();
  await server.stop();
  assert.deepEqual(troubles, []);
});
