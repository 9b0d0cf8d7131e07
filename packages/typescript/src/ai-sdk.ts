// Vercel AI SDK, versions 6 and 7: tools that ask before they run.
//
//     generateText({ model, messages, tools: guardTools(tools, { client, session }) })
//
// A guarded tool always asks for approval (`needsApproval` is the constant true, no predicate that is evaluated again). The decision is the
// server's: `answers` carries it into the messages, and the tool asks again when it is executed, which runs what was approved. So neither an
// answer in the messages nor `toolApproval`, which goes before `needsApproval` in version 7, lets a call run that nobody approved.

import type { ModelMessage, Tool, ToolModelMessage, ToolSet } from 'ai';
import type { Client } from './client.js';
import { type Gate, toJson } from './gate.js';

export interface ApprovalOptions {
  client: Client;
  /** The agent's conversation. */
  session: string;
  /** How many milliseconds a tool may run before a person is asked what became of it. */
  lease?: number;
}

/** The tools behind gates. Those that the model's provider executes are left as they are: nobody can stop them here. */
export function guardTools<T extends ToolSet>(tools: T, options: ApprovalOptions): T {
  return Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, guardTool(name, tool, options)])) as T;
}

/** One tool behind a gate. */
export function guardTool<T extends Tool<any, any>>(name: string, tool: T, { client, session, lease }: ApprovalOptions): T {
  const execute = tool.execute;
  if (!execute) return tool;
  const guarded = async (input: unknown, options: any): Promise<unknown> => {
    const gate = await client.gate({ tool: name, arguments: input, session, call: options.toolCallId });
    // What must not run throws; the SDK makes an error for the model of it, whose message is the gate's `model_text`.
    return withNote(await client.run(gate, async (approved) => last(await execute(gate.decision?.edited ? approved : input, options)), lease), gate);
  };
  return { ...tool, needsApproval: true, execute: guarded };
}

/** What a conversation waits for, and the message that answers it. */
export interface Answers {
  /** Calls that somebody still has to decide about. */
  held: Gate[];
  /** What to add to the messages when nothing is held; none when nothing was asked. */
  message?: ToolModelMessage;
}

/**
 * Asks the server about every approval that the messages ask for and do not have. Waits up to `timeout` milliseconds for each. When `held` is
 * empty, add `message` to the messages and call the model again; until then keep the messages, and nothing else.
 */
export async function answers(
  messages: ModelMessage[], { client, session, timeout = 0 }: ApprovalOptions & { timeout?: number },
): Promise<Answers> {
  const parts: any[] = messages.flatMap((message): any[] => (Array.isArray(message.content) ? message.content : []));
  const answered = new Set(parts.filter((part) => part.type === 'tool-approval-response').map((part) => part.approvalId));
  const calls = new Map(parts.filter((part) => part.type === 'tool-call').map((part) => [part.toolCallId, part]));
  const open = parts.filter((part) => part.type === 'tool-approval-request' && !answered.has(part.approvalId));
  const content: ToolModelMessage['content'] = [];
  const held: Gate[] = [];
  for (const { approvalId, toolCallId } of open) {
    const { toolName, input } = calls.get(toolCallId) ?? {};
    let gate = await client.gate({ tool: toolName, arguments: input, session, call: toolCallId });
    if (gate.state === 'held' && timeout > 0) gate = await client.decided(gate, timeout);
    const denied = ['denied', 'expired', 'withdrawn'].includes(gate.state);
    if (gate.state === 'held') held.push(gate);
    else content.push({ type: 'tool-approval-response', approvalId, approved: !denied, ...(denied ? { reason: gate.model_text } : {}) });
  }
  return { held, message: held.length === 0 && content.length > 0 ? { role: 'tool', content } : undefined };
}

/** A tool may stream; what it says last is its result. */
async function last(output: unknown): Promise<unknown> {
  if (!output || typeof output !== 'object' || !(Symbol.asyncIterator in output)) return output;
  let result: unknown;
  for await (const one of output as AsyncIterable<unknown>) result = one;
  return result;
}

function withNote(result: unknown, gate: Gate): unknown {
  if (!gate.decision?.edited || typeof result !== 'string') return result;
  return `${result}\n\n(An approver changed the arguments; it ran with ${toJson(gate.arguments)})`;
}
