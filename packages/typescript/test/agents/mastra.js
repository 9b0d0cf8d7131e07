// An agent of Mastra: `start|resume|impatient FOLDER`. Prints `held HOLD`, or `said WORDS` and `recorded TYPES` of outputs.

import { join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { createTool } from '@mastra/core/tools';
import { LibSQLStore } from '@mastra/libsql';
import { Client } from '@standfast/sdk';
import { guardTools, settle } from '@standfast/sdk/mastra';
import { ask, command, folder, modelUrl, parameters, sendRefund, session, tell } from './agent.js';

const client = new Client({ agent: 'billing' });
// Mastra parses what the model says, but not again when a call is resumed.
const inputSchema = parameters.extend({ note: parameters.shape.order.default('none') });
const refund = createTool({ id: 'send_refund', description: 'Sends a refund', inputSchema, execute: sendRefund });
const agent = new Agent({
  id: 'billing', name: 'billing', instructions: 'Refund.', model: createOpenAICompatible({ name: 'scripted', baseURL: modelUrl })('m'),
  tools: guardTools({ send_refund: refund }, { client, session }),
});
new Mastra({ agents: { agent }, storage: new LibSQLStore({ id: 'storage', url: `file:${join(folder, 'mastra.db')}` }), logger: false });

let outputs = [];
if (command === 'start') outputs = [await agent.generate(ask)];
if (command === 'resume') ({ outputs } = await settle(agent, { client, timeout: 10_000 }));
if (command === 'impatient') {
  // Somebody resumes what nobody approved at the server.
  for (const { runId } of (await agent.listSuspendedRuns()).runs) outputs.push(await agent.resumeGenerate({ approved: true }, { runId }));
}
const { held } = await settle(agent, { client });
const parts = outputs.flatMap((output) => output.steps ?? []).flatMap((step) => step.content).filter((part) => part.type === 'tool-result');
tell(held, outputs.at(-1)?.text, [...new Set(parts.map((part) => part.output.type ?? 'value'))].join(' '));
process.exit(0);
