// An MCP server of the protocol of 2026-07-28 that asks back before it pays, made with the official SDK.
//
// Its folder is its first argument; with a port as its second it serves over HTTP. What it paid, and with which state and arguments, stands in `paid.txt` there.
// Who pays Slow hears of it only once there is a file `go.txt`. Nobody is asked how much the Known get.

import { appendFileSync, existsSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

import { McpServer, acceptedContent, createMcpHandler, fromJsonSchema, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const [folder, port] = process.argv.slice(2);
const inputSchema = fromJsonSchema({ type: "object", properties: { to: { type: "string" } }, required: ["to"] });
const requestedSchema = { type: "object", properties: { cents: { type: "integer" } }, required: ["cents"] };

const made = () => {
  const server = new McpServer({ name: "asking", version: "1" }, { capabilities: { tools: {} } });
  server.registerTool("pay", { description: "Pays somebody.", inputSchema }, async ({ to }, { mcpReq }) => {
    const amount = to.startsWith("Known ") ? { cents: 100 } : acceptedContent(mcpReq.inputResponses, "amount");
    if (!amount) {
      const message = `How much does ${to} get?`;
      const inputRequests = { amount: inputRequired.elicit({ message, requestedSchema }) };
      return inputRequired({ inputRequests, requestState: `pays ${to} from ${process.pid}` });
    }
    appendFileSync(join(folder, "paid.txt"), `${to} ${amount.cents}\n`);
    appendFileSync(join(folder, "pids.txt"), `${process.pid}\n`);
    while (to === "Slow" && !existsSync(join(folder, "go.txt"))) await new Promise((resolve) => setTimeout(resolve, 50));
    const state = typeof mcpReq.requestState === "function" ? mcpReq.requestState() : mcpReq.requestState;
    return { content: [{ type: "text", text: `paid ${amount.cents} cents to ${to}; ${state}` }] };
  });
  return server;
};

if (port) {
  const handler = createMcpHandler(made);
  createServer(async (request, response) => {
    appendFileSync(join(folder, "headers.txt"), `${JSON.stringify(request.headers)}\n`);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length ? Buffer.concat(chunks) : undefined;
    const asked = new Request(`http://127.0.0.1:${port}${request.url}`, { method: request.method, headers: request.headers, body });
    const answer = await handler.fetch(asked);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    for await (const chunk of answer.body ?? []) response.write(chunk);
    response.end();
  }).listen(Number(port), "127.0.0.1");
} else {
  serveStdio(made);
}
