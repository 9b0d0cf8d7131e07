// @ts-check
// The one module of the pages. It shows what has changed since the page was loaded, and adds keys. It decides nothing: every
// decision is the form that is there without it, and every page works when it is switched off.
//
// One EventSource says that something changed; the page is then asked for again, by the same address and template, without
// its frame, and morphed into the one that is open. What a person typed, selected or unfolded stays. A call that changed
// under somebody's eyes is not exchanged: a note says so, and they load it themselves.

/** @typedef {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} Field */

const FRAGMENT = { 'x-standfast-fragment': '1', accept: 'text/html' };
const POLL_MS = 5_000;
const HIDDEN_POLL_MS = 30_000;
/** Streams say at least every 20 seconds that they are alive. */
const SILENT_MS = 50_000;
const FETCH_MS = 30_000;
const GATHER_MS = 120;
const KEYS = 'standfast.keys';
const TASK = 'standfast.task';
const WORDS = 'standfast.words';
const TYPED = 'standfast.typed';

const base = document.body.dataset.base ?? '';

/** @returns {HTMLElement} */
const main = () => /** @type {HTMLElement} */ (document.getElementById('main'));

/** @param {string} name */
function stored(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

/** @param {string} name @param {string | null} value */
function store(name, value) {
  try {
    if (value === null) localStorage.removeItem(name); else localStorage.setItem(name, value);
  } catch { /* A browser that keeps nothing still shows everything. */ }
}

// ---- What the page says about itself.

/** @type {ReturnType<typeof setTimeout> | undefined} */
let saying;

/** @param {string} text @param {{ href?: string, link?: string, forMs?: number }} [more] */
function say(text, more = {}) {
  const line = document.getElementById('live');
  if (!line) return;
  clearTimeout(saying);
  line.textContent = text;
  if (more.href) {
    const link = document.createElement('a');
    link.href = more.href;
    link.textContent = more.link ?? 'Reload';
    line.append(' ', link);
  }
  line.hidden = text === '';
  if (more.forMs) saying = setTimeout(() => { line.hidden = true; line.textContent = ''; }, more.forMs);
}

// ---- Showing what changed.

/** @param {Field} field */
function isTouched(field) {
  if (field instanceof HTMLSelectElement) {
    const options = [...field.options];
    const usual = Math.max(options.findIndex((option) => option.defaultSelected), 0);
    return field.selectedIndex !== usual;
  }
  if (field instanceof HTMLInputElement && field.type === 'hidden') return false;
  if (field instanceof HTMLInputElement && (field.type === 'checkbox' || field.type === 'radio')) {
    return field.checked !== field.defaultChecked;
  }
  return field.value !== field.defaultValue;
}

/** @param {Node} node @returns {node is Field} */
const isField = (node) => node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement || node instanceof HTMLSelectElement;

const MORPH = {
  morphStyle: 'outerHTML',
  callbacks: {
    /** @param {Node} before @param {Node} after */
    beforeNodeMorphed(before, after) {
      // What was found out about a remembered task is not part of the page.
      if (before instanceof Element && before.id === 'remembered') return false;
      if (!isField(before) || !isField(after)) return true;
      return !(isTouched(before) || before === document.activeElement) || (before instanceof HTMLInputElement && before.type === 'hidden');
    },
    /** @param {string} name @param {Element} element */
    beforeAttributeUpdated(name, element) {
      return !(name === 'open' && element instanceof HTMLDetailsElement) && !(name === 'class' && element.classList.contains('at'));
    },
  },
};

/**
 * What the forms of a page would decide: each hold with the version of the call that is shown.
 * @param {ParentNode} root
 */
function decisions(root) {
  /** @type {Map<string, string>} */
  const shown = new Map();
  for (const form of root.querySelectorAll('form')) {
    const digest = /** @type {HTMLInputElement | null} */ (form.querySelector('input[name=digest]'));
    const revision = /** @type {HTMLInputElement | null} */ (form.querySelector('input[name=revision]'));
    if (digest && revision) shown.set(form.getAttribute('action') ?? '', `${digest.value} ${revision.value}`);
  }
  return shown;
}

let isPressed = false;
// A form that was refused, or asked for one more entry, is answered with a page that has what was entered: nothing replaces that.
const arrived = /** @type {PerformanceNavigationTiming | undefined} */ (performance.getEntriesByType('navigation')[0]);
let isStopped = (arrived?.responseStatus ?? 200) >= 400 || main().dataset.kept !== undefined;
/** @type {Promise<void> | undefined} */
let refreshing;
let isWanted = false;

/** Asks for the page again and morphs it in; at most one at a time. */
async function refresh() {
  if (isStopped) return;
  if (refreshing) { isWanted = true; return; }
  refreshing = fetchAndMorph().finally(() => {
    refreshing = undefined;
    if (isWanted) { isWanted = false; later(); }
  });
  await refreshing;
}

async function fetchAndMorph() {
  let response;
  let text;
  try {
    // What stands in between may swallow an answer: a page that waits for it for ever would never look again.
    response = await fetch(location.pathname + location.search, { headers: FRAGMENT, cache: 'no-store', signal: AbortSignal.timeout(FETCH_MS) });
    text = await response.text();
    isReached = true;
  } catch {
    isReached = false;
    return;
  }
  if ([401, 403, 404, 410].includes(response.status)) {
    isStopped = true;
    close();
    if (response.status === 401) say('You are signed out.', { href: location.href, link: 'Sign in' });
    else say('This is not here any more, or you may not see it any more.', { href: location.href });
    return;
  }
  if (!response.ok) return;
  const next = new DOMParser().parseFromString(text, 'text/html');
  const [nav, contents] = [next.getElementById('nav'), next.getElementById('main')];
  if (!nav || !contents || isPressed) { isWanted ||= isPressed; return; }
  const [before, after] = [decisions(main()), decisions(contents)];
  const changed = [...before].find(([form, version]) => after.has(form) && after.get(form) !== version);
  if (changed) {
    say('The call changed since you saw it. Nothing was decided.', { href: location.href, link: 'Show the current version' });
    return;
  }
  const speaking = document.getElementById('live-words');
  speaking?.remove();
  Idiomorph.morph(document.getElementById('nav'), nav, MORPH);
  Idiomorph.morph(main(), contents, MORPH);
  if (speaking && isSpeaking(words.turn)) wordsPlace().after(speaking);
  document.title = nav.dataset.title ?? document.title;
  remember();
  // A page that has sub-runs now follows them too.
  if (main().dataset.lists !== undefined && source && !source.url.includes('lists=')) connect();
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting;

/** Several changes at once are one look. */
function later() {
  clearTimeout(waiting);
  waiting = setTimeout(refresh, GATHER_MS);
}

// ---- Words of a model that is just speaking; never stored, and replaced by the reply.

let words = { turn: -1, no: 0 };

/** Whether the reply of a turn is still to come: the page names the turn that is open while its run works. @param {number} turn */
const isSpeaking = (turn) => main().dataset.turn !== undefined && Number(main().dataset.turn) <= turn;

/** @returns {Element} */
const wordsPlace = () => document.querySelector('#main [data-words]') ?? document.querySelector('#main .timeline') ?? main();

/** @param {string} text */
function showWords(text) {
  const place = document.createElement('p');
  place.id = 'live-words';
  place.className = 'text live-words';
  place.textContent = text;
  wordsPlace().after(place);
  return place;
}

/** @param {{ turn: number, no: number, text: string }} piece */
function speak(piece) {
  let place = document.getElementById('live-words');
  if (!place) {
    place = showWords('');
    words = { turn: -1, no: 0 };
  }
  if (piece.no === 1 || piece.turn !== words.turn) place.textContent = piece.no === 1 ? '' : '… ';
  else if (piece.no !== words.no + 1) place.append(' … ');
  place.append(piece.text);
  words = { turn: piece.turn, no: piece.no };
}

/** Somebody who loads the page again goes on where they were. */
function keepWords() {
  const text = document.getElementById('live-words')?.textContent;
  try {
    if (text) sessionStorage.setItem(WORDS, JSON.stringify({ run: main().dataset.run, text, ...words }));
    else sessionStorage.removeItem(WORDS);
  } catch { /* They come again with the reply. */ }
}

function recallWords() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(WORDS) ?? 'null');
    if (!kept || kept.run !== main().dataset.run || !isSpeaking(kept.turn)) return;
    showWords(kept.text);
    words = { turn: kept.turn, no: kept.no };
  } catch { /* The same. */ }
}

