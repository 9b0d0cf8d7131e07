// Durable approvals for your own agent. Adapters for frameworks are entries of their own, so that nothing is loaded that you do not use.

export { A2AClient, type Decision, type Part, questionsOf, type Task, textOf } from './a2a.js';
export { Client, type ClientOptions, type Hold, type Outcome, type Resolution, type Run, type Started } from './client.js';
export { Denied, Failed, Held, NotAllowed, OutcomeUnknown, Problem, StandfastError } from './errors.js';
export { type Gate, type GateRequest, type GateState, hasResult, refusal } from './gate.js';
export { guarded, type Guarded, type GuardOptions } from './guard.js';
export { NotGenuine, verifyWebhook } from './webhook.js';
