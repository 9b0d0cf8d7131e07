// The product on a data folder of its own, killed and started again in the same place. Nothing here is simulated.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const BINARY = process.env.STANDFAST_BINARY ?? fileURLToPath(new URL('../../../target/product/standfast', import.meta.url));
assert.ok(existsSync(BINARY), 'build the product with `cargo xtask product`, or set STANDFAST_BINARY');

const CONFIG = `
llms:
  script: {type: scripted, script: script.yaml}
tools:
  execute_command: {type: command, requires_approval: true, allowed_commands: [echo]}
agents:
  ops: {llm: script, task: {}, session_store: db, tools: [execute_command]}
session_stores:
  db: {backend: sql, sql: {driver: sqlite, database: ./standfast.db}}
policy:
  rules:
    - {id: reading, allow: read_balance}
    - {id: never, deny: drop_database, because: nobody drops it}
    - {id: too-much, deny: send_refund, where: {amount: {gt: 5000}}, because: ask finance}
    - {id: plans, allow: change_plan}
`;

const SCRIPT = `
replies:
  - text: I will look.
    calls: [{tool: execute_command, arguments: '{"command": "echo original"}'}]
  - text: Done.
`;

/** A server that can be killed and started again. */
export class Server {
  folder = mkdtempSync(join(tmpdir(), 'standfast-sdk-'));
  port = 0;

  constructor() {
    writeFileSync(join(this.folder, 'standfast.yaml'), CONFIG);
    writeFileSync(join(this.folder, 'script.yaml'), SCRIPT);
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async start() {
    const args = ['serve', '--config', 'standfast.yaml', '--data', 'data', '--listen', `127.0.0.1:${this.port}`];
    this.child = spawn(BINARY, args, { cwd: this.folder, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    this.child.stderr.on('data', (text) => { said += text; });
    this.port = await new Promise((resolve, reject) => {
      this.child.stdout.on('data', (text) => {
        said += text;
        const found = /listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(said);
        if (found) resolve(Number(found[1]));
      });
      this.child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
    });
    return this;
  }

  /** Changes the configuration, with a restart. */
  async configure(change) {
    const file = join(this.folder, 'standfast.yaml');
    writeFileSync(file, change(readFileSync(file, 'utf8')));
    await this.restart();
  }

  /** kill -9, as a crash would. */
  async kill() {
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGKILL');
    await ended;
  }

  async restart() {
    await this.kill();
    await this.start();
  }

  async stop() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
