// The real program on a data directory of its own, and a real browser. Nothing here is simulated.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

export const BINARY = process.env.STANDFAST_BINARY ?? fileURLToPath(new URL('../../../target/product/standfast', import.meta.url));
// The shell is the same engine without the browser around it: half the processor time.
const CHROMIUM = process.env.CHROMIUM ?? ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find(existsSync) ?? '';

// A missing program is an error, never a skipped test.
assert.ok(existsSync(BINARY), `${BINARY} is missing: build it with \`cargo xtask product\`, or set STANDFAST_BINARY`);
assert.ok(existsSync(CHROMIUM), `${CHROMIUM || 'Chromium'} is missing: install Debian's chromium-headless-shell, or set CHROMIUM`);

/** Starts Debian's Chromium. */
export function launch() {
  const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'];
  return chromium.launch({ executablePath: CHROMIUM, headless: true, args });
}

/** A server with its data directory; it can be killed and started again in the same place. */
export class Server {
  data = mkdtempSync(join(tmpdir(), 'standfast-browser-'));
  port = 0;

  /** Without arguments it is the demo. */
  constructor(...more) {
    this.more = more;
  }

  get base() {
    return `http://127.0.0.1:${this.port}`;
  }

  async start() {
    const listen = `127.0.0.1:${this.port}`;
    this.child = spawn(BINARY, ['serve', '--listen', listen, '--data', this.data, ...this.more], { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    this.child.stderr.on('data', (text) => { said += text; });
    this.port = await new Promise((resolve, reject) => {
      let greeting = '';
      this.child.stdout.on('data', (text) => {
        greeting += text;
        const found = /listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(greeting);
        if (found) resolve(Number(found[1]));
      });
      this.child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
    });
    return this;
  }

  /** kill -9, as a crash would. */
  async kill() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await ended;
  }

  async stop() {
    await this.kill();
    rmSync(this.data, { recursive: true, force: true });
  }

  /** Lines that the demo's tool wrote: what ran, as seen from outside. */
  effects() {
    const file = join(this.data, 'demo-effects.log');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  }

  async get(path) {
    return this.asked(path);
  }

  async post(path, body) {
    return this.asked(path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
  }

  async asked(path, options) {
    const response = await fetch(this.base + path, options);
    assert.ok(response.ok, `${path}: ${response.status}`);
    return response.json();
  }

  /** The API: with a body it sends one. */
  async api(path, body) {
    return body ? this.post(`/api/v1${path}`, body) : this.get(`/api/v1${path}`);
  }

  /** A run that waits, and the address of what it waits for. */
  async held(agent, input = 'Please') {
    const run = await this.api(`/agents/${agent}/runs`, { input, wait: 'settled' });
    assert.equal(run.status, 'held');
    return { run: `/runs/${run.id}`, hold: `/approve/${run.holds[0].id}`, id: run.id };
  }
}
