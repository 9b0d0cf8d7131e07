// A model on loopback that speaks to each coding agent as its provider would: one command, then the last words. It keeps nothing, so agents
// may end and be resumed.

import { createServer } from 'node:http';

export const COMMAND = 'rm victim.txt';
const usage = { input_tokens: 1, output_tokens: 1 };
const lastWords = (result) => `The tool said: ${JSON.stringify(result)}`;

/** Anthropic's messages, for Claude Code. */
function messages(asked) {
  const result = asked.messages.flatMap(({ content }) => (Array.isArray(content) ? content : [])).findLast((block) => block.type === 'tool_result');
  const calls = !result && asked.tools?.some((tool) => tool.name === 'Bash');
  const block = calls ? { type: 'tool_use', id: 'toolu_1', name: 'Bash', input: {} } : { type: 'text', text: '' };
  const delta = calls ? { type: 'input_json_delta', partial_json: JSON.stringify({ command: COMMAND }) } : { type: 'text_delta', text: lastWords(result?.content) };
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: asked.model, content: [], stop_reason: null, stop_sequence: null, usage };
  return [
    { type: 'message_start', message },
    { type: 'content_block_start', index: 0, content_block: block },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: calls ? 'tool_use' : 'end_turn', stop_sequence: null }, usage },
    { type: 'message_stop' },
  ];
}

/** OpenAI's responses, for Codex. */
function responses(asked) {
  const result = asked.input.findLast((item) => item.type?.endsWith('_output'));
  const item = result
    ? { type: 'message', id: 'm', role: 'assistant', content: [{ type: 'output_text', text: lastWords(result.output) }] }
    : { type: 'function_call', id: 'f', name: 'exec_command', arguments: JSON.stringify({ cmd: COMMAND }), call_id: 'call_1' };
  const totals = { ...usage, input_tokens_details: null, output_tokens_details: null, total_tokens: 2 };
  return [
    { type: 'response.created', response: { id: 'r' } },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: { id: 'r', usage: totals } },
  ];
}

/** OpenAI's chat completions, for opencode. */
function chat(asked) {
  const result = asked.messages.findLast((message) => message.role === 'tool');
  const calls = !result && asked.tools?.some((tool) => tool.function.name === 'bash');
  const call = { index: 0, id: 'call_1', type: 'function', function: { name: 'bash', arguments: JSON.stringify({ command: COMMAND, description: 'Deletes' }) } };
  const delta = { role: 'assistant', ...(calls ? { content: null, tool_calls: [call] } : { content: lastWords(result?.content) }) };
  const chunk = (choice) => ({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, ...choice }] });
  return [chunk({ delta, finish_reason: null }), chunk({ delta: {}, finish_reason: calls ? 'tool_calls' : 'stop' }), '[DONE]'];
}

/** Gemini's contents, for Gemini CLI. */
function contents(asked) {
  const result = asked.contents.flatMap(({ parts }) => parts).findLast((part) => part.functionResponse)?.functionResponse;
  const call = { functionCall: { name: 'run_shell_command', args: { command: COMMAND, description: 'Deletes' } } };
  const parts = [result ? { text: lastWords(result.response) } : call];
  return [{ candidates: [{ content: { role: 'model', parts }, finishReason: 'STOP', index: 0 }], usageMetadata: { totalTokenCount: 2 } }];
}

const PROTOCOLS = { messages, responses, 'chat/completions': chat, streamGenerateContent: contents };

/** Starts the model; returns it with its address. */
export async function serveModel() {
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    const path = new URL(request.url, 'http://model').pathname;
    const speak = Object.entries(PROTOCOLS).find(([name]) => path.endsWith(name))?.[1];
    if (!speak) {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"data": [], "models": []}');
      return;
    }
    const events = speak(JSON.parse(text)).map((one) => `${one.type ? `event: ${one.type}\n` : ''}data: ${typeof one === 'string' ? one : JSON.stringify(one)}\n\n`);
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(events.join(''));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}
