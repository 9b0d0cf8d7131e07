// Takes the pictures of README.md and the guide, and of every page in light, dark and phone width for whoever looks at them.
// `cargo xtask screenshots` calls it. The first go to docs/images, the others to target/screenshots.

import { mkdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { launch, Server } from './server.js';
import { fill, world } from './world.js';

const GUIDE = fileURLToPath(new URL('../../../docs/images/', import.meta.url));
const ALL = fileURLToPath(new URL('../../../target/screenshots/', import.meta.url));
mkdirSync(ALL, { recursive: true });

const browser = await launch();

async function take(base, address, path, settings = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 720 }, deviceScaleFactor: 1, ...settings });
  const page = await context.newPage();
  await page.goto(base + address);
  await page.waitForTimeout(400);
  await page.screenshot({ path, fullPage: settings.fullPage ?? false });
  await context.close();
}

// The guide: the demo, as a newcomer sees it.
const demo = await new Server().start();
const { hold, id } = await demo.held('ops', 'Free some space');
await demo.held('travel', 'Book the trip to Bern');
await demo.held('receipts', 'Put this receipt into the books');
const { session } = await demo.api(`/runs/${id}`);
const conversation = `/sessions/${session}?agent=ops`;
await take(demo.base, hold, `${GUIDE}approve.png`);
await take(demo.base, '/', `${GUIDE}pending.png`);
await take(demo.base, conversation, `${GUIDE}conversation.png`);
await take(demo.base, '/first-minute', `${ALL}first-minute.png`, { fullPage: true });
await demo.stop();

// Every page, for the eye.
const here = await world();
const pages = await fill(here);
const looks = {
  light: {},
  dark: { colorScheme: 'dark' },
  phone: { viewport: { width: 390, height: 844 } },
  'phone-dark': { viewport: { width: 390, height: 844 }, colorScheme: 'dark' },
};
for (const [name, address] of Object.entries(pages)) {
  for (const [look, settings] of Object.entries(looks)) {
    await take(here.server.base, address, `${ALL}${name}-${look}.png`, { ...settings, fullPage: true });
  }
}
await here.stop();
await browser.close();
