// Takes the pictures of README.md and the guide, and of every page in light, dark and phone width for whoever looks at them.
// `cargo xtask screenshots` calls it. The first go to docs/images, the others to target/screenshots; `ONLY=pattern` takes those whose
// name has that, and none of the guide.

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { every } from './gallery.js';
import { launch, Server } from './server.js';
import { end } from './stage.js';

const GUIDE = fileURLToPath(new URL('../../../docs/images/', import.meta.url));
const ALL = fileURLToPath(new URL('../../../target/screenshots/', import.meta.url));
mkdirSync(ALL, { recursive: true });

const LOOKS = {
  light: { viewport: { width: 1000, height: 720 } },
  dark: { viewport: { width: 1000, height: 720 }, colorScheme: 'dark' },
  phone: { viewport: { width: 390, height: 844 } },
};

const browser = await launch();

/** The page as it is after a moment: what its script shows is there by then. */
async function take(page, place, path, { isWhole = false } = {}) {
  if (typeof place === 'string') await page.goto(place); else await place(page);
  await page.waitForTimeout(300);
  const { width, height } = page.viewportSize();
  // What sticks to the lower end of the window would lie over what stands there.
  // What is as high as a part of the window grows with it, so that the page may be higher again.
  for (let before = 0, whole = height; isWhole && whole !== before;) {
    before = whole;
    whole = Math.max(whole, Math.min(await page.evaluate('document.documentElement.scrollHeight'), 6_000));
    await page.setViewportSize({ width, height: whole });
  }
  await page.screenshot({ path });
  await page.setViewportSize({ width, height });
  await page.emulateMedia({ media: null });
}

async function guide() {
  const demo = await new Server().start();
  const { hold, id } = await demo.held('ops', 'Free some space');
  await demo.held('travel', 'Book the trip to Bern');
  await demo.held('receipts', 'Put this receipt into the books');
  const { session } = await demo.api(`/runs/${id}`);
  const context = await browser.newContext(LOOKS.light);
  const page = await context.newPage();
  // A widget says what follows above its buttons: both are to be on the picture.
  for (const [name, address, height] of [['approve', hold, 720], ['pending', '/', 720], ['conversation', `/sessions/${session}?agent=ops`, 980]]) {
    await page.setViewportSize({ width: 1000, height });
    await take(page, demo.base + address, `${GUIDE}${name}.png`);
  }
  await context.close();
  await demo.stop();
}

const only = process.env.ONLY && new RegExp(process.env.ONLY);
if (!only) await guide();
for await (const { base, pages, state } of every(browser)) {
  for (const [look, settings] of Object.entries(LOOKS)) {
    const context = await browser.newContext({ ...settings, storageState: state });
    // What is remembered of one page stands on others, where it is not what the picture is about; a picture by itself has no origin.
    await context.addInitScript(() => { if (location.hash !== '#remembered' && origin !== 'null') localStorage.removeItem('standfast.task'); });
    const page = await context.newPage();
    for (const [name, place] of Object.entries(pages)) {
      if (only && !only.test(name)) continue;
      await take(page, typeof place === 'string' ? base + place : place, `${ALL}${name}-${look}.png`, { isWhole: true });
    }
    await context.close();
  }
}
await end();
await browser.close();
