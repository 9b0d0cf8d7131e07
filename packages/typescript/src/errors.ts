// What can go wrong, as types. A gate that does not let a call run is one too: no tool runs because somebody forgot to look.

import type { Gate } from './gate.js';

/** Anything that this package throws by itself. */
export class StandfastError extends Error {
  override name = this.constructor.name;
}

/** The server refused the request: `kind` is for programs, the text for people. */
export class Problem extends StandfastError {
  readonly kind: string;

  constructor(readonly status: number, readonly body: Record<string, unknown>) {
    super(String(body.detail ?? body.title ?? body.message ?? `the server answered ${status}`));
    this.kind = String(body.type ?? '').replace('urn:standfast:problem:', '');
  }
}

/** The call must not run now. `modelText` is the truthful sentence to hand to the model. */
export class NotAllowed extends StandfastError {
  readonly modelText: string;

  constructor(readonly gate: Gate) {
    super(gate.model_text);
    this.modelText = gate.model_text;
  }
}

/** Nobody has decided yet. The gate stays open: the same call later finds it. */
export class Held extends NotAllowed {}

/** A person or a rule denied it, nobody decided in time, or the gate was withdrawn or ended without a run. */
export class Denied extends NotAllowed {}

/** The call was started before and may have run. It is not run again; a person looks at it. */
export class OutcomeUnknown extends NotAllowed {}

/** The call ran before and failed; what was recorded is in `gate.outcome`. */
export class Failed extends NotAllowed {}
