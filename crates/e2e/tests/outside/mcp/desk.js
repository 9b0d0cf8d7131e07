// The official client for TypeScript, as a pipe: a line `{"id", "name", "arguments"}` calls a tool, `{"id", "list": true}` lists
// them; what comes of it is a line `{"id", "result"}` or `{"id", "error"}`. Told where the server is: an address, or a command.
import { createInterface } from 'node:readline';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [way, where, ...more] = process.argv.slice(2);
const headers = process.env.DESK_KEY ? { authorization: `Bearer ${process.env.DESK_KEY}` } : {};
const transport = way === 'http'
  ? new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } })
  : new StdioClientTransport({ command: where, args: more, env: process.env });
const client = new Client({ name: 'desk', version: '1.0.0' });
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

try {
  await client.connect(transport);
  say({ id: 'hello', result: { server: client.getServerVersion(), instructions: client.getInstructions() } });
} catch (error) {
  say({ id: 'hello', error: String(error.message ?? error) });
  process.exit(1);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, list, name, arguments: args } = JSON.parse(line);
  const told = [];
  const asked = list
    ? client.listTools()
    : client.callTool({ name, arguments: args }, undefined, { onprogress: ({ message }) => told.push(message), timeout: 60_000 });
  asked.then((result) => say({ id, result, told }), (error) => say({ id, error: String(error.message ?? error) }));
}
