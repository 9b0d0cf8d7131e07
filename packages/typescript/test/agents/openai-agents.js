// An agent of OpenAI Agents: `start|resume|impatient FOLDER`. Prints `held HOLD`, or `said WORDS` and `recorded true|false`.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Agent, OpenAIChatCompletionsModel, run, RunState, setTracingDisabled, tool } from '@openai/agents';
import { Client } from '@standfast/sdk';
import { guard, settle } from '@standfast/sdk/openai-agents';
import OpenAI from 'openai';
import { ask, command, folder, modelUrl, parameters, sendRefund, session, tell } from './agent.js';

setTracingDisabled(true);
const kept = join(folder, 'state.json');
const client = new Client({ agent: 'billing' });
const model = new OpenAIChatCompletionsModel(new OpenAI({ baseURL: modelUrl, apiKey: 'none' }), 'm');
const refund = tool({ name: 'send_refund', description: 'Sends a refund', parameters, execute: sendRefund, errorFunction: null });
const agent = new Agent({ name: 'billing', model, tools: [guard(refund, { client, session })] });

const state = command === 'start' ? undefined : await RunState.fromString(agent, readFileSync(kept, 'utf8'));
if (command === 'resume') await settle(client, state, { timeout: 10_000 });
// Somebody approves in the state what nobody approved at the server.
if (command === 'impatient') for (const item of state.getInterruptions()) state.approve(item);
let result = await run(agent, state ?? ask);
if (command === 'impatient') {
  if (!result.finalOutput.includes('Not executed')) throw new Error(result.finalOutput);
  tell(await settle(client, await RunState.fromString(agent, readFileSync(kept, 'utf8'))));
} else {
  if (result.interruptions.length > 0) writeFileSync(kept, result.state.toString());
  const held = await settle(client, result.state);
  // What a rule denies waits for nobody.
  if (result.interruptions.length > held.length) result = await run(agent, result.state);
  tell(held, result.finalOutput, result.state._context.isToolApproved({ toolName: 'send_refund', callId: 'call_1' }));
}
