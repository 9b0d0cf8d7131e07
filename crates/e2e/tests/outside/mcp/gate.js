// Stands before an MCP server over HTTP and lets through whoever has the token in a file: `gate.js PORT BEHIND FILE`.

import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";

const [port, behind, file] = process.argv.slice(2);
const challenge = 'Bearer resource_metadata="https://id.example.org/.well-known/oauth-protected-resource"';

createServer((asked, answer) => {
  if (asked.headers.authorization !== `Bearer ${readFileSync(file, "utf8").trim()}`) {
    answer.writeHead(401, { "www-authenticate": challenge }).end();
    return;
  }
  const { method, url, headers } = asked;
  const passed = request({ host: "127.0.0.1", port: behind, method, path: url, headers }, (answered) => {
    answer.writeHead(answered.statusCode, answered.headers);
    answered.pipe(answer);
  });
  passed.on("error", () => answer.destroy());
  answer.on("close", () => passed.destroy());
  asked.pipe(passed);
}).listen(Number(port), "127.0.0.1");
