// A gate as the server shows it: what may run, with which arguments, and why not. What is done with it is `client.ts`.

import { Denied, Failed, Held, type NotAllowed, OutcomeUnknown } from './errors.js';

/** Where a gate stands. */
export type GateState = 'allowed' | 'held' | 'denied' | 'expired' | 'withdrawn' | 'started' | 'done' | 'outcome_unknown';

/** A gate, as the server shows it. `arguments` are those that may run, which an approver may have edited. */
export interface Gate {
  gate: string;
  state: GateState;
  tool: string;
  arguments: any;
  session: string;
  call: string;
  digest?: string;
  revision: number;
  hold?: string;
  url?: string;
  decision?: { allowed: boolean; by: string; at: string; reason?: string; rules: string[]; grant?: string; edited: boolean };
  outcome?: { ok: boolean; value: any };
  attempt?: number;
  /** Until when the outcome of a started call is awaited. */
  start_by?: string;
  poll_after_ms?: number;
  /** What to tell the model. */
  model_text: string;
}

/** What a gate is asked with. */
export interface GateRequest {
  tool: string;
  arguments: unknown;
  /** The agent's conversation. */
  session: string;
  /** What the agent calls the call: the same again, with the same arguments, is the same gate. */
  call: string;
  agent?: string;
  arguments_schema?: unknown;
  turn?: string;
  parent?: string;
  /** Why, in the agent's own words. */
  words?: string;
  context?: Array<{ text: string } | { diff: string } | { json: unknown } | { link: string }>;
  hints?: { readOnly?: boolean; destructive?: boolean; idempotent?: boolean; openWorld?: boolean };
  deadline?: string;
  on_deadline?: 'deny' | 'keep';
  wait_ms?: number;
}

/** Why the call must not start now; none when it may. A state that this version does not know is a no. */
export function refusal(gate: Gate): NotAllowed | undefined {
  switch (gate.state) {
    case 'allowed': return undefined;
    case 'held': return new Held(gate);
    case 'started': case 'outcome_unknown': return new OutcomeUnknown(gate);
    case 'done': return gate.outcome ? new Failed(gate) : new Denied(gate);
    default: return new Denied(gate);
  }
}

/** Whether the call ran and succeeded: then it does not run again, and `outcome.value` is what it returned. */
export function hasResult(gate: Gate): boolean {
  return gate.state === 'done' && gate.outcome?.ok === true;
}

/** The same value is the same text, whatever a checkpoint did to the order of keys: the digest is made of it. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, one) => one && typeof one === 'object' && !Array.isArray(one)
    ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))) : one) ?? 'null';
}

/** A result as JSON. What is none is described: a report is never lost because of what a tool returned. */
export function reportable(value: unknown): unknown {
  try {
    return JSON.parse(JSON.stringify(value) ?? 'null');
  } catch {
    return String(value);
  }
}
