// The hooks with the real coding agents: each is installed by `standfast hook install` into a project of its own, talks to a scripted model on
// loopback, and wants to delete a file. Agents run with their own questions and sandboxes off: what stops them here is the hook alone.

import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { BINARY, Server } from '../../typescript/test/server.js';
import { COMMAND, serveModel } from './model.js';
import { Terminal } from './terminal.js';

const PROGRAMS = fileURLToPath(new URL('../node_modules/.bin', import.meta.url));
const ASK = 'Delete victim.txt';
/** In Claude Code's own dialog. */
const QUESTION = /Do you want to proceed/;

/** How each agent is set up and started in a folder. */
const AGENTS = {
  'claude-code': {
    environment: () => ({ ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: 'none', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1' }),
    start: ['claude', '-p', ASK, '--output-format', 'json'],
  },
  codex: {
    setUp: (folder) => write(join(folder, 'home/.codex/config.toml'), `
model = "m"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "${model.url}/v1"
env_key = "MODEL_KEY"
wire_api = "responses"
[projects."${join(folder, 'project')}"]
trust_level = "trusted"
`),
    environment: () => ({ MODEL_KEY: 'none' }),
    start: ['codex', 'exec', '--dangerously-bypass-approvals-and-sandbox', '--dangerously-bypass-hook-trust', '--skip-git-repo-check', ASK],
  },
  copilot: {
    environment: () => ({
      COPILOT_OFFLINE: 'true', COPILOT_ALLOW_ALL: 'true', COPILOT_MODEL: 'm', COPILOT_PROVIDER_API_KEY: 'none', COPILOT_PROVIDER_BASE_URL: `${model.url}/v1`,
    }),
    start: ['copilot', '-p', ASK, '--allow-all-tools'],
  },
  gemini: {
    setUp: (folder) => write(join(folder, 'home/.gemini/settings.json'), '{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"enableAutoUpdate": false}}'),
    environment: () => ({ GEMINI_API_KEY: 'none', GOOGLE_GEMINI_BASE_URL: model.url, GEMINI_CLI_TRUST_WORKSPACE: 'true' }),
    start: ['gemini', '--yolo', '--model', 'gemini-2.5-flash', '--prompt', ASK],
  },
  opencode: {
    setUp: (folder) => write(join(folder, 'project/opencode.json'), JSON.stringify({
      model: 'scripted/m', small_model: 'scripted/m', permission: { bash: 'allow' }, autoupdate: false,
      provider: { scripted: { npm: '@ai-sdk/openai-compatible', name: 'scripted', options: { baseURL: `${model.url}/v1`, apiKey: 'none' }, models: { m: { name: 'm' } } } },
    })),
    environment: () => ({ OPENCODE_DISABLE_MODELS_FETCH: '1' }),
    start: ['opencode', 'run', ASK],
  },
};

const server = new Server();
let model;
before(async () => {
  model = await serveModel();
  await server.start();
  await server.configure((config) => `${config}    - {id: commands, hold: [Bash, bash, run_shell_command], because: it runs a command}\n`);
});
after(async () => {
  model.server.close();
  await server.stop();
});

function write(file, text) {
  mkdirSync(join(file, '..'), { recursive: true });
  writeFileSync(file, text);
}

/** A project with the hook, and a file that the agent wants to delete. */
class Project {
  folder = mkdtempSync(join(tmpdir(), 'standfast-coding-agent-'));
  victim = join(this.folder, 'project/victim.txt');

  constructor(name, options = []) {
    this.agent = AGENTS[name];
    write(this.victim, 'here\n');
    // opencode wants to install what its plugins may need, and ours needs nothing.
    write(join(this.folder, 'home/.npmrc'), 'offline=true\nfetch-retries=0\n');
    mkdirSync(join(this.folder, 'bin'));
    symlinkSync(BINARY, join(this.folder, 'bin/standfast'));
    this.agent.setUp?.(this.folder);
    execFileSync(BINARY, ['hook', 'install', name, '--yes', ...options, '--project', join(this.folder, 'project')]);
  }

  /** Changes how the hook is called. */
  call(options) {
    for (const name of readdirSync(join(this.folder, 'project'), { recursive: true })) {
      const file = join(this.folder, 'project', name);
      if (!statSync(file).isFile()) continue;
      const quoted = options.map((one) => JSON.stringify(one)).join(', ');
      writeFileSync(file, readFileSync(file, 'utf8').replaceAll('--wait 86000', options.join(' ')).replaceAll('"--wait", "86000"', quoted));
    }
  }

  /** Where and with what the agent runs. */
  get surroundings() {
    const PATH = [join(this.folder, 'bin'), PROGRAMS, process.env.PATH].join(delimiter);
    const env = { PATH, HOME: join(this.folder, 'home'), TERM: 'dumb', IS_SANDBOX: '1', STANDFAST_SERVER: server.url, ...this.agent.environment() };
    return { cwd: join(this.folder, 'project'), env };
  }

  /** Runs the agent to its end; what it said. */
  run([program, ...args] = this.agent.start) {
    return new Promise((resolve, reject) => {
      const child = execFile(join(PROGRAMS, program), args, { ...this.surroundings, timeout: 180_000 }, (error, said, problems) => {
        if (error) reject(new Error(`${program}: ${error.message}\n${said}\n${problems}`));
        else resolve(said);
      });
      child.stdin.end();
    });
  }

  get isUntouched() {
    return existsSync(this.victim);
  }
}

const api = async (path, body) => (await fetch(`${server.url}/api/v1${path}`, body && {
  method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body),
})).json();

/** The commands that a process has started and that still run. */
function children(pid) {
  return spawnSync('ps', ['--ppid', String(pid), '-o', 'args=']).stdout.toString();
}

/** Waits until a call is held. */
async function held(running) {
  let ended;
  running.then((said) => { ended = said; }, (error) => { ended = String(error); });
  for (;;) {
    const [hold] = (await api('/holds?state=open&agent=gate')).holds;
    if (hold) return hold;
    assert.equal(ended, undefined, 'it ended without asking');
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

for (const name of Object.keys(AGENTS)) {
  describe(name, () => {
    const cases = (title, run, options) => test(title, async () => {
      const project = new Project(name, options);
      await run(project);
      // What an agent has started may write its last words.
      rmSync(project.folder, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 });
    });

    cases('approved, over a server that is killed', async (project) => {
      const running = project.run();
      const hold = await held(running);
      assert.ok(project.isUntouched);
      await server.restart();
      await api(`/holds/${hold.id}/resolve`, { resolution: 'approve' });
      assert.match(await running, /The tool said/);
      assert.ok(!project.isUntouched, 'what was approved ran');
      const gate = await api(`/gates/${hold.run}`);
      assert.deepEqual([gate.state, gate.outcome.ok, gate.arguments.command], ['done', true, COMMAND]);
    });

    cases('denied', async (project) => {
      const running = project.run();
      await api(`/holds/${(await held(running)).id}/resolve`, { resolution: 'deny', reason: 'keep it' });
      assert.match(await running, /Not executed.*keep it/);
      assert.ok(project.isUntouched);
    });

    cases('edited', async (project) => {
      const running = project.run();
      const hold = await held(running);
      await api(`/holds/${hold.id}/resolve`, { resolution: 'approve', arguments: { command: 'echo spared', description: 'Says a word' } });
      assert.match(await running, /spared/);
      assert.ok(project.isUntouched, 'what was asked about did not run');
      assert.equal((await api(`/gates/${hold.run}`)).state, 'done');
    });

    cases('no server: nothing runs, and the model gets the reason', async (project) => {
      project.call(['--wait', '2']);
      await server.kill();
      try {
        assert.match(await project.run(), /Standfast could not be asked/);
      } finally {
        await server.start();
      }
      assert.ok(project.isUntouched);
    });

    if (name === 'opencode') {
      cases('it answers while a call is held, and an interrupted call does not run', async (project) => {
        const child = spawn(join(PROGRAMS, 'opencode'), ['serve', '--hostname', '127.0.0.1', '--port', '0'], project.surroundings);
        try {
          const url = await new Promise((resolve) => {
            let said = '';
            child.stdout.on('data', (text) => { said += text; const found = /listening on (http:\S+)/.exec(said); if (found) resolve(found[1]); });
          });
          const post = async (path, body) => (await fetch(url + path, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })).json();
          const { id } = await post('/session', {});
          const running = post(`/session/${id}/message`, { parts: [{ type: 'text', text: ASK }] });
          const hold = await held(running);
          assert.deepEqual((await (await fetch(`${url}/session`)).json()).map((one) => one.id), [id]);
          assert.equal(await post(`/session/${id}/abort`, {}), true);
          assert.equal((await running).info.error.name, 'MessageAbortedError');
          while (children(child.pid).includes('standfast hook')) await new Promise((resolve) => setTimeout(resolve, 100));
          await api(`/holds/${hold.id}/resolve`, { resolution: 'approve' });
          assert.ok(project.isUntouched);
          assert.equal((await api(`/gates/${hold.run}`)).state, 'allowed', 'giving up is not a denial, and nothing started');
        } finally {
          child.kill('SIGKILL');
        }
      });
    }

    if (name === 'claude-code') {
      cases('over HTTP, by the settings of the guide: approved, and no server', async (project) => {
        const page = readFileSync(fileURLToPath(new URL('../../../docs/hooks.md', import.meta.url)), 'utf8');
        const [, settings] = /```json\n(\{"hooks".*?)```/s.exec(page);
        assert.ok(settings.includes('http://127.0.0.1:8080/'));
        const file = join(project.folder, 'project/.claude/settings.json');
        writeFileSync(file, settings.replace('http://127.0.0.1:8080', server.url));
        await server.kill();
        try {
          await project.run();
        } finally {
          await server.start();
        }
        assert.ok(project.isUntouched, 'nobody could be asked');
        const running = project.run();
        const hold = await held(running);
        assert.ok(project.isUntouched);
        await api(`/holds/${hold.id}/resolve`, { resolution: 'approve' });
        assert.match(await running, /The tool said/);
        assert.ok(!project.isUntouched, 'what was approved ran');
        assert.equal((await api(`/gates/${hold.run}`)).attempt, 1);
      });

      // Its user sits at a terminal, and sees its own dialog while the page has both buttons.
      const dialog = (title, run) => cases(`its own dialog beside the page: ${title}`, async (project) => {
        write(join(project.folder, 'home/.claude.json'), JSON.stringify({
          hasCompletedOnboarding: true, theme: 'dark', customApiKeyResponses: { approved: ['none'], rejected: [] },
          projects: { [join(project.folder, 'project')]: { hasTrustDialogAccepted: true } },
        }));
        const terminal = new Terminal([join(PROGRAMS, 'claude'), '--permission-mode', 'default'], project.surroundings);
        try {
          await terminal.shows(/❯/);
          await terminal.writes(ASK);
          await terminal.shows(QUESTION);
          const hold = await held(Promise.resolve());
          await run(terminal, hold, project);
        } finally {
          await terminal.end();
        }
      }, ['--then', 'ask']);
      const state = async (hold) => (await api(`/gates/${hold.run}`)).state;
      const becomes = async (hold, wanted) => {
        while (await state(hold) !== wanted) await new Promise((resolve) => setTimeout(resolve, 100));
      };

      dialog('refused there, the request is gone', async (terminal, hold, project) => {
        await terminal.answers(QUESTION, '2');
        await terminal.shows(/Interrupted/);
        await becomes(hold, 'withdrawn');
        assert.ok(project.isUntouched);
      });

      dialog('refused there while the server is away, the request is gone with the next prompt', async (terminal, hold, project) => {
        await server.kill();
        try {
          await terminal.answers(QUESTION, '2');
          await terminal.shows(/Interrupted/);
        } finally {
          await server.start();
        }
        assert.equal(await state(hold), 'held', 'nobody could be told yet');
        await terminal.writes('Leave it');
        await terminal.shows(/The tool said/);
        await becomes(hold, 'withdrawn');
        assert.deepEqual((await api('/holds?state=open&agent=gate')).holds, []);
        assert.ok(project.isUntouched);
      });

      dialog('approved there, it runs and the request is gone', async (terminal, hold, project) => {
        await terminal.answers(QUESTION, '1');
        await terminal.shows(/The tool said/);
        await becomes(hold, 'withdrawn');
        assert.ok(!project.isUntouched);
      });

      dialog('approved on the page, the dialog closes and it runs', async (terminal, hold, project) => {
        assert.equal((await api('/holds?state=open&agent=gate')).holds.length, 1, 'hook and dialog are one question');
        await api(`/holds/${hold.id}/resolve`, { resolution: 'approve' });
        await terminal.shows(/The tool said/);
        await becomes(hold, 'done');
        assert.ok(!project.isUntouched);
      });

      dialog('interrupted, and left', async (terminal, hold, project) => {
        await terminal.answers(QUESTION, 'Escape');
        await terminal.shows(/Interrupted/);
        await terminal.writes('/exit');
        await becomes(hold, 'withdrawn');
        assert.ok(project.isUntouched);
      });

      cases('deferred: the program ends, somebody approves, and it is resumed', async (project) => {
        project.call(['--wait', '1', '--then', 'defer']);
        const { stop_reason: reason, session_id: session } = JSON.parse(await project.run());
        assert.equal(reason, 'tool_deferred');
        const hold = await held(Promise.resolve());
        await server.restart();
        await api(`/holds/${hold.id}/resolve`, { resolution: 'approve' });
        assert.match(await project.run(['claude', '-p', '--resume', session, '--output-format', 'json']), /The tool said/);
        assert.ok(!project.isUntouched);
      });
    }
  });
}
