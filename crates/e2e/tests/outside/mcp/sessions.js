// The official client for TypeScript of before 2026-07-28, which knows sessions and nothing newer. Told an address; what it got there is
// lines of JSON, and what it is asked it answers: three euros.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, LoggingMessageNotificationSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const client = new Client({ name: 'sessions', version: '1.0.0' }, { capabilities: { elicitation: {} } });
const logged = [];
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void logged.push(params.data));
const updated = new Promise((resolve) => {
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri));
});
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  say({ asked: params.message });
  return params.message.includes('waits for approval') ? { action: 'accept', content: {} } : { action: 'accept', content: { cents: 300 } };
});
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
const tools = (await client.listTools()).tools.map(({ name }) => name);
say({ server: client.getServerVersion().name, instructions: client.getInstructions(), tools, session: Boolean(transport.sessionId) });
await client.ping();
await client.setLoggingLevel('debug');
const [{ uri }] = (await client.listResources()).resources;
say({ note: (await client.readResource({ uri })).contents[0].text });
const where = await client.callTool({ name: 'where', arguments: { region: 'Köln' } });
// What it logs may come by another stream than the result.
while (logged.length === 0) await new Promise((again) => setTimeout(again, 50));
say({ where: where.content[0].text, logged });
await client.subscribeResource({ uri });
// The subscription is there once the server has heard of it.
const touched = setInterval(() => client.callTool({ name: 'touch', arguments: {} }).catch(() => {}), 200);
say({ updated: await updated });
clearInterval(touched);
say({ result: await client.callTool({ name: 'pay', arguments: { to: 'Ann' } }, undefined, { timeout: 120_000 }) });
await transport.terminateSession();
process.exit(0);
