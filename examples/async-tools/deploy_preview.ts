// The job's side of an async tool: takes a deployment, works on it, and reports back, signed. No libraries needed.
//
// node deploy_preview.ts PORT        (node 22.18 or newer runs it as it is; with older ones compile it first)

import { createHmac } from "node:crypto";
import { createServer } from "node:http";

interface Job {
  pendingID: string;
  callbackURL: string;
  callbackSecret: string;
  input: { branch: string; config?: Record<string, string> };
}

interface Result {
  title: string;
  output: string;
  metadata: { url: string; deploymentID: string };
}

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** Tells the server, until it is taken: 425, 429 and 503 mean later, anything else is final. */
async function report(job: Job, result: Result): Promise<void> {
  const body = JSON.stringify({ pendingID: job.pendingID, result });
  const signature = createHmac("sha256", job.callbackSecret).update(body).digest("hex");
  const headers = { "content-type": "application/json", "x-webhook-signature": `sha256=${signature}` };
  for (;;) {
    let answer: Response;
    try {
      answer = await fetch(job.callbackURL, { method: "POST", headers, body });
    } catch {
      // The server is away. It may be restarting; the call waits in its database.
      await sleep(1000);
      continue;
    }
    const said = await answer.text();
    if (![425, 429, 503].includes(answer.status)) {
      console.log(answer.ok ? "reported:" : "refused:", answer.status, said);
      return;
    }
    await sleep(1000 * Number(answer.headers.get("retry-after") ?? 1));
  }
}

/** The work itself: here it takes a second. */
async function deploy(job: Job): Promise<void> {
  await sleep(1000);
  const { branch } = job.input;
  const url = `https://${branch}.preview.example.com`;
  await report(job, {
    title: "Deployment Complete",
    output: `Preview deployed to ${url}`,
    metadata: { url, deploymentID: `deploy-${branch}` },
  });
}

const server = createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  const job = JSON.parse(Buffer.concat(parts).toString()) as Job;
  void deploy(job);
  const { branch } = job.input;
  response.writeHead(202, { "content-type": "application/json" });
  response.end(JSON.stringify({ externalRef: `deploy-${branch}`, estimatedDuration: 1000, output: `Deploying ${branch} …` }));
});

server.listen(Number(process.argv[2] ?? 8090), "127.0.0.1", () => {
  const address = server.address();
  console.log(`listening on ${typeof address === "object" && address ? address.port : address}`);
});