// ---- What somebody has typed and not sent stays over a reload, in this tab. Of a call that is another one by then it is dropped.

/** @type {WeakSet<HTMLFormElement>} */
const sent = new WeakSet();
addEventListener('submit', (event) => { if (event.target instanceof HTMLFormElement) sent.add(event.target); });

/** Fields with text of forms that change something, each with what it is called on this version of the page. */
function typedFields() {
  const fields = /** @type {NodeListOf<HTMLInputElement | HTMLTextAreaElement>} */ (main().querySelectorAll('form[method=post] input[type=text], form[method=post] textarea'));
  return [...fields].map((field) => {
    const version = ['digest', 'revision'].map((name) => /** @type {HTMLInputElement | null | undefined} */ (field.form?.querySelector(`input[name=${name}]`))?.value);
    return { field, name: [field.form?.getAttribute('action'), ...version, field.name, field.id].join(' ') };
  });
}

function keepTyped() {
  const typed = typedFields().filter(({ field }) => isTouched(field) && !(field.form && sent.has(field.form)));
  try {
    sessionStorage.setItem(TYPED, JSON.stringify(Object.fromEntries(typed.map(({ field, name }) => [name, field.value]))));
  } catch { /* What cannot be kept is typed again. */ }
}

function recallTyped() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(TYPED) ?? '{}');
    sessionStorage.removeItem(TYPED);
    if (arrived?.type !== 'reload' || isStopped) return;
    for (const { field, name } of typedFields()) {
      if (typeof kept[name] !== 'string' || isTouched(field)) continue;
      field.value = kept[name];
      for (let folded = field.closest('details'); folded; folded = folded.parentElement?.closest('details') ?? null) folded.open = true;
    }
  } catch { /* The same. */ }
}

