// The official client for TypeScript uses everything that the official everything server has, and writes down what it got: one line of
// JSON. Told where the server is: `http ADDRESS`, or `stdio COMMAND ...`.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [way, where, ...more] = process.argv.slice(2);
const headers = process.env.DESK_KEY ? { authorization: `Bearer ${process.env.DESK_KEY}` } : {};
const client = new Client(
  { name: 'through', version: '1.0.0' },
  { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } },
);
const heard = { sampled: [], elicited: [], roots: 0, logged: 0, updated: 0 };
client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
  heard.sampled.push(params.messages[0].content);
  return { model: 'none', role: 'assistant', content: { type: 'text', text: 'sampled é \u2028' } };
});
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  heard.elicited.push(params.message);
  return { action: 'accept', content: { name: 'Ann', check: true, integer: 42, number: 3.5 } };
});
client.setRequestHandler(ListRootsRequestSchema, () => {
  heard.roots += 1;
  return { roots: [{ uri: 'file:///srv', name: 'srv' }] };
});
client.setNotificationHandler(LoggingMessageNotificationSchema, () => {
  heard.logged += 1;
});
client.setNotificationHandler(ResourceUpdatedNotificationSchema, () => {
  heard.updated += 1;
});

await client.connect(way === 'http'
  ? new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers } })
  : new StdioClientTransport({ command: where, args: more, stderr: 'ignore' }));
const got = {};
const note = async (name, work) => {
  try {
    got[name] = await work;
  } catch (error) {
    got[name] = { failed: String(error.message ?? error) };
  }
};
got.server = [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()];
await note('ping', client.ping());
// What is listed depends on the client's capabilities: the server looks at its roots first.
const until = async (done) => {
  for (let no = 0; no < 600 && !done(); no += 1) await new Promise((again) => setTimeout(again, 50));
};
await until(() => heard.roots > 0);
await note('tools', client.listTools());
await note('prompts', client.listPrompts());
await note('prompt', client.getPrompt({ name: 'args-prompt', arguments: { city: 'Wien', state: '' } }));
await note('no prompt', client.getPrompt({ name: 'nothing' }));
await note('resources', client.listResources());
await note('templates', client.listResourceTemplates());
await note('resource', client.readResource({ uri: 'demo://resource/static/document/features.md' }));
await note('complete', client.complete({
  ref: { type: 'ref/prompt', name: 'completable-prompt' },
  argument: { name: 'department', value: 'E' },
}));
await note('level', client.setLoggingLevel('debug'));
await note('subscribe', client.subscribeResource({ uri: 'demo://resource/dynamic/text/1' }));
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, { timeout: 60_000, ...options });
await note('echo', call('echo', { message: '9007199254740993 \u2028 é' }));
await note('sum', call('get-sum', { a: 1, b: 2.5 }));
await note('wrong', call('get-sum', { a: 'x' }));
await note('no tool', call('nothing', {}));
await note('image', call('get-tiny-image', {}));
await note('annotated', call('get-annotated-message', { messageType: 'error', includeImage: true }));
await note('structured', call('get-structured-content', { location: 'New York' }));
await note('links', call('get-resource-links', { count: 3 }));
await note('roots', call('get-roots-list', {}));
await note('sampling', call('trigger-sampling-request', { prompt: 'hello', maxTokens: 10 }));
await note('elicitation', call('trigger-elicitation-request', {}));
const steps = [];
await note('long', call('trigger-long-running-operation', { duration: 1, steps: 4 }, { onprogress: (step) => steps.push(step) }));
await note('logging on', call('toggle-simulated-logging', {}));
await until(() => heard.logged > 0);
await note('updates on', call('toggle-subscriber-updates', {}));
await until(() => heard.updated > 0);
// Taken back while it runs.
const stop = new AbortController();
const taken = call('trigger-long-running-operation', { duration: 30, steps: 300 }, {
  signal: stop.signal,
  onprogress: () => stop.abort('enough'),
});
await note('taken back', taken);
// The server sends some messages twice, and does not say how often.
const once = (list) => [...new Set(list.map((item) => JSON.stringify(item)))];
// The last one races the result.
got.steps = once(steps.filter(({ progress, total }) => progress < total));
heard.sampled = once(heard.sampled);
heard.elicited = once(heard.elicited);
got.heard = { ...heard, logged: heard.logged > 0, updated: heard.updated > 0, roots: heard.roots > 0 };
// Ids of sessions are random.
const text = JSON.stringify(got).replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'ID');
process.stdout.write(`${text}\n`);
process.exit(0);
