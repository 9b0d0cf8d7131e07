// An MCP server over streamable HTTP that a gateway stands in front of, made with the official SDK. Told its port and a folder.
//
// Each call of `write` leaves a line in `ran.txt`; what every request brought along stands in `headers.txt`. A call with `how: "hang"`
// is answered once there is a file `go.txt`.

import { appendFileSync, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';

import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [port, folder] = process.argv.slice(2);
const inputSchema = { type: 'object', properties: { how: { type: 'string' }, n: {} } };
const tools = [
  { name: 'write', description: 'Writes a line.', inputSchema, annotations: { destructiveHint: true } },
  { name: 'read', description: 'Reads the lines.', inputSchema, annotations: { readOnlyHint: true } },
];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const started = () => {
  const server = new Server({ name: 'upstream', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }) => {
    const { how, n } = params.arguments ?? {};
    if (params.name === 'write') appendFileSync(join(folder, 'ran.txt'), `${how}\n`);
    for (let no = 0; how === 'hang' && no < 1200 && !existsSync(join(folder, 'go.txt')); no += 1) await sleep(50);
    if (how === 'die') process.exit(3);
    return { content: [{ type: 'text', text: `${params.name} ${how} ${JSON.stringify(n)}` }] };
  });
  return server;
};

const sessions = new Map();
createServer(async (request, response) => {
  appendFileSync(join(folder, 'headers.txt'), `${JSON.stringify(request.headers)}\n`);
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) return known.handleRequest(request, response);
  if (request.headers['mcp-session-id']) return response.writeHead(404).end();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await started().connect(transport);
  return transport.handleRequest(request, response);
}).listen(Number(port), '127.0.0.1');
