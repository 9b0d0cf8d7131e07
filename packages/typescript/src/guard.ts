// `guarded`: a tool that asks before it runs. For loops of your own; frameworks have adapters.

import type { Client } from './client.js';
import type { GateRequest } from './gate.js';

export interface GuardOptions {
  client: Client;
  /** The agent's conversation. */
  session: string;
  /** The name of the tool. */
  name: string;
  /** How many milliseconds to wait for a decision before `Held` is thrown; without end by default. */
  wait?: number;
  /** How many milliseconds the tool may run before a person is asked what became of it. */
  lease?: number;
}

/** A tool behind a gate. */
export interface Guarded<A, R> {
  /** Runs a call without an id of its own: each one is a new question, and a restart does not find it again. */
  (args: A): Promise<R>;
  /** Runs the call that the model named `call`. After a restart the same call finds its gate, and what it returned if it ran. */
  run(call: string, args: A, more?: Partial<GateRequest>): Promise<R>;
}

/** Makes a function ask before it runs. It runs with the arguments that were approved, at most once for each call id. */
export function guarded<A, R>(tool: (args: A) => Promise<R> | R, { client, session, name, wait, lease }: GuardOptions): Guarded<A, R> {
  const run = async (call: string, args: A, more: Partial<GateRequest> = {}): Promise<R> => {
    let gate = await client.gate({ ...more, tool: name, arguments: args, session, call });
    if (gate.state === 'held') gate = await client.decided(gate, wait);
    return client.run<R>(gate, (approved: A) => tool(approved), lease);
  };
  return Object.assign((args: A) => run(`call-${crypto.randomUUID()}`, args), { run });
}
