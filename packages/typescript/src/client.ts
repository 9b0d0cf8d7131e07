// The HTTP client, over the global `fetch`. Knows requests and answers; frameworks are in modules of their own.

import { Problem, StandfastError } from './errors.js';
import { type Gate, type GateRequest, hasResult, refusal, reportable, toJson } from './gate.js';

/** The longest that the server lets one request wait, in milliseconds. */
const LONGEST_WAIT = 55_000;

/** When something is sent again that nobody answered, or that was answered with one of these; in milliseconds. */
const PAUSES = [200, 500, 1000, 2000, 4000];
const NOT_NOW = [429, 502, 503, 504];

export interface ClientOptions {
  /** `STANDFAST_URL` unless given. */
  url?: string;
  /** `STANDFAST_KEY` unless given. */
  key?: string;
  /** What the agent is called in gates. */
  agent?: string;
  fetch?: typeof fetch;
  pauses?: number[];
}

/** A call that runs: run exactly `arguments`. */
export interface Started {
  gate: Gate;
  attempt: number;
  arguments: any;
}

export type Outcome =
  | { status: 'succeeded'; result?: unknown }
  | { status: 'failed' | 'unknown'; error?: unknown }
  | { status: 'not_executed' };

export interface Hold { id: string; state: string; kind: string; tool?: string; [member: string]: any }
export interface Run { id: string; status: string; holds: Hold[]; [member: string]: any }
export type Resolution = { reason?: string; value?: unknown; arguments?: unknown; digest?: string; revision?: number; wait?: 'settled' | 'accepted' };

/** A Standfast server. */
export class Client {
  readonly url: string;
  readonly agent: string;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;
  readonly #pauses: number[];

  constructor(options: ClientOptions = {}) {
    const environment = globalThis.process?.env ?? {};
    const key = options.key ?? environment.STANDFAST_KEY;
    this.url = (options.url ?? environment.STANDFAST_URL ?? 'http://127.0.0.1:8080').replace(/\/+$/, '');
    this.agent = options.agent ?? 'agent';
    this.#headers = key ? { authorization: `Bearer ${key}` } : {};
    this.#fetch = options.fetch ?? fetch;
    this.#pauses = options.pauses ?? PAUSES;
  }

  /** Opens a gate, or finds the one of the same session, call and arguments. */
  gate(request: GateRequest): Promise<Gate> {
    return this.#ask('POST', '/gates', { agent: this.agent, ...request });
  }