// ---- The stream, and what to do without one.

/** @type {EventSource | undefined} */
let source;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let polling;
let heardAt = 0;
let wasCut = false;
/** Whether the server answered the last time that the page looked. */
let isReached = true;

function close() {
  source?.close();
  source = undefined;
  clearTimeout(polling);
}

function heard() {
  heardAt = performance.now();
  clearTimeout(polling);
  if (wasCut) {
    wasCut = false;
    say('Connected again.', { forMs: 4_000 });
  }
  polling = setTimeout(cut, SILENT_MS);
}

/** No stream, for whatever reason: the page looks by itself, and says so. */
function cut() {
  if (isStopped || document.hidden) return;
  wasCut = true;
  const then = isReached ? '. Reconnecting; until then the page is updated' : ', and the server does not answer. What you see may be out of date. Trying again';
  say(`Live updates are interrupted${then} every ${POLL_MS / 1000} seconds.`);
  // A stream that is open and says nothing, not even that it is alive, is given up: what stands in between has lost it.
  if (!source || source.readyState === EventSource.CLOSED || performance.now() - heardAt >= SILENT_MS) connect();
  clearTimeout(polling);
  polling = setTimeout(async () => { await refresh(); if (wasCut) cut(); }, POLL_MS);
}

function connect() {
  const follows = main().dataset;
  if (isStopped || (!follows.run && follows.lists === undefined)) return;
  source?.close();
  const query = new URLSearchParams();
  if (follows.run) query.set('run', follows.run);
  if (follows.seq) query.set('after', follows.seq);
  if (follows.lists !== undefined) query.set('lists', 'true');
  const stream = new EventSource(`${base}/events?${query}`);
  source = stream;
  heardAt = performance.now();
  clearTimeout(polling);
  polling = setTimeout(cut, POLL_MS);
  // An open connection is none that speaks: only what the server says counts.
  stream.addEventListener('hello', heard);
  stream.addEventListener('alive', () => { heard(); later(); });
  stream.addEventListener('changed', () => { heard(); later(); });
  stream.addEventListener('words', (event) => { heard(); speak(JSON.parse(event.data)); });
  stream.addEventListener('gone', () => { stream.close(); refresh(); });
  stream.addEventListener('error', () => { if (stream === source && !wasCut) cut(); });
}

