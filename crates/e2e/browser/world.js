// A server with something on every page: an inbox with tasks that wait, an external job, a conversation, holds of every kind that
// pages show; also where every text is one that would do something if it were taken for markup.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Server } from './server.js';

/** A form with a field of each kind. */
const FORM = {
  type: 'object', required: ['name'], properties: {
    name: { type: 'string', title: 'Name' }, many: { type: 'integer', title: 'Many' }, sure: { type: 'boolean', title: 'Sure' },
    day: { type: 'string', format: 'date', title: 'Day' }, at: { type: 'string', format: 'date-time', title: 'At' },
    room: { enum: ['a', 'b'], title: 'Room' }, lines: { type: 'array', items: { type: 'string' }, minItems: 1, title: 'Lines' },
    who: { type: 'object', properties: { first: { type: 'string', title: 'First' } }, title: 'Who' },
    either: { oneOf: [{ const: 'x', title: 'X' }, { const: 'y' }], title: 'Either' }, any: { title: 'Any' },
  },
};

/** Starts it. `text` stands wherever a person, a model or a tool says something. */
export async function world(text = 'Refund for Ann') {
  const folder = mkdtempSync(join(tmpdir(), 'standfast-world-'));
  mkdirSync(join(folder, 'workspace'));
  const jobs = createServer((asked, answer) => {
    asked.resume();
    asked.on('end', () => {
      answer.writeHead(200, { 'content-type': 'application/json' });
      answer.end(JSON.stringify({ externalRef: `ref ${text}`, estimatedDuration: 600_000, output: text }));
    });
  });
  await new Promise((resolve) => { jobs.listen(0, '127.0.0.1', resolve); });
  const quoted = JSON.stringify(text);
  const script = (name, replies) => writeFileSync(join(folder, `${name}.yaml`), `replies:\n${replies.join('')}`);
  const call = (tool, args) => `- calls:\n  - {tool: ${tool}, arguments: ${JSON.stringify(args)}}\n`;
  const says = `- text: ${quoted}\n`;
  script('clerk', [call('suspend', { reason: text, question: text, options: ['yes', text] }), says]);
  script('writer', [call('write_file', { path: text === 'Refund for Ann' ? 'a.txt' : `${text.replaceAll('/', '').slice(0, 120)}.txt`, content: text }), says]);
  script('builder', [call('deploy', { branch: text }), says]);
  script('talker', [says, says, says, says]);
  script('asker', [call('suspend', { reason: text, question: text }), says]);
  script('former', [call('suspend', { reason: text, resumeSchema: FORM }), says]);
  writeFileSync(join(folder, 'standfast.yaml'), `
llms:
${['clerk', 'writer', 'builder', 'talker', 'asker', 'former'].map((name) => `  ${name}: {type: scripted, script: ${name}.yaml}`).join('\n')}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
tools:
  write_file: {type: write_file, requires_approval: true}
  suspend: {type: suspend-for-input}
  deploy:
    type: external
    description: Deploys a branch.
    url: http://127.0.0.1:${jobs.address().port}/start
    requires_approval: false
    allowed_hosts: ['127.0.0.1']
    parameters: {type: object, properties: {branch: {type: string}}, required: [branch]}
agents:
  clerk: {llm: clerk, session_store: main, task: {}, inboxes: [support]}
  writer: {llm: writer, session_store: main, tools: [write_file], task: {}}
  builder: {llm: builder, session_store: main, tools: [deploy], task: {}}
  talker: {llm: talker, session_store: main, task: {}}
  asker: {llm: asker, session_store: main, tools: [suspend], task: {}}
  former: {llm: former, session_store: main, tools: [suspend], task: {}}
policy: {grants: {max_uses: 20}}
`);
  const server = await new Server('--config', join(folder, 'standfast.yaml')).start();
  const stop = async () => {
    await server.stop();
    jobs.closeAllConnections();
    jobs.close();
    rmSync(folder, { recursive: true, force: true });
  };
  return { server, stop, folder };
}

/** Puts something on every page, and says their addresses. */
export async function fill({ server }, text = 'Refund for Ann') {
  const post = async (path, body) => {
    const response = await fetch(server.base + path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  const run = (agent, session) => post(`/api/v1/agents/${agent}/runs`, { input: text, session, wait: 'settled' });
  // A name has at most 256 bytes.
  const name = text.slice(0, 200);
  const writer = await run('writer', name);
  const builder = await run('builder');
  await run('talker');
  const task = await post('/api/inboxes/support/tasks', { type: 'refund', title: text, payload: { text } });
  await post('/api/inboxes/elsewhere/tasks', { type: 'refund', title: text, payload: text, metadata: { text } });
  for (let tries = 0; tries < 200; tries += 1) {
    const found = await (await fetch(`${server.base}/api/inboxes/support/tasks/${task.id}`)).json();
    if (found.status === 'waiting_for_input') break;
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
  const past = (await run('writer')).holds[0].id;
  await post(`/api/v1/holds/${past}/resolve`, { resolution: 'deny', reason: text });
  // A standing approval: the rule is shown, and the approval repeats its digest.
  const granted = (await run('writer')).holds[0].id;
  const { rule: _, ...shown } = await post(`/api/v1/holds/${granted}/grant-rule`, { uses: 3 });
  await post(`/api/v1/holds/${granted}/resolve`, { resolution: 'approve', grant: shown });
  const used = await run('writer');
  const { holds } = await (await fetch(`${server.base}/api/v1/holds?agent=clerk`)).json();
  const session = `/sessions/${encodeURIComponent(name)}?agent=writer`;
  return {
    pending: '/', hold: `/approve/${writer.holds[0].id}`, sessions: '/sessions', conversation: session, runs: '/runs', run: `/runs/${writer.id}`,
    inboxes: '/inboxes', inbox: '/inboxes/support', elsewhere: '/inboxes/elsewhere', waiting: '/inboxes/support?status=waiting_for_input',
    history: '/history', charts: '/charts', jobs: '/jobs', job: `/approve/${builder.holds[0].id}`, me: '/me',
    decided: `/approve/${past}`, question: `/approve/${holds[0].id}`, review: `/review?hold=${writer.holds[0].id}&hold=${holds[0].id}&hold=${past}`,
    grants: '/grants', offer: `/approve/${writer.holds[0].id}/grant?uses=2&hours=24`, receipt: `/approve/${granted}/receipt`,
    use: `/runs/${used.id}/calls/1/receipt`,
  };
}

/** Pages that say no, and with which status. */
export const REFUSED = { missing: ['/nothing', 404], unknown: ['/approve/nonsense', 404], filter: ['/?tol=x', 400] };
