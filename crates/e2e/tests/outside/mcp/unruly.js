// An MCP server that misbehaves in every way a test asks for, made with the official SDK.
//
// Its folder is its first argument. `tools.json` there, if it exists, replaces what it says of its tools: read at every
// listing, so a test can change a tool while a call waits. Every call of `write` leaves a line in `ran.txt` first.

import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers";

import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const folder = process.argv[2];
const file = (name) => join(folder, name);
writeFileSync(file("pid.txt"), String(process.pid));
if (process.env.SECRET_OF_STANDFAST || process.env.STANDFAST_KEY) writeFileSync(file("leaked.txt"), "");

const inputSchema = { type: "object", properties: { how: { type: "string" }, n: {} } };
const usual = [
  { name: "write", description: "Writes a line.", inputSchema, annotations: { destructiveHint: true } },
  { name: "read", description: "Reads the lines.", inputSchema, annotations: { readOnlyHint: true } },
  { name: "mystery", description: "Says nothing of itself.", inputSchema },
];
const tools = () => (existsSync(file("tools.json")) ? JSON.parse(readFileSync(file("tools.json"))) : usual);

const server = new Server({ name: "unruly", version: "1" }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: tools() }));
server.setRequestHandler(CallToolRequestSchema, async ({ params }, { signal }) => {
  const { how, n } = params.arguments ?? {};
  appendFileSync(file(params.name === "write" ? "ran.txt" : "read.txt"), `${how}\n`);
  signal.addEventListener("abort", () => appendFileSync(file("cancelled.txt"), `${how}\n`));
  if (how === "die" || (how === "die once" && !existsSync(file("died.txt")))) {
    writeFileSync(file("died.txt"), "");
    process.exit(3);
  }
  if (how === "hang") await new Promise((done) => setTimeout(done, 600_000));
  if (how === "garbage") {
    process.stdout.write("this is no JSON\n{\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}\n[]\n");
    await new Promise((done) => setTimeout(done, 600_000));
  }
  if (how === "flood") {
    const line = JSON.stringify({ jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "x".repeat(60_000) } });
    for (;;) {
      if (!process.stdout.write(line + "\n")) await new Promise((done) => process.stdout.once("drain", done));
    }
  }
  if (how === "one long line") {
    process.stdout.write("x".repeat(32 * 1024 * 1024) + "\n");
    return { content: [{ type: "text", text: "still here" }] };
  }
  if (how === "much") return { content: [{ type: "text", text: "0123456789".repeat(20_000) }] };
  return { content: [{ type: "text", text: `${params.name} ${how} ${JSON.stringify(n)}` }] };
});
await server.connect(new StdioServerTransport());
