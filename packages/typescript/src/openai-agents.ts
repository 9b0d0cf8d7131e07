// OpenAI Agents: tools that ask before they run.
//
//     const agent = new Agent({ name: 'billing', tools: [guard(sendRefund, { client, session })] });
//
// A guarded tool always interrupts the run (`needsApproval` is the constant true, no predicate that is evaluated again). The decision is the
// server's: `settle` carries it into the state, and the tool asks again when it is invoked, which runs what was approved.

import type { FunctionTool, RunState } from '@openai/agents-core';
import type { Client } from './client.js';
import { NotAllowed } from './errors.js';
import { type Gate, toJson } from './gate.js';

export interface ApprovalOptions {
  client: Client;
  /** The agent's conversation. */
  session: string;
  /** How many milliseconds a tool may run before a person is asked what became of it. */
  lease?: number;
}

const sessions = new WeakMap<object, string>();

/** The tool behind a gate. Give it `errorFunction: null`, so that its errors are reported as errors and not as words. */
export function guard<T extends FunctionTool<any, any, any>>(tool: T, { client, session, lease }: ApprovalOptions): T {
  const invoke: T['invoke'] = async (context, input, details) => {
    const call = details?.toolCall?.callId;
    if (!call) throw new Error(`${tool.name}: a call without an id cannot be asked about`);
    const gate = await client.gate({ tool: tool.name, arguments: parsed(input), session, call });
    try {
      const result = await client.run(gate, (approved) => tool.invoke(context, gate.decision?.edited ? toJson(approved) : input, details), lease);
      return withNote(result, gate);
    } catch (no) {
      if (no instanceof NotAllowed) return no.modelText;
      throw no;
    }
  };
  const guarded = { ...tool, needsApproval: async () => true, invoke };
  sessions.set(guarded, session);
  return guarded;
}

/** Carries what was decided into a state: waits up to `timeout` milliseconds for each call. Returns the gates that still wait. */
export async function settle(client: Client, state: RunState<any, any>, { timeout = 0 } = {}): Promise<Gate[]> {
  const held: Gate[] = [];
  for (const item of state.getInterruptions()) {
    const tool = item.agent.tools.find((one) => one.type === 'function' && one.name === item.name);
    const session = tool && sessions.get(tool);
    if (!tool || !session || item.rawItem.type !== 'function_call') continue;
    let gate = await client.gate({ tool: tool.name, arguments: parsed(item.rawItem.arguments), session, call: item.rawItem.callId });
    if (gate.state === 'held' && timeout > 0) gate = await client.decided(gate, timeout);
    if (gate.state === 'held') held.push(gate);
    else if (['denied', 'expired', 'withdrawn'].includes(gate.state)) state.reject(item, { message: gate.model_text });
    else state.approve(item);
  }
  return held;
}

/** What is no JSON is asked about as the text that it is. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text || '{}');
  } catch {
    return text;
  }
}

function withNote<R>(result: R, gate: Gate): R | string {
  if (!gate.decision?.edited || typeof result !== 'string') return result;
  return `${result}\n\n(An approver changed the arguments; it ran with ${toJson(gate.arguments)})`;
}
