// The official client for TypeScript that speaks the protocol of 2026-07-28 where the server does. Told an address; calls `pay` there and
// answers what it is asked: three euros. What it was asked, and what came of it, are lines of JSON.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [address, mode = 'url'] = process.argv.slice(2);
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const client = new Client(
  { name: 'modern', version: '1.0.0' },
  {
    versionNegotiation: { mode: 'auto' },
    capabilities: { elicitation: mode === 'url' ? { url: {}, form: {} } : { form: {} } },
  },
);
client.setRequestHandler('elicitation/create', ({ params }) => {
  say({ asked: params });
  return params.message.includes('waits for approval')
    ? { action: 'accept', content: params.mode === 'url' ? undefined : {} }
    : { action: 'accept', content: { cents: 300 } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(address)));
say({ version: client.getNegotiatedProtocolVersion?.() ?? null, tools: (await client.listTools()).tools.map(({ name }) => name) });
try {
  say({ result: await client.callTool({ name: 'pay', arguments: { to: 'Ann' } }, { timeout: 120_000 }) });
} catch (error) {
  say({ error: String(error.message ?? error) });
}
process.exit(0);
