// A model on loopback that speaks the chat completions of OpenAI and says what it is told to: tool calls, then the last words. It keeps
// nothing: what comes next follows from the conversation that it is sent, so agents may be killed and started again.

import { createServer } from 'node:http';

/** What is called depends on what the user said: a refund, two of them, or one that a rule denies. */
function callsOf(text) {
  const refunds = [{ order: 'A-7', amount: text.includes('Refund everything') ? 99999 : 40 }];
  if (text.includes('Refund both')) refunds.push({ order: 'B-8', amount: 50 });
  return refunds.map((refund, no) => ({ id: `call_${no + 1}`, type: 'function', function: { name: 'send_refund', arguments: JSON.stringify(refund) } }));
}

/** Starts the model; returns it with its base address. */
export async function serveModel(port = 0) {
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    const asked = JSON.parse(text);
    const results = asked.messages.filter((message) => message.role === 'tool');
    const words = results.map(({ content }) => (typeof content === 'string' ? content : JSON.stringify(content))).join(' | ');
    const message = results.length > 0 ? { role: 'assistant', content: `The tool said: ${words}` } : { role: 'assistant', content: null, tool_calls: callsOf(text) };
    const reason = results.length > 0 ? 'stop' : 'tool_calls';
    const head = { id: 'chat', created: 1, model: 'm' };
    if (asked.stream) {
      const delta = message.tool_calls ? { ...message, tool_calls: message.tool_calls.map((call, index) => ({ index, ...call })) } : message;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const choice of [{ index: 0, delta, finish_reason: null }, { index: 0, delta: {}, finish_reason: reason }]) {
        response.write(`data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', choices: [choice] })}\n\n`);
      }
      response.end('data: [DONE]\n\n');
      return;
    }
    const body = { ...head, object: 'chat.completion', choices: [{ index: 0, finish_reason: reason, message }], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } };
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}/v1` };
}
