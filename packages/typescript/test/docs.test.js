// Every example of docs/typescript.md: type-checked together, then run one by one, while somebody approves whatever is held. The one of the AI
// SDK is for version 7; with the words that the page names for version 6 it is one for that too.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '../dist/index.js';
import { serveModel } from './model.js';
import { NEWER_NODE } from './node.js';
import { Server } from './server.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const page = readFileSync(join(root, '../../docs/typescript.md'), 'utf8');

/** What version 7 is called beside version 6. */
const ALIASES = { ai: 'ai-7', '@ai-sdk/openai-compatible': '@ai-sdk/openai-compatible-3' };

function ofVersion6(block) {
  return block.replaceAll('isStepCount', 'stepCountIs').replaceAll('result.responseMessages', 'result.response.messages');
}

/** Compiles the examples below a folder; the JavaScript is beside them. */
function compile(folder, more) {
  const compilerOptions = { strict: true, target: 'es2022', module: 'nodenext', skipLibCheck: true, types: ['node'], lib: ['es2023', 'dom', 'dom.iterable'], ...more };
  const config = join(folder, 'tsconfig.json');
  writeFileSync(config, JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  execFileSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', config], { stdio: 'inherit' });
}

test('the examples of the guide', async () => {
  const folders = { older: join(root, 'dist/docs'), newer: join(root, 'dist/docs/newer') };
  rmSync(folders.older, { recursive: true, force: true });
  mkdirSync(folders.newer, { recursive: true });
  const blocks = [...page.matchAll(/```ts\n(.*?)```/gs)].map((found) => found[1]);
  assert.equal(blocks.length, 8);
  const files = blocks.map((block, no) => {
    const file = join(folders.older, `example${no}.ts`);
    writeFileSync(file, ofVersion6(block));
    return file;
  });
  compile(folders.older);
  const [example, ...others] = blocks.filter((block) => block !== ofVersion6(block));
  assert.deepEqual(others, []);
  // Version 7 has another name here, which the compiler is told: it takes it wherever the package, too, says `ai`.
  const newer = join(folders.newer, 'example.ts');
  writeFileSync(newer, example);
  compile(folders.newer, { paths: Object.fromEntries(Object.entries(ALIASES).map(([name, alias]) => [name, [join(root, 'node_modules', alias, 'dist/index.d.ts')]])) });
  const made = readFileSync(newer.replace('.ts', '.js'), 'utf8');
  writeFileSync(newer.replace('.ts', '.js'), Object.entries(ALIASES).reduce((text, [name, alias]) => text.replace(`'${name}'`, `'${alias}'`), made));

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
  for (const [file, node] of [...files.map((file) => [file, process.execPath]), [newer, NEWER_NODE]]) {
    const env = { ...process.env, STANDFAST_URL: server.url, MODEL_URL: model.url };
    const child = spawn(node, [file.replace('.ts', '.js')], { env, stdio: ['ignore', 'pipe', 'inherit'] });
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
  assert.equal(said.match(/The tool said: refunded 40/g)?.length, 4, said);
});
