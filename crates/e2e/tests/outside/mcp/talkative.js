// An MCP server over streamable HTTP that does what gateways get wrong, made with the official SDK. Told its port and a folder.
//
// `go.txt` in the folder lets `stream` end; `cancelled.txt` has what was taken back, `ran.txt` the arguments of `pay` as they came.

import { appendFileSync, existsSync } from 'node:fs';
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';

import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema, CreateMessageResultSchema, GetPromptRequestSchema, ListPromptsRequestSchema, ListResourcesRequestSchema,
  ListToolsRequestSchema, ReadResourceRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [port, folder] = process.argv.slice(2);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const tool = (name) => ({
  name,
  title: `The ${name}`,
  description: `é \u2028 ${name}`,
  inputSchema: { type: 'object', properties: { who: { type: 'string' } } },
  annotations: { title: name, readOnlyHint: true, openWorldHint: false, 'x-own': 1 },
  icons: [{ src: 'data:image/png;base64,AA==', mimeType: 'image/png', sizes: ['48x48'] }],
  _meta: { 'example/own': { deep: [1.5, null] } },
});
// Neither sorted nor in one page.
const pages = { '': { tools: ['stream', 'ask', 'pay'], next: 'two' }, two: { tools: ['hang', 'change', 'answer'] } };

const started = () => {
  const capabilities = { tools: { listChanged: true }, prompts: {}, resources: {}, logging: {} };
  const server = new Server({ name: 'talkative', version: '1' }, { capabilities, instructions: 'Be kind.' });
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const { tools, next } = pages[params?.cursor ?? ''];
    return { tools: tools.map(tool), ...(next ? { nextCursor: next } : {}), _meta: { page: params?.cursor ?? '' } };
  });
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: [{ name: 'p', description: 'A prompt' }] }));
  server.setRequestHandler(GetPromptRequestSchema, () => ({ messages: [{ role: 'user', content: { type: 'text', text: 'prompted' } }] }));
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [{ uri: 'x://r', name: 'r' }] }));
  server.setRequestHandler(ReadResourceRequestSchema, () => ({ contents: [{ uri: 'x://r', text: 'read' }] }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal, sendNotification, sendRequest }) => {
    const { who } = params.arguments ?? {};
    const progressToken = params._meta?.progressToken;
    if (params.name === 'stream') {
      await sendNotification({ method: 'notifications/progress', params: { progressToken, progress: 0.5, message: `first ${who}` } });
      await sendNotification({ method: 'notifications/message', params: { level: 'info', data: who } });
      for (let no = 0; no < 1200 && !existsSync(join(folder, 'go.txt')); no += 1) await sleep(50);
    }
    if (params.name === 'ask') {
      const asked = { messages: [{ role: 'user', content: { type: 'text', text: who } }], maxTokens: 5 };
      const { content } = await sendRequest({ method: 'sampling/createMessage', params: asked }, CreateMessageResultSchema);
      return { content: [content] };
    }
    if (params.name === 'hang') {
      await sendNotification({ method: 'notifications/progress', params: { progressToken, progress: 0.1 } });
      await new Promise((done) => signal.addEventListener('abort', done));
      appendFileSync(join(folder, 'cancelled.txt'), `${who}\n`);
    }
    if (params.name === 'change') await server.sendToolListChanged();
    if (params.name === 'pay') appendFileSync(join(folder, 'ran.txt'), `${JSON.stringify(params.arguments)}\n`);
    return { content: [{ type: 'text', text: `${params.name} ${who}` }], _meta: { saw: params._meta ?? null } };
  });
  return server;
};

const sessions = new Map();
createServer(async (request, response) => {
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
