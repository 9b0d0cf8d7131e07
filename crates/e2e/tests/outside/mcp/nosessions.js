// The official client for TypeScript that speaks the protocol of 2026-07-28 and nothing older. Told the address of an everything server;
// what it got there is lines of JSON, and what it is asked it answers.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const client = new Client(
  { name: 'nosessions', version: '1.0.0' },
  {
    versionNegotiation: { mode: { pin: '2026-07-28' } },
    capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} },
  },
);
client.setRequestHandler('elicitation/create', ({ params }) => {
  say({ asked: params.message });
  return { action: 'accept', content: params.message.includes('waits for approval') ? {} : { name: 'Ann', check: true, integer: 42, number: 3.5 } };
});
client.setRequestHandler('sampling/createMessage', ({ params }) => {
  say({ sampled: params.messages[0].content.text });
  return { model: 'none', role: 'assistant', content: { type: 'text', text: 'sampled' } };
});
client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///srv', name: 'srv' }] }));
const updated = new Promise((resolve) => {
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => resolve(params.uri));
});
const call = (name, args, options) => client.callTool({ name, arguments: args }, { timeout: 120_000, ...options });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const tools = (await client.listTools()).tools.map(({ name }) => name);
say({ version: client.getNegotiatedProtocolVersion?.(), echo: tools.includes('echo'), instructions: Boolean(client.getInstructions()) });
say((await call('echo', { message: '9007199254740993 \u2028 é' })).content[0]);
say((await call('get-structured-content', { location: 'New York' })).structuredContent);
say((await client.getPrompt({ name: 'args-prompt', arguments: { city: 'Wien', state: '' } })).messages[0].content);
say({ read: (await client.readResource({ uri: 'demo://resource/static/document/features.md' })).contents[0].mimeType });
const steps = [];
await call('trigger-long-running-operation', { duration: 1, steps: 4 }, { onprogress: ({ total }) => void steps.push(total) });
say({ progress: steps.includes(4) });
say({ sampling: (await call('trigger-sampling-request', { prompt: 'hello', maxTokens: 10 })).content.some(({ text }) => text?.includes('sampled')) });
say({ elicited: (await call('trigger-elicitation-request', {})).content.some(({ text }) => text?.includes('Ann')) });
const uri = 'demo://resource/dynamic/text/1';
const listening = await client.listen({ resourceSubscriptions: [uri] });
await call('toggle-subscriber-updates', {});
say({ updated: (await updated) === uri });
await listening.close();
say({ env: (await call('get-env', {})).content[0].text.includes('PATH') });
process.exit(0);
