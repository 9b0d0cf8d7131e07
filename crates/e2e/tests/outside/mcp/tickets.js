// Tickets over streamable HTTP, made with the official SDK, for whoever brings the token. Told its port, a folder and that token.
//
// Each ticket that is closed or deleted is a line in `tickets.txt`, with the name by which the caller tells the same call again.

import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';

import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const [port, folder, token] = process.argv.slice(2);
const inputSchema = { type: 'object', properties: { id: { type: 'integer' }, words: { type: 'string' } } };
const readOnlyHint = true;
const tools = [
  { name: 'search', description: 'Finds tickets.', inputSchema, annotations: { readOnlyHint } },
  { name: 'get_ticket', description: 'Reads a ticket.', inputSchema, annotations: { readOnlyHint } },
  { name: 'close_ticket', description: 'Closes a ticket.', inputSchema },
  { name: 'delete_ticket', description: 'Deletes a ticket.', inputSchema },
];

createServer(async (request, response) => {
  if (request.headers.authorization !== `Bearer ${token}`) return response.writeHead(403).end();
  const server = new Server({ name: 'tickets', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
  server.setRequestHandler(CallToolRequestSchema, ({ params: { name, arguments: args, _meta } }) => {
    const call = _meta?.['standfast/call'];
    if (name.endsWith('e_ticket')) appendFileSync(join(folder, 'tickets.txt'), `${name} ${args.id} ${call}\n`);
    return { content: [{ type: 'text', text: `${name} done` }] };
  });
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await server.connect(transport);
  return transport.handleRequest(request, response);
}).listen(Number(port), '127.0.0.1');
