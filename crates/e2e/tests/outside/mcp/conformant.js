// The MCP server that the official conformance tests of servers want, made with the official SDK. Told its port.

import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';

import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  ReadResourceRequestSchema,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const text = (words) => ({ type: 'text', text: words });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, words) => ({ type: 'resource', resource: { uri, mimeType: 'text/plain', text: words } });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const object = (properties = {}) => ({ type: 'object', properties });
const texts = ['option1', 'option2', 'option3'];
const titled = ['First Option', 'Second Option', 'Third Option'].map((title, no) => ({ const: `value${no + 1}`, title }));

const elicits = async (extra, message, requestedSchema) => {
  const { action, content } = await extra.sendRequest(
    { method: 'elicitation/create', params: { message, requestedSchema } },
    (await import('@modelcontextprotocol/sdk/types.js')).ElicitResultSchema,
  );
  return [text(`Elicitation completed: action=${action}, content=${JSON.stringify(content)}`)];
};

const tools = {
  test_simple_text: () => [text('This is a simple text response for testing.')],
  test_image_content: () => [image],
  test_audio_content: () => [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }],
  test_embedded_resource: () => [embedded('test://embedded-resource', 'This is an embedded resource content.')],
  test_multiple_content_types: () => [
    text('Multiple content types test:'),
    image,
    { type: 'resource', resource: { uri: 'test://mixed-content-resource', mimeType: 'application/json', text: '{"test":"data","value":123}' } },
  ],
  test_tool_with_logging: async (_, extra) => {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', data } });
      await sleep(50);
    }
    return [text('logged')];
  },
  test_error_handling: () => {
    throw new Error('This tool intentionally returns an error for testing');
  },
  test_tool_with_progress: async (_, extra) => {
    for (const progress of [0, 50, 100]) {
      const progressToken = extra._meta?.progressToken ?? 0;
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
      await sleep(50);
    }
    return [text('done')];
  },
  test_sampling: async ({ prompt }, extra) => {
    const { CreateMessageResultSchema } = await import('@modelcontextprotocol/sdk/types.js');
    const messages = [{ role: 'user', content: text(prompt) }];
    const said = await extra.sendRequest({ method: 'sampling/createMessage', params: { messages, maxTokens: 100 } }, CreateMessageResultSchema);
    return [text(`LLM response: ${said.content.text}`)];
  },
  test_elicitation: ({ message }, extra) =>
    elicits(extra, message, { ...object({ username: { type: 'string' }, email: { type: 'string' } }), required: ['username', 'email'] }),
  test_elicitation_sep1034_defaults: (_, extra) =>
    elicits(extra, 'defaults', object({
      name: { type: 'string', default: 'John Doe' },
      age: { type: 'integer', default: 30 },
      score: { type: 'number', default: 95.5 },
      status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
      verified: { type: 'boolean', default: true },
    })),
  test_elicitation_sep1330_enums: (_, extra) =>
    elicits(extra, 'enums', object({
      untitledSingle: { type: 'string', enum: texts },
      titledSingle: { type: 'string', oneOf: titled },
      legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
      untitledMulti: { type: 'array', items: { type: 'string', enum: texts } },
      titledMulti: { type: 'array', items: { anyOf: titled } },
    })),
};

const prompts = {
  test_simple_prompt: () => [text('This is a simple prompt for testing.')],
  test_prompt_with_arguments: ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  test_prompt_with_embedded_resource: ({ resourceUri }) => [
    embedded(resourceUri, 'Embedded resource content for testing.'),
    text('Please process the embedded resource above.'),
  ],
  test_prompt_with_image: () => [image, text('Please analyze the image above.')],
};

const made = () => {
  const capabilities = { tools: {}, prompts: {}, resources: { subscribe: true }, logging: {}, completions: {} };
  const server = new Server({ name: 'conformant', version: '1' }, { capabilities });
  server.setRequestHandler(ListToolsRequestSchema, () => ({
    tools: Object.keys(tools).map((name) => ({ name, description: name, inputSchema: object() })),
  }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
    try {
      return { content: await tools[params.name](params.arguments ?? {}, extra) };
    } catch (error) {
      return { isError: true, content: [text(error.message)] };
    }
  });
  server.setRequestHandler(ListPromptsRequestSchema, () => ({
    prompts: Object.keys(prompts).map((name) => ({ name, description: name })),
  }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
    messages: prompts[params.name](params.arguments ?? {}).map((content) => ({ role: 'user', content })),
  }));
  const statics = [['test://static-text', 'text/plain'], ['test://static-binary', 'image/png']];
  server.setRequestHandler(ListResourcesRequestSchema, () => ({
    resources: statics.map(([uri, mimeType]) => ({ uri, name: uri, description: uri, mimeType })),
  }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template' }],
  }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params: { uri } }) => {
    const id = /^test:\/\/template\/(.*)\/data$/.exec(uri)?.[1];
    if (id) return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }] };
    if (uri.endsWith('binary')) return { contents: [{ uri, mimeType: 'image/png', blob: PNG }] };
    return { contents: [{ uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }] };
  });
  for (const schema of [SetLevelRequestSchema, SubscribeRequestSchema, UnsubscribeRequestSchema]) server.setRequestHandler(schema, () => ({}));
  server.setRequestHandler(CompleteRequestSchema, () => ({ completion: { values: ['paris', 'park'], total: 2, hasMore: false } }));
  return server;
};

const sessions = new Map();
createServer(async (request, response) => {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) return known.handleRequest(request, response);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await made().connect(transport);
  return transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), '127.0.0.1');
