// Every example of docs/typescript.md: type-checked together, then run one by one, while somebody approves whatever is held.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '../dist/index.js';
import { serveModel } from './model.js';
import { Server } from './server.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const page = readFileSync(join(root, '../../docs/typescript.md'), 'utf8');

test('the examples of the guide', async () => {
  const folder = join(root, 'dist/docs');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const blocks = [...page.matchAll(/```ts\n(.*?)```/gs)].map((found) => found[1]);
  assert.equal(blocks.length, 8);
  const files = blocks.map((block, no) => {
    const file = join(folder, `example${no}.ts`);
    writeFileSync(file, block);
    return file;
  });
  const options = ['--strict', '--target', 'es2022', '--module', 'nodenext', '--skipLibCheck', '--types', 'node', '--lib', 'es2023,dom,dom.iterable'];
  execFileSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), ...options, ...files], { stdio: 'inherit' });

  const server = await new Server().start();
  const model = await serveModel();
  const approver = new Client({ url: server.url });
  let over = false;
  const approving = (async () => {
    while (!over) {
      for (const hold of await approver.holds({ state: 'open', agent: 'gate' })) await approver.resolve(hold.id, 'approve').catch(() => undefined);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  })();
  let said = '';
  for (const file of files) {
    const env = { ...process.env, STANDFAST_URL: server.url, MODEL_URL: model.url };
    const child = spawn(process.execPath, [file.replace('.ts', '.js')], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    child.stdout.on('data', (text) => { said += text; });
    const code = await new Promise((resolve) => child.on('close', resolve));
    assert.equal(code, 0, `${file}: ${said}`);
  }
  over = true;
  await approving;
  model.server.close();
  await server.stop();
  for (const words of ['refunded 40 for A-7\n', 'sent to ann', 'completed', 'TASK_STATE_COMPLETED']) {
    assert.ok(said.includes(words), `${words} is not in ${said}`);
  }
  assert.equal(said.match(/The tool said: refunded 40/g)?.length, 3, said);
});
