// Agents that ask for something of every kind, each in its first reply: for tests of the approver's pages, and for pictures of
// them. What stands in their calls is what pages must show; `NASTY` would do something if any of it were taken for markup.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const NASTY = '</pre></dd><img src=http://127.0.0.1:1/x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>[x](javascript:alert(4))\u202e';
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** A picture of the kind that has scripts, addresses and pages in it. */
export const DRAWING = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="120" height="60" onload="alert(1)">'
  + '<script>alert(2); fetch("http://127.0.0.1:1/script")</script><style>@import url(http://127.0.0.1:1/style);</style>'
  + '<image href="http://127.0.0.1:1/image.png" width="9" height="9"/><use xlink:href="http://127.0.0.1:1/use.svg#x"/>'
  + '<foreignObject width="9" height="9"><iframe xmlns="http://www.w3.org/1999/xhtml" src="http://127.0.0.1:1/frame"></iframe></foreignObject>'
  + '<a href="javascript:alert(3)"><rect width="120" height="60" fill="teal" onclick="alert(4)"/></a></svg>';

/** A text and a paper as files. */
export const LIST = `name,km\n${'left,1\nright,2\n'.repeat(6)}`;
export const PAPER = ['%PDF-1.4', '1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj', '2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj',
  '3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R>> endobj',
  '4 0 obj <</Length 32>> stream\n0 0.5 0.5 rg 20 20 160 60 re f \nendstream endobj', 'trailer <</Root 1 0 R>>', '%%EOF', ''].join('\n');

export const script = (...replies) => `replies:\n${replies.map((reply) => `- ${JSON.stringify(reply)}`).join('\n')}\n`;
export const calls = (text, ...asked) => ({ text, calls: asked.map(([tool, args]) => ({ tool, arguments: args })) });

export const AGENTS = {
  editor: () => calls('I will **fix** the greeting.', ['edit_file', { path: 'hello.txt', old: 'Hello', new: 'Grüezi' }]),
  writer: () => calls(NASTY, ['write_file', { path: 'new.txt', content: `${NASTY}\nline two\n` }]),
  lister: () => calls('Looking around.', ['execute_command', { command: 'ls -la' }]),
  remover: () => calls('Cleaning up.', ['execute_command', { command: "rm -rf 'a b'" }]),
  caller: () => calls('Calling.', ['http_request', { method: 'POST', url: 'https://example.org/a?b=c', body: '{"name": "M\\u00fcller"}' }]),
  table: () => calls('Writing rows.', ['write_rows', JSON.stringify({ note: 'NAME', rows: [{ a: 1, b: 'x' }, { a: 2, b: NASTY }] }).replace('NAME', 'M\\u00fcller')]),
  asker: () => calls('I wonder.', ['suspend', { reason: 'Two ways', question: 'Which way?', options: ['left', 'right'], data: { who: 'M\u00fcller', ways: [{ name: 'left', km: 1 }, { name: 'right', km: 2 }] } }]),
  former: () => calls('A form.', ['suspend', { reason: 'No details', question: 'Who comes?', resumeSchema: {
    type: 'object', required: ['guests', 'room'], additionalProperties: false,
    $defs: { Contact: { type: 'object', title: 'Contact', required: ['name'], properties: { name: { type: 'string', title: 'Name', description: 'As on the door.' } } } },
    properties: {
      room: { enum: ['Bern', 'Basel'], title: 'Room', default: 'Basel' },
      day: { type: 'string', format: 'date', title: 'Day' },
      contact: { $ref: '#/$defs/Contact' },
      meal: { title: 'Meal', oneOf: [{ const: 'v', title: 'Vegetarian' }, { const: 'meat' }] },
      arrives: { title: 'Arrival', anyOf: [{ type: 'string', format: 'date-time' }, { type: 'null' }], default: null },
      guests: { type: 'array', title: 'Guests', minItems: 1, items: { type: 'object', required: ['who'], properties: { who: { type: 'string', title: 'Who' }, age: { type: 'integer', minimum: 1, title: 'Age' } } } },
    },
  } }]),
  leader: () => calls('I hand it over.', ['hand_over', { message: 'List what is there' }]),
  picture: () => calls('A picture.', ['write_rows', { rows: [{ a: 1, b: 'y' }], picture: `data:image/png;base64,${PIXEL}` }]),
  files: () => calls('Three files.', ['write_rows', { files: [['dot.png', 'image/png', Buffer.from(PIXEL, 'base64')], ['list.csv', 'text/csv', LIST], ['paper.pdf', 'application/pdf', PAPER]]
    .map(([name, mimeType, bytes]) => ({ name, mimeType, data: Buffer.from(bytes).toString('base64') })) }]),
  drawer: () => calls('A drawing.', ['write_rows', { drawing: `data:image/svg+xml;base64,${Buffer.from(DRAWING).toString('base64')}`, file: { mimeType: 'image/svg+xml', data: Buffer.from(DRAWING).toString('base64') } }]),
  pair: () => calls('This one needs two of you.', ['pay', { command: 'echo paid' }]),
  tabler: () => calls('What is there:\n\n| file | size |\n|---|---|\n| a.txt | <b> |', ['execute_command', { command: 'ls' }]),
  waiter: () => calls('I need a word.', ['suspend', { reason: 'Nobody told me', question: 'Which name shall I use?' }]),
};

const TOOLS = 'edit_file, write_file, execute_command, http_request, write_rows, suspend, hand_over, pay';

/** Writes their configuration into a folder, with a workspace; `more` is what else stands in it. */
export function configure(folder, more = {}) {
  mkdirSync(join(folder, 'workspace'), { recursive: true });
  const names = Object.keys(AGENTS);
  for (const name of names) writeFileSync(join(folder, `${name}.yaml`), script(AGENTS[name](), { text: 'All **done**.' }));
  writeFileSync(join(folder, 'standfast.yaml'), `
llms:
${names.map((name) => `  ${name}: {type: scripted, script: ${name}.yaml}`).join('\n')}
${more.llms ?? ''}
session_stores: {main: {backend: sql, sql: {driver: sqlite, database: ./sessions.db}}}
agents:
${names.map((name) => `  ${name}: {llm: ${name}, session_store: main, tools: [${TOOLS}], task: {}${name === 'former' ? ', inboxes: [desk]' : ''}}`).join('\n')}
${more.agents ?? ''}
tools:
  edit_file: {type: edit_file}
  write_file: {type: write_file}
  execute_command: {type: command, requires_approval: true}
  http_request: {type: http_request}
  suspend: {type: suspend-for-input}
  hand_over: {type: agent, agent: lister, requires_approval: false}
  pay: {type: command, requires_approval: true, quorum: 2}
  write_rows: {type: external, url: 'http://127.0.0.1:9/', allowed_hosts: ['127.0.0.1:9'], requires_approval: true, description: Writes rows}
${more.tools ?? ''}
${more.rest ?? ''}
`);
  return join(folder, 'standfast.yaml');
}
