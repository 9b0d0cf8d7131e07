// Mastra: tools that ask before they run.
//
//     const agent = new Agent({ …, tools: guardTools({ sendRefund }, { client, session }) });
//
// A held call suspends the run; Mastra's storage waits, not the process. Resuming decides nothing: the tool asks the server again, and so
// neither what a run is resumed with nor a predicate lets a call run. What a rule allows does not pause at all.

import type { Client } from './client.js';
import { Held } from './errors.js';
import { type Gate, toJson } from './gate.js';

export interface ApprovalOptions {
  client: Client;
  /** The agent's conversation. */
  session: string;
  /** How many milliseconds a tool may run before a person is asked what became of it. */
  lease?: number;
}

/** What is used of an agent. */
export interface SuspendingAgent {
  listSuspendedRuns(filter?: any): Promise<{ runs: Array<{ runId: string; toolCalls: Array<{ toolCallId?: string; suspendPayload?: any }> }> }>;
  resumeGenerate(data: any, options: any): Promise<any>;
}

/** The tools of an agent behind gates. They must not suspend by themselves. */
export function guardTools<T extends Record<string, any>>(tools: T, options: ApprovalOptions): T {
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, guardTool(name, tool, options)])) as T;
}

/** One tool behind a gate, as `name`. What the provider of the model executes is left as it is: nobody can stop it here. */
export function guardTool<T>(name: string, tool: T, { client, session, lease }: ApprovalOptions): T {
  const { execute } = tool as { execute?: (input: unknown, context: any) => Promise<unknown> };
  if (!execute) return tool;
  const guarded = async (input: unknown, context: any): Promise<unknown> => {
    const { toolCallId: call, suspend, suspendPayload } = context?.agent ?? {};
    if (!call) throw new Error(`${name}: a call without an id cannot be asked about`);
    // A resumed call is not parsed again, and may look different: what was asked about is what the gate says.
    let gate = suspendPayload?.standfast ? await client.look(suspendPayload.standfast) : await client.gate({ tool: name, arguments: input, session, call });
    if (gate.call !== call || gate.tool !== name || gate.session !== session) throw new Error(`${gate.gate} is the gate of another call`);
    const inner = { ...context, agent: { ...context.agent, resumeData: undefined, suspendPayload: undefined } };
    const run = async (approved: unknown): Promise<unknown> => {
      const result = await execute.call(tool, approved, inner);
      if (isInvalid(result)) throw new Error(result.message);
      return result;
    };
    try {
      return withNote(await client.run(gate, run, lease), gate);
    } catch (no) {
      // Anything else that must not run throws; Mastra makes an error for the model of it, whose message is the gate's `model_text`.
      if (!(no instanceof Held)) throw no;
      gate = no.gate;
    }
    return suspend({ standfast: gate.gate, hold: gate.hold, url: gate.url });
  };
  return Object.assign(Object.create(Object.getPrototypeOf(tool)), tool, { execute: guarded, suspendSchema: ANYTHING });
}

/** Mastra runs the calls of a turn one after another if a tool has a schema of what it suspends with; it cannot resume them otherwise. */
const ANYTHING = {
  '~standard': { version: 1, vendor: 'standfast', validate: (value: unknown) => ({ value }), jsonSchema: { input: () => ({}), output: () => ({}) } },
};

/** What became of suspended runs. */
export interface Settled {
  /** Calls that somebody still has to decide about. */
  held: Gate[];
  /** What the runs that went on said. */
  outputs: any[];
}

/**
 * Resumes the suspended runs of an agent about whose calls somebody has decided; waits up to `timeout` milliseconds for each call. `filter` is
 * that of `listSuspendedRuns`. It works in any process that has the same storage. The calls of a turn are asked about one after another: a run
 * that went on may be suspended again.
 */
export async function settle(
  agent: SuspendingAgent, { client, timeout = 0, ...filter }: { client: Client; timeout?: number; [filter: string]: any },
): Promise<Settled> {
  const settled: Settled = { held: [], outputs: [] };
  for (const { runId, toolCalls } of (await agent.listSuspendedRuns(filter)).runs) {
    for (const { toolCallId, suspendPayload } of toolCalls.filter((call) => call.suspendPayload?.standfast)) {
      const gate = await client.decided(suspendPayload.standfast, timeout);
      if (gate.state === 'held') settled.held.push(gate);
      else settled.outputs.push(await agent.resumeGenerate({ standfast: gate.gate }, { runId, toolCallId }));
    }
  }
  return settled;
}

/** How Mastra says that arguments do not fit the schema. */
function isInvalid(result: any): result is { message: string } {
  return result?.error === true && 'validationErrors' in result;
}

function withNote(result: unknown, gate: Gate): unknown {
  if (!gate.decision?.edited || typeof result !== 'string') return result;
  return `${result}\n\n(An approver changed the arguments; it ran with ${toJson(gate.arguments)})`;
}
