// What the tests of pages share: a page that notes whatever it must never do, a form filled in, axe.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Texts that would do something if any of it were taken for markup; each is put into every field there is. */
export const CORPUS = [
  '<img src="http://127.0.0.1:1/x" onerror="alert(1)">',
  '<script>alert(2)</script>',
  '"><svg onload=alert(3)>',
  "' autofocus onfocus=alert(4) x='",
  '<a href="javascript:alert(5)">x</a>',
  '</textarea><script>alert(6)</script>',
  '{{ 7 * 7 }}{% raw %}',
  '<iframe srcdoc="<script>alert(8)</script>"></iframe>',
  '<style>@import url(http://127.0.0.1:1/y)</style>',
  '[x](javascript:alert(9)) ![y](http://127.0.0.1:1/z)',
];
export const NASTY = CORPUS.join(' ');

/**
 * Notes what a page must never do: errors, dialogs, requests to elsewhere. A refused form, and a server that is down, are errors to
 * Chromium as well; `allowed` says which are meant.
 */
export function watch(page, base, troubles, allowed = /^$/) {
  page.setDefaultTimeout(15_000);
  page.on('console', (message) => { if (message.type() === 'error' && !allowed.test(message.text())) troubles.push(message.text()); });
  page.on('pageerror', (error) => troubles.push(String(error)));
  page.on('dialog', (dialog) => { troubles.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(base())) troubles.push(request.url()); });
  return page;
}

/** Nothing on the page violates what axe checks; everything that can be unfolded is. */
export async function accessible(page, name) {
  await page.locator('details').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
  await page.evaluate(AXE);
  const { violations } = await page.evaluate('axe.run(document, { resultTypes: ["violations"] })');
  const said = violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(' ')}`);
  assert.deepEqual(said, [], name);
}

/** Waits until something is so. */
export async function until(what, check) {
  for (let tries = 0; tries < 300; tries += 1) {
    if (await check()) return;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  throw new Error(`still not so: ${what}`);
}
