// The first minute of a newcomer, in Debian's Chromium: ask, kill -9, start again, approve; the page leads through it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { launch, Server } from './server.js';
import { accessible, watch } from './watch.js';

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
    await context.close();
    await server.stop();
    assert.deepEqual(troubles, []);
  });
}
