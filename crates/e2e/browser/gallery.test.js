// The gallery in Debian's Chromium, with what is rare and must be right when it comes. axe finds nothing on any of its pages, on a
// light phone and a dark screen, nothing is wider than those, and what they say is so.

import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { SERVERS } from './gallery.js';
import { launch } from './server.js';
import { end } from './stage.js';
import { accessible, watch } from './watch.js';

/** By the name of a page: texts that it has, and, after `not`, texts that it must not have. */
const SAYS = {
  'hold-drift': { has: ['The file changed after this was asked', 'Hello, world'] },
  'hold-findings': { has: ['Payouts of more than 200 francs need a look at the account.', 'read_file was asked, and said', 'balance 1200.50 CHF', 'Cannot be undone'] },
  'hold-asked-again': { has: ['balance 12.50 CHF', 'account. Warning: What was found before it was approved is different now.'], not: ['..'] },
  'hold-late': { has: ['deadline was', 'The deadline has passed; a late decision still counts.'] },
  'hold-escalated': { has: ['The owner of the run (user:local); and, asked as well, group:leads, user:carol'] },
  'hold-assigned': { has: ['The owner of the run (user:local); and user:ben in the place of user:local', 'Who is asked: ann'] },
  'run-failed': { has: ['the model could not be asked (1 try): invalid_api_key'], not: ['Retries'] },
  'run-retrying': { has: ['Retrying the model', 'Retries'] },
  'run-escalated': { has: ['Escalated to group:leads, user:carol', 'Reminder'], not: ['Reminder sent'] },
  'hold-trip-mistaken': { has: ['At /budget: 5 is less than the minimum of 10. Nothing was decided.'] },
  'hold-misedited': { has: ['This is not JSON', 'Nothing was decided.'] },
  'hold-outrun': { has: ['Already decided', 'Your decision was not taken', 'I was faster', 'It did not run.'] },
  'refused-forged': { has: ['Nothing was changed.'] },
  'worker-inbox': { has: ['Waiting for Input', 'the bank does not know this account', 'Please look at order H-8'], not: ['"Please look', 'retryable'] },
  'worker-call': { has: ['Refund for Carol', 'The parcel came back.', 'biller-1 said just before'], not: ['no longer configured', 'Ask again', '{"cents"'] },
  'worker-question': { has: ['Refund for Dan', 'Raw data, as it was sent'], not: ['as the agent sent it'] },
  'worker-failed': { has: ['the bank does not know this account'], not: ['What it had said last'] },
  'gate-hold': { has: ['An agent of local asks', 'the customer sent it back'], not: ['```', 'local asked'] },
  'gate-overdue': { has: ['The worker was allowed to run this call and never reported'] },
  'teal-question': { has: ['The agent asks a question', 'Which train should I book?'], not: ['Approve this call?', 'Can be undone', 'as they will run'] },
  'teal-approve': { has: ['Approve this call?', 'Cannot be undone'] },
  'link-expired': { has: ['This link has expired', 'Sign in and open it'], not: ['/approve/'] },
  'me-sessions': { has: ['Safari on iPhone', 'Firefox on Windows', 'this one'], not: ['AppleWebKit'] },
  'hold-step-up': { has: ['Approving this needs a sign-in at your identity provider within the last 10 min. An API key does not count as one.', 'The rule `drop` asks for approval.'], not: ['run it as shown'] },
  'hold-quorum': { has: ['1 of 2 approvals: bob.', 'pay runs once, with exactly these arguments.'] },
  'hold-quorum-agreed': { has: ['You have approved it. Others must approve it too.'], not: ['run it as shown'] },
  'decided-lost': { has: ['It was started, and how it ended is not known yet. Say what happened'] },
  'decided-answered': { not: ['What ran'] },
  'hold-login': { has: ['Continue with this', 'runs of local use this login from then on'], not: ['in a browser and log in there', 'Logged in'] },
  'first-minute-4': { has: ['It ran once.', 'Skipped.'] },
  'conversation-deleter': { has: ['Task paused'] },
  'live-lost': { has: ['Live updates are interrupted'] },
};

let browser;
let troubles = [];
const seen = new Set();

before(async () => { browser = await launch(); });
after(async () => { await browser.close(); });
afterEach(() => assert.deepEqual(troubles.splice(0), []));

const REFUSED = /status of 4(00|01|03|04|09|10|22)|ERR_(FAILED|CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)/;

for (const begin of SERVERS) {
  test(`axe finds nothing on the pages of ${begin.name}, they fit, and what they say is so`, async () => {
    try {
      for (const { base, pages, state } of [await begin(browser)].flat()) {
        for (const [colorScheme, wide] of [['light', 360], ['dark', 1000]]) {
          const context = await browser.newContext({ colorScheme, storageState: state, viewport: { width: wide, height: 740 } });
          await context.addInitScript(() => { if (location.hash !== '#remembered' && origin !== 'null') localStorage.removeItem('standfast.task'); });
          const page = watch(await context.newPage(), () => base, troubles, REFUSED);
          for (const [name, place] of Object.entries(pages)) {
            await page.emulateMedia({ media: null, colorScheme });
            if (typeof place === 'string') await page.goto(base + place); else await place(page);
            if (name.startsWith('picture-')) continue;
            seen.add(name);
            await accessible(page, `${name} (${colorScheme})`);
            const width = await page.evaluate('document.documentElement.scrollWidth');
            assert.ok(width <= wide, `${name} is ${width} wide`);
            const text = (await page.locator('body').innerText()).replaceAll(/\s+/g, ' ');
            for (const part of SAYS[name]?.has ?? []) assert.ok(text.includes(part), `${name} says ${part}: ${text}`);
            for (const part of SAYS[name]?.not ?? []) assert.ok(!text.includes(part), `${name} does not say ${part}: ${text}`);
          }
          await context.close();
        }
      }
    } finally {
      await end();
    }
  });
}

test('there is a page for each text', () => {
  assert.deepEqual(Object.keys(SAYS).filter((name) => !seen.has(name)), []);
});
