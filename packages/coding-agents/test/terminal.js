// A program on a terminal of its own, with what its user sees and types: tmux keeps both.

import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { randomUUID } from 'node:crypto';

export class Terminal {
  name = `standfast-${randomUUID()}`;

  /** Starts a program in a folder, with these variables and no others. */
  constructor(program, { cwd, env }) {
    const variables = Object.entries({ ...env, TERM: 'xterm-256color' }).map(([name, value]) => `${name}=${value}`);
    this.tmux('-f', '/dev/null', 'new-session', '-d', '-x', '120', '-y', '40', '-c', cwd, 'env', '-i', ...variables, ...program);
    this.program = Number(this.tmux('list-panes', '-F', '#{pane_pid}'));
  }

  tmux(...args) {
    return execFileSync('tmux', ['-L', this.name, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  }

  get screen() {
    return this.tmux('capture-pane', '-p');
  }

  /** Waits until its user sees something. */
  async shows(text) {
    const until = Date.now() + 120_000;
    while (!text.test(this.screen)) {
      if (Date.now() > until) throw new Error(`never shown: ${text}\n${this.screen}`);
      await sleep(200);
    }
  }

  /** Types one line, and sends it when it stands there. */
  async writes(line) {
    this.tmux('send-keys', '-l', line);
    await this.shows(new RegExp(line));
    this.presses('Enter');
  }

  presses(key) {
    this.tmux('send-keys', key);
  }

  /** Presses a key until a question is gone: keys that come just as it appears are not taken. */
  async answers(question, key) {
    while (question.test(this.screen)) {
      this.presses(key);
      await sleep(500);
    }
  }

  /** Hangs up, and waits until the program has ended. */
  async end() {
    // Where the program has left, so has tmux.
    spawnSync('tmux', ['-L', this.name, 'kill-server']);
    while (existsSync(`/proc/${this.program}`)) await sleep(100);
  }
}
