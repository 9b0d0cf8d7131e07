// Each adapter with its real framework, a scripted model on loopback, and the product. An agent is a program of its own. It is killed while
// its call is held, or in the middle of it, and started again.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { RunContext, tool } from '@openai/agents';
import { z } from 'zod';
import { Client } from '../dist/index.js';
import { guard } from '../dist/openai-agents.js';
import { serveModel } from './model.js';
import { NEWER_NODE } from './node.js';
import { Server } from './server.js';

/** The adapters, and by which word their frameworks record that a call was denied. */
const ADAPTERS = { 'ai-sdk-6': 'execution-denied', 'ai-sdk-7': 'execution-denied', mastra: 'error-text', 'openai-agents': 'false' };

const server = new Server();
let client;
let model;
before(async () => {
  await server.start();
  model = await serveModel();
  client = new Client({ url: server.url });
});
after(async () => {
  model.server.close();
  await server.stop();
});

/** Runs a step of an agent as a process of its own, which is gone afterwards; what it said. */
function step(adapter, folder, command, more = {}) {
  const program = fileURLToPath(new URL(`agents/${adapter}.js`, import.meta.url));
  const node = adapter === 'ai-sdk-7' ? NEWER_NODE : process.execPath;
  const env = { ...process.env, STANDFAST_URL: server.url, MODEL_URL: model.url, ...more };
  return new Promise((resolve, reject) => execFile(node, [program, command, folder], { env, timeout: 120_000 }, (error, out, problems) => {
    if (error && !more.DIE) reject(new Error(out + problems));
    else resolve(out.trim());
  }));
}

function held(said) {
  assert.match(said, /^held \S+$/);
  return said.split(' ')[1];
}

function effects(folder) {
  const file = join(folder, 'effects');
  return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
}

for (const [adapter, denied] of Object.entries(ADAPTERS)) {
  describe(adapter, () => {
    const cases = (name, run) => test(name, async () => {
      const folder = mkdtempSync(join(tmpdir(), 'standfast-agent-'));
      await run((command, more) => step(adapter, folder, command, more), () => effects(folder));
      rmSync(folder, { recursive: true });
    });

    cases('held, killed, restarted, approved, ran once', async (agent, ran) => {
      const hold = held(await agent('start'));
      assert.deepEqual(ran(), []);
      await server.restart();
      await client.resolve(hold, 'approve');
      const said = await agent('resume');
      assert.match(said, /refunded 40 for A-7/);
      assert.ok(!said.includes(`recorded ${denied}`), said);
      assert.deepEqual(ran(), ['A-7 40']);
    });

    cases('denied', async (agent, ran) => {
      await client.resolve(held(await agent('start')), 'deny', { reason: 'no refunds today' });
      const said = await agent('resume');
      assert.match(said, /no refunds today/);
      assert.ok(said.includes(`recorded ${denied}`), said);
      assert.deepEqual(ran(), []);
    });

    cases('denied by a rule: nobody is asked, nothing waits', async (agent, ran) => {
      const said = await agent('start', { ASK: 'Refund everything' });
      assert.match(said, /ask finance/);
      assert.ok(said.includes(`recorded ${denied}`), said);
      assert.deepEqual(ran(), []);
    });

    cases('edited', async (agent, ran) => {
      await client.resolve(held(await agent('start')), 'approve', { arguments: { order: 'A-7', amount: 10 } });
      assert.match(await agent('resume'), /refunded 10 for A-7/);
      assert.deepEqual(ran(), ['A-7 10']);
    });

    cases('two calls of one turn', async (agent, ran) => {
      let said = await agent('start', { ASK: 'Refund both' });
      for (let step = 0; step < 2 && said.startsWith('held'); step += 1) {
        for (const line of said.split('\n')) await client.resolve(held(line), 'approve');
        said = await agent('resume');
      }
      assert.match(said, /refunded 40 for A-7.*refunded 50 for B-8/);
      assert.deepEqual(ran().sort(), ['A-7 40', 'B-8 50']);
    });

    cases('killed in the middle, and never run again', async (agent, ran) => {
      await client.resolve(held(await agent('start')), 'approve');
      await agent('resume', { DIE: 'after the effect' });
      assert.deepEqual(ran(), ['A-7 40']);
      await agent('resume');
      assert.deepEqual(ran(), ['A-7 40']);
    });

    cases('resuming is not approving', async (agent, ran) => {
      const hold = held(await agent('start'));
      assert.equal(await agent('impatient'), `held ${hold}`);
      assert.deepEqual(ran(), []);
    });

    if (adapter === 'ai-sdk-7') {
      cases('`toolApproval` approves nothing', async (agent, ran) => {
        assert.match(await agent('start', { CARELESS: 'yes' }), /^said .*Not executed/);
        assert.deepEqual(ran(), []);
      });
    }
  });
}

test('OpenAI Agents: arguments that are not JSON are held, though a rule allows the tool', async () => {
  const ran = [];
  const execute = async ({ account }) => { ran.push(account); return '40'; };
  const balance = tool({ name: 'read_balance', description: 'Reads a balance', parameters: z.object({ account: z.string() }), execute, errorFunction: null });
  const guarded = guard(balance, { client, session: 'case-text' });
  const call = (text) => guarded.invoke(new RunContext(), text, { toolCall: { type: 'function_call', name: 'read_balance', callId: `call ${text}`, arguments: text } });
  assert.equal(await call('{"account":"A-7"}'), '40');
  assert.match(await call('{"account":"B-8"'), /Not executed/);
  assert.deepEqual(ran, ['A-7']);
});