/** Hidden tabs leave their connection to others: a browser has six of them for each server. */
function poll() {
  close();
  polling = setTimeout(async () => { await refresh(); if (document.hidden) poll(); }, HIDDEN_POLL_MS);
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) { poll(); return; }
  close();
  connect();
  later();
});
addEventListener('pagehide', () => { keepWords(); keepTyped(); close(); });
addEventListener('pageshow', (event) => { if (event.persisted) { connect(); later(); } });
addEventListener('pointerdown', () => { isPressed = true; }, { capture: true });
for (const end of ['pointerup', 'pointercancel']) {
  addEventListener(end, () => { isPressed = false; if (isWanted) { isWanted = false; later(); } }, { capture: true });
}

// ---- Keys. Single keys can be switched off (WCAG 2.1.4), and are never taken from somebody who types.

/** @type {HTMLElement | null} */
let at = null;

const rows = () => /** @type {HTMLElement[]} */ ([...main().querySelectorAll('[data-href]')]);

/** @param {number} step */
function move(step) {
  const all = rows();
  if (all.length === 0) {
    const link = /** @type {HTMLAnchorElement | null} */ (main().querySelector(step > 0 ? 'a[rel=next]' : 'a[rel=prev]'));
    link?.click();
    return;
  }
  const now = all.findIndex((row) => row === at || row.contains(document.activeElement));
  const next = all[now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + step, 0), all.length - 1)];
  all.forEach((row) => row.classList.toggle('at', row === next));
  at = next;
  const link = /** @type {HTMLElement | null} */ (next.matches('a') ? next : next.querySelector('a[href]'));
  (link ?? next).focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

/** The form of an action: in the item that one is at, else the only one of the page, else the first. @param {string} action */
function form(action) {
  const within = (/** @type {ParentNode} */ root) => /** @type {HTMLFormElement | null} */ (root.querySelector(`form[data-action=${action}]`));
  const item = document.activeElement?.closest('[data-href], [data-hold]') ?? (at?.isConnected ? at : null);
  return (item && within(item)) ?? within(main());
}

/** @param {HTMLFormElement} found */
function unfold(found) {
  for (let folded = found.closest('details'); folded; folded = folded.parentElement?.closest('details') ?? null) folded.open = true;
}

/** @param {HTMLFormElement} found */
function enter(found) {
  unfold(found);
  const field = /** @type {HTMLElement | null} */ (found.querySelector('textarea, input:not([type=hidden]), select, button:not([tabindex])'));
  field?.focus();
  field?.scrollIntoView({ block: 'nearest' });
}

function approve() {
  const found = form('approve');
  if (!found) return;
  unfold(found);
  const button = /** @type {HTMLButtonElement | null} */ (found.querySelector('button'));
  const others = main().querySelectorAll('form[data-action=approve]').length;
  const isChosen = others === 1 || found.contains(document.activeElement) || (found.closest('[data-href], [data-hold]')?.contains(document.activeElement) ?? false);
  const care = found.dataset.careful;
  if (care || !isChosen) {
    button?.focus();
    /** @type {Record<string, string>} */
    const whys = { unknown: 'Nothing says that this can be undone', hidden: 'It has hidden characters' };
    if (care) say(`${whys[care] ?? 'This cannot be undone'}: press Enter on the button to approve it.`, { forMs: 8_000 });
    return;
  }
  if (button) found.requestSubmit(button);
}

/** @param {string} action */
function begin(action) {
  const found = form(action);
  if (found) enter(found);
  return found !== null;
}

/** @type {Record<string, () => void>} */
const BINDINGS = {
  j: () => move(1),
  k: () => move(-1),
  x: () => {
    const row = at?.isConnected ? at : document.activeElement?.closest('[data-href]');
    /** @type {HTMLInputElement | null | undefined} */ (row?.querySelector('input[type=checkbox]'))?.click();
  },
  a: approve,
  d: () => { begin('deny'); },
  e: () => { if (!begin('edit')) begin('answer'); },
  '/': () => { /** @type {HTMLElement | null} */ (document.querySelector('input[type=search], [data-search]'))?.focus(); },
  '?': () => { location.href = `${base}/me#keys`; },
};

