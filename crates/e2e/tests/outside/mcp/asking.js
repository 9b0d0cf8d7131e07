// An MCP server of the protocol of 2026-07-28 that asks back before it pays, made with the official SDK.
//
// Its folder is its first argument. What it paid, and with which state and arguments, stands in `paid.txt` there.

import { appendFileSync } from "node:fs";
import { join } from "node:path";

import { McpServer, acceptedContent, fromJsonSchema, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const folder = process.argv[2];
const inputSchema = fromJsonSchema({ type: "object", properties: { to: { type: "string" } }, required: ["to"] });
const requestedSchema = { type: "object", properties: { cents: { type: "integer" } }, required: ["cents"] };

serveStdio(() => {
  const server = new McpServer({ name: "asking", version: "1" }, { capabilities: { tools: {} } });
  server.registerTool("pay", { description: "Pays somebody.", inputSchema }, ({ to }, { mcpReq }) => {
    const amount = acceptedContent(mcpReq.inputResponses, "amount");
    if (!amount) {
      const message = `How much does ${to} get?`;
      const inputRequests = { amount: inputRequired.elicit({ message, requestedSchema }) };
      return inputRequired({ inputRequests, requestState: `pays ${to} from ${process.pid}` });
    }
    appendFileSync(join(folder, "paid.txt"), `${to} ${amount.cents}\n`);
    appendFileSync(join(folder, "pids.txt"), `${process.pid}\n`);
    const state = typeof mcpReq.requestState === "function" ? mcpReq.requestState() : mcpReq.requestState;
    return { content: [{ type: "text", text: `paid ${amount.cents} cents to ${to}; ${state}` }] };
  });
  return server;
});