  /** Gates for the calls of one turn: all of them are there afterwards, or none. */
  async gates(requests: GateRequest[]): Promise<Gate[]> {
    const gates = requests.map((one) => ({ agent: this.agent, ...one }));
    return (await this.#ask<{ gates: Gate[] }>('POST', '/gates/batch', { gates })).gates;
  }

  /** A gate by its id, as it is. */
  look(gate: string): Promise<Gate> {
    return this.#ask('GET', `/gates/${encodeURIComponent(gate)}`);
  }

  /**
   * The gate as soon as it is decided; as it is after so many milliseconds, without end by default. Giving up leaves it open. A server that is
   * away, however long, is waited for like a decision.
   */
  async decided(gate: Gate | string, timeout = Infinity, signal?: AbortSignal): Promise<Gate> {
    const id = encodeURIComponent(typeof gate === 'string' ? gate : gate.gate);
    const until = Date.now() + timeout;
    for (;;) {
      const wait = Math.floor(Math.max(0, Math.min(until - Date.now(), LONGEST_WAIT)));
      try {
        const now = await this.#ask<Gate>('GET', `/gates/${id}?wait_ms=${wait}`, undefined, { signal });
        if (now.state !== 'held' || Date.now() >= until) return now;
      } catch (error) {
        const away = error instanceof Problem ? NOT_NOW.includes(error.status) : error instanceof StandfastError;
        if (!away || signal?.aborted || Date.now() >= until) throw error;
      }
    }
  }

  /** Says that the call begins. It is sent once: after a lost answer nobody knows whether the call may run, and so it does not. */
  async start(gate: Gate, lease?: number): Promise<Started> {
    const no = refusal(gate);
    if (no) throw no;
    const body = { digest: gate.digest, lease_ms: lease };
    try {
      const { attempt } = await this.#ask<{ attempt: number }>('POST', `/gates/${gate.gate}/start`, body, { once: true });
      return { gate, attempt, arguments: gate.arguments };
    } catch (problem) {
      // Decided otherwise in between: by a stricter policy, say.
      throw (problem instanceof Problem && problem.kind === 'wrong-state' && refusal(await this.look(gate.gate))) || problem;
    }
  }

  /** Reports what came of a call. */
  outcome(gate: Gate, attempt: number | undefined, outcome: Outcome): Promise<Gate> {
    return this.#ask('POST', `/gates/${gate.gate}/outcome`, { attempt, ...outcome });
  }

  /** Nobody wants the call any more: its hold closes. */
  withdraw(gate: Gate, reason: 'cancelled' | 'decided_elsewhere' | 'superseded' = 'cancelled'): Promise<Gate> {
    return this.#ask('POST', `/gates/${gate.gate}/withdraw`, { reason });
  }

  /**
   * What the call returns: runs it if it may run, hands out what is recorded if it ran, throws `NotAllowed` otherwise. The server lets it begin
   * once, and gets the result. An error of the tool whose `name` is `AbortError` means that nobody knows.
   */
  async run<T>(gate: Gate, tool: (approved: any) => Promise<T> | T, lease?: number): Promise<T> {
    if (hasResult(gate)) return gate.outcome?.value as T;
    const started = await this.start(gate, lease);
    let result: T;
    try {
      result = await tool(started.arguments);
    } catch (error) {
      const status = (error as Error)?.name === 'AbortError' ? 'unknown' : 'failed';
      // The tool's own error is what the caller sees. What cannot be reported, the server asks a person about.
      await this.outcome(gate, started.attempt, { status, error: String(error) }).catch(() => undefined);
      throw error;
    }
    await this.outcome(gate, started.attempt, { status: 'succeeded', result: reportable(result) });
    return result;
  }

  /** Starts a run of an agent of the server; with `wait: 'settled'` until it is held or has ended. */
  startRun(agent: string, input: string, more: { session?: string; wait?: 'settled' | 'accepted' } = {}): Promise<Run> {
    return this.#ask('POST', `/agents/${encodeURIComponent(agent)}/runs`, { input, ...more });
  }

  /** A run as it is. */
  lookAtRun(run: string): Promise<Run> {
    return this.#ask('GET', `/runs/${encodeURIComponent(run)}`);
  }

  /** Says something to a run. */
  say(run: string, input: string, more: { wait?: 'settled' | 'accepted' } = {}): Promise<Run> {
    return this.#ask('POST', `/runs/${encodeURIComponent(run)}/messages`, { input, ...more });
  }

  /** Cancels a run. */
  cancel(run: string): Promise<Run> {
    return this.#ask('POST', `/runs/${encodeURIComponent(run)}/cancel`, {});
  }

  /** Holds, all pages: the open ones unless `state` says otherwise. */
  async holds(filters: Record<string, string> = {}): Promise<Hold[]> {
    const found: Hold[] = [];
    let cursor: string | null | undefined;
    do {
      const query = new URLSearchParams({ ...filters, ...(cursor ? { cursor } : {}) });
      const page: { holds: Hold[]; next_cursor?: string | null } = await this.#ask('GET', `/holds?${query}`);
      found.push(...page.holds);
      cursor = page.next_cursor;
    } while (cursor);
    return found;
  }

  /** One hold, with who may decide. */
  hold(hold: string): Promise<Hold> {
    return this.#ask('GET', `/holds/${encodeURIComponent(hold)}`);
  }

  /** Decides: `approve` (with `arguments` it edits them), `deny` and `fail` (`reason`), `answer` (`value`). */
  resolve(hold: string, resolution: 'approve' | 'deny' | 'answer' | 'fail', said: Resolution = {}): Promise<any> {
    return this.#ask('POST', `/holds/${encodeURIComponent(hold)}/resolve`, { resolution, ...said });
  }

  async #ask<T>(method: string, path: string, body?: unknown, { once, signal }: { once?: boolean; signal?: AbortSignal } = {}): Promise<T> {
    const headers: Record<string, string> = { ...this.#headers };
    if (method !== 'GET') Object.assign(headers, { 'content-type': 'application/json', 'idempotency-key': crypto.randomUUID() });
    const request: RequestInit = { method, headers, signal, body: body === undefined ? undefined : toJson(body) };
    for (let tried = 0; ; tried += 1) {
      const pause = once ? undefined : this.#pauses[tried];
      let after = pause ?? 0;
      try {
        const response = await this.#fetch(`${this.url}/api/v1${path}`, request);
        if (!NOT_NOW.includes(response.status) || pause === undefined) return await read<T>(response);
        after = Math.min(Number(response.headers.get('retry-after') ?? 0) * 1000, 30_000) || pause;
      } catch (error) {
        if (error instanceof StandfastError || signal?.aborted) throw error;
        if (pause === undefined) throw new StandfastError(`${this.url} did not answer: ${(error as Error).message}`, { cause: error });
      }
      await new Promise((resolve) => setTimeout(resolve, after));
    }
  }
}

/** The body of an answer; a no is an error. */
export async function read<T>(response: Response): Promise<T> {
  const text = await response.text();
  let body: any;
  try {
    body = JSON.parse(text);
  } catch {
    body = { detail: text.slice(0, 500) };
  }
  if (response.ok) return body as T;
  throw new Problem(response.status, body?.error && typeof body.error === 'object' ? body.error : body);
}