addEventListener('keydown', (event) => {
  const target = event.target instanceof HTMLElement ? event.target : null;
  const isTyping = target?.matches('input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]') ?? false;
  if (isTyping && target) {
    if (event.key === 'Escape') target.blur();
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      // The button says what is decided: without it a form says nothing.
      const { form: typed } = /** @type {HTMLTextAreaElement} */ (target);
      typed?.requestSubmit(/** @type {HTMLButtonElement | null} */ (typed.querySelector('button')));
    }
    return;
  }
  if (event.defaultPrevented || event.repeat && !/^[jk]$/i.test(event.key) || event.ctrlKey || event.metaKey || event.altKey || stored(KEYS) === 'off') return;
  const bound = BINDINGS[event.key.toLowerCase()];
  if (!bound) return;
  event.preventDefault();
  bound();
});

const toggle = /** @type {HTMLInputElement | null} */ (document.getElementById('keys-on'));
/** What pages say of keys is shown where they work. */
const tellKeys = () => { document.documentElement.dataset.keys = stored(KEYS) ?? 'on'; };
tellKeys();
if (toggle) {
  toggle.checked = stored(KEYS) !== 'off';
  toggle.addEventListener('change', () => { store(KEYS, toggle.checked ? null : 'off'); tellKeys(); });
  /** @type {HTMLElement} */ (document.getElementById('keys-switch')).hidden = false;
}

// ---- Everything that a page can select, or nothing, where all of it is selected already. What follows shows each in full.

addEventListener('click', (event) => {
  const { form: list } = /** @type {HTMLButtonElement} */ (event.target instanceof Element && event.target.closest('[data-select-all]') || {});
  const boxes = /** @type {HTMLInputElement[]} */ ([...list?.querySelectorAll('input[type=checkbox]') ?? []]);
  const isAll = boxes.every((box) => box.checked);
  for (const box of boxes) box.checked = !isAll;
});

// ---- Ids are copied by a click; beside those that are links stands a button.

addEventListener('click', async (event) => {
  const place = event.target instanceof Element ? event.target.closest('span.id[data-id], [data-copy]') : null;
  const id = place instanceof HTMLElement ? place.dataset.copy ?? place.dataset.id : undefined;
  if (!id) return;
  try {
    await navigator.clipboard.writeText(id);
    say(`Copied ${id}`, { forMs: 3_000 });
  } catch { /* The whole id is selected by the click, and can be copied by hand. */ }
});

// ---- A paused task is remembered, so that whoever comes back finds it (S0-70, S0-71).

function remember() {
  const { task, state, asked, agent } = main().dataset;
  const known = JSON.parse(stored(TASK) ?? 'null');
  if (task && state === 'paused') {
    store(TASK, JSON.stringify({ task, asked, agent, href: location.pathname + location.search }));
  } else if (task && known?.task === task) {
    store(TASK, null);
  }
}

/** Says what became of a task that was paused when somebody was last here. */
async function recall() {
  const place = document.getElementById('remembered');
  const known = JSON.parse(stored(TASK) ?? 'null');
  if (!place || !known?.task || main().dataset.task === known.task) return;
  const response = await fetch(`${base}/sessions/remembered?task=${encodeURIComponent(known.task)}`, { headers: { accept: 'text/html' } });
  if (!response.ok) return;
  const said = new DOMParser().parseFromString(await response.text(), 'text/html').getElementById('remembered');
  if (!said) return;
  if (said.dataset.state === 'over') { store(TASK, null); return; }
  place.replaceChildren(...said.childNodes);
  place.hidden = false;
  place.querySelector('[data-restart]')?.addEventListener('click', (event) => {
    event.preventDefault();
    store(TASK, null);
    place.hidden = true;
    const [text, agent] = [document.getElementById('input'), document.getElementById('agent')];
    if (agent instanceof HTMLSelectElement && known.agent) agent.value = known.agent;
    if (text instanceof HTMLTextAreaElement) { text.value = known.asked ?? ''; text.focus(); }
  });
}

for (const loads of document.querySelectorAll('[data-restart]')) loads.addEventListener('click', () => store(TASK, null));
remember();
recall();
recallWords();
recallTyped();
connect();
document.documentElement.dataset.script = 'ready';
