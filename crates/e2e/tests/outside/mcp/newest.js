// An MCP server that speaks the protocol of 2026-07-28 and nothing older, made with the official SDK. Its folder is its first argument;
// with a port as its second it serves over HTTP.
//
// `pay` asks how much before it pays, and leaves a line in `paid.txt`; `where` wants its argument in a header as well; `touch` changes
// the note.

import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

import { McpServer, acceptedContent, createMcpHandler, fromJsonSchema, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const [folder, port] = process.argv.slice(2);
const object = (properties) => fromJsonSchema({ type: "object", properties, required: Object.keys(properties) });
const requestedSchema = { type: "object", properties: { cents: { type: "integer" } }, required: ["cents"] };
const said = (text) => ({ content: [{ type: "text", text }] });
const NOTE = "note://one";
let handler;

const made = () => {
  const capabilities = { tools: {}, logging: {}, resources: { subscribe: true } };
  const server = new McpServer({ name: "newest", version: "1" }, { capabilities, instructions: "Pay nobody." });
  const inputSchema = object({ to: { type: "string" } });
  server.registerTool("pay", { description: "Pays somebody.", inputSchema }, async ({ to }, { mcpReq }) => {
    const amount = acceptedContent(mcpReq.inputResponses, "amount");
    if (!amount) {
      const message = `How much does ${to} get?`;
      return inputRequired({ inputRequests: { amount: inputRequired.elicit({ message, requestedSchema }) }, requestState: `pays ${to}` });
    }
    appendFileSync(join(folder, "paid.txt"), `${to} ${amount.cents}\n`);
    return said(`paid ${amount.cents} cents to ${to}`);
  });
  const region = { type: "string", "x-mcp-header": "Region" };
  server.registerTool("where", { description: "Says where.", inputSchema: object({ region }) }, async ({ region }, { mcpReq }) => {
    await mcpReq.log("info", `looks at ${region}`);
    return said(`in ${region}`);
  });
  server.registerTool("touch", { description: "Changes the note.", inputSchema: object({}) }, async () => {
    if (handler) handler.notify.resourceUpdated(NOTE);
    else await server.server.sendResourceUpdated({ uri: NOTE });
    return said("touched");
  });
  server.registerResource("note", NOTE, { mimeType: "text/plain" }, async () => ({ contents: [{ uri: NOTE, text: "n\u2028" }] }));
  return server;
};

if (port) {
  handler = createMcpHandler(made, { legacy: "reject" });
  createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length ? Buffer.concat(chunks) : undefined;
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const { method, headers } = request;
    const asked = new Request(`http://127.0.0.1:${port}${request.url}`, { method, headers, body, signal: gone.signal });
    const answer = await handler.fetch(asked);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    for await (const chunk of answer.body ?? []) response.write(chunk);
    response.end();
  }).listen(Number(port), "127.0.0.1");
} else {
  serveStdio(made, { legacy: "reject" });
}
