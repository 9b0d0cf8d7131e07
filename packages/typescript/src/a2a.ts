// The approval loop of A2A: while the task needs input, show it, ask, send the decision with the same task and context.
//
// It speaks the dialect of `/v1/agents/{agent}/message:send`, whose requests wait for the next question or the end.

import { read } from './client.js';

export type Part = { text?: string; data?: Record<string, any> };
export type Task = { id: string; contextId: string; status: { state: string; message?: { role: string; parts: Part[] }; timestamp?: string } };

/** A word such as `approve`, or a word with more, such as `{ decision: 'modify', modified_input: … }`. */
export type Decision = string | { decision?: string; answer?: string; reason?: string; modified_input?: unknown; hold_id?: string };

/** What a task says, for people. */
export function textOf(task: Task): string {
  return (task.status.message?.parts ?? []).flatMap((part) => part.text ?? []).join('\n');
}

/** What a task needs, for programs: `tool_name`, `tool_input`, `options` and more. */
export function questionsOf(task: Task): Array<Record<string, any>> {
  return (task.status.message?.parts ?? []).flatMap((part) => part.data ?? []);
}

/** Agents of a server over A2A. */
export class A2AClient {
  constructor(private readonly base: string, private readonly key?: string) {}

  /** Sends a message, to a task if there is one; returns the task when it asks something or has ended. */
  async sendMessage(agent: string, message: string | Part[], to: { taskId?: string; contextId?: string } = {}): Promise<Task> {
    const parts = typeof message === 'string' ? [{ text: message }] : message;
    let { task } = await this.#ask<{ task: Task }>('POST', `${agent}/message:send`, { request: { role: 'user', parts, ...to } });
    while (['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING'].includes(task.status.state)) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      task = await this.getTask(agent, task.id);
    }
    return task;
  }

  /** A task as it is. */
  getTask(agent: string, taskId: string): Promise<Task> {
    return this.#ask('GET', `${agent}/tasks/${taskId}`);
  }

  /** Cancels a task. */
  cancelTask(agent: string, taskId: string): Promise<Task> {
    return this.#ask('POST', `${agent}/tasks/${taskId}:cancel`);
  }

  /** Sends a decision about what the task asks. It names the question, so that it never decides another one. */
  decide(agent: string, task: Task, decision: Decision): Promise<Task> {
    const data: Record<string, any> = typeof decision === 'string' ? { decision } : { ...decision };
    if (data.modified_input !== undefined && typeof data.modified_input !== 'string') data.modified_input = JSON.stringify(data.modified_input);
    const asked = questionsOf(task);
    if (asked.length === 1 && asked[0]?.hold_id) data.hold_id ??= asked[0].hold_id;
    const parts = [{ text: String(data.decision ?? data.answer ?? '') }, { data }];
    return this.sendMessage(agent, parts, { taskId: task.id, contextId: task.contextId });
  }

  /** The loop: `ask` gets the text and the data of each question and returns the decision. Returns the task at its end. */
  async executeWithApproval(
    agent: string, message: string | Part[], ask: (text: string, data: Record<string, any>) => Decision | Promise<Decision>,
  ): Promise<Task> {
    let task = await this.sendMessage(agent, message);
    while (task.status.state === 'TASK_STATE_INPUT_REQUIRED') {
      task = await this.decide(agent, task, await ask(textOf(task), questionsOf(task)[0] ?? {}));
    }
    return task;
  }

  async #ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers: Record<string, string> = { 'content-type': 'application/json', ...(this.key ? { authorization: `Bearer ${this.key}` } : {}) };
    const request = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
    return read<T>(await fetch(`${this.base.replace(/\/+$/, '')}/v1/agents/${path}`, request));
  }
}
