// Slack's, Discord's and Microsoft's own packages for JavaScript, asked about what the program takes and sends.
//
// Reads {what, ...} as JSON from its input and prints its answer. `slack`: which of `requests` Bolt takes at `now`. `click`: what Bolt hears
// of a click that is sent to it, signed. `socket`: what Bolt hears over a socket of `api`. `discord`: a key, and `bodies` signed with it and judged by Discord's package. `card`: what the
// renderer of adaptive cards has against `card`.

import { createPrivateKey, createPublicKey, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const asked = JSON.parse(readFileSync(0, "utf8"));

function slack({ requests, now }) {
  const { isValidSlackRequest } = require("@slack/bolt");
  return requests.map(({ secret, at, body, signature }) => {
    const headers = { "x-slack-request-timestamp": Number(at), "x-slack-signature": signature };
    return isValidSlackRequest({ signingSecret: secret, body, headers, nowMilliseconds: now * 1000 });
  });
}

async function click({ secret, body, at, signature, actions }) {
  const { App, HTTPReceiver, LogLevel } = require("@slack/bolt");
  const receiver = new HTTPReceiver({ signingSecret: secret, logLevel: LogLevel.ERROR });
  const authorize = async () => ({ botToken: "xoxb-none", botId: "B1", botUserId: "UB" });
  const app = new App({ receiver, authorize, logLevel: LogLevel.ERROR });
  const heard = [];
  for (const name of actions) {
    app.action(name, async ({ ack, body: click, action }) => {
      heard.push({ user: click.user.id, team: click.team.id, value: action.value, action: action.action_id });
      await ack();
    });
  }
  const server = await app.start(0);
  const response = await fetch(`http://127.0.0.1:${server.address().port}/slack/events`, {
    method: "POST",
    headers: {
      "content-type": "application/x-www-form-urlencoded",
      "x-slack-request-timestamp": at,
      "x-slack-signature": signature,
    },
    body,
  });
  await response.text();
  await app.stop();
  return { status: response.status, heard };
}

async function socket({ api, token, actions }) {
  const { App, LogLevel, SocketModeReceiver } = require("@slack/bolt");
  const clientOptions = { slackApiUrl: `${api}/` };
  const receiver = new SocketModeReceiver({ appToken: token, installerOptions: { clientOptions }, logLevel: LogLevel.ERROR });
  const authorize = async () => ({ botToken: "xoxb-none", botId: "B1", botUserId: "UB" });
  const app = new App({ receiver, authorize, clientOptions, logLevel: LogLevel.ERROR });
  const heard = await new Promise((resolve) => {
    for (const name of actions) {
      app.action(name, async ({ ack, body: click, action }) => {
        await ack();
        resolve({ user: click.user.id, team: click.team.id, value: action.value, action: action.action_id });
      });
    }
    app.start();
  });
  await app.stop();
  return heard;
}

async function discord({ seed, bodies, at }) {
  const { verifyKey } = require("discord-interactions");
  const der = { format: "der", type: "pkcs8" };
  const key = seed ? createPrivateKey({ key: Buffer.from(seed, "hex"), ...der }) : generateKeyPairSync("ed25519").privateKey;
  const shown = createPublicKey(key).export({ format: "der", type: "spki" }).subarray(-32).toString("hex");
  const signed = [];
  for (const body of bodies) {
    const signature = sign(null, Buffer.from(at + body), key).toString("hex");
    signed.push({ signature, is_taken: await verifyKey(body, signature, at, shown) });
  }
  return { key: shown, seed: key.export(der).toString("hex"), signed };
}

async function takes({ key, requests }) {
  const { verifyKey } = require("discord-interactions");
  return Promise.all(requests.map(({ body, signature, at }) => verifyKey(body, signature, at, key)));
}

function card({ card: given }) {
  const cards = require("adaptivecards/dist/adaptivecards.js");
  const context = new cards.SerializationContext();
  const parsed = new cards.AdaptiveCard();
  parsed.parse(given, context);
  const said = [];
  for (let i = 0; i < context.eventCount; i++) said.push(context.getEventAt(i).message);
  for (const event of parsed.validateProperties().validationEvents) said.push(event.message);
  return { said, kept: parsed.toJSON() };
}

const answers = { slack, click, socket, discord, takes, card };
process.stdout.write(JSON.stringify(await answers[asked.what](asked)), () => process.exit(0));
