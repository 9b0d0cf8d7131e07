// Webhooks: whether a delivery is from the server. The signature is that of Standard Webhooks.

import { StandfastError } from './errors.js';

/** Do not believe this delivery. */
export class NotGenuine extends StandfastError {}

type Headers_ = Headers | Record<string, string | string[] | undefined>;

/** The event of a delivery, if it was signed with the secret of the subscription and is not old. `body` is what arrived, byte for byte. */
export async function verifyWebhook(
  secret: string, headers: Headers_, body: string | Uint8Array, { tolerance = 300, now = Date.now() / 1000 } = {},
): Promise<Record<string, any>> {
  const given = new Headers(headers as Record<string, string>);
  const header = (name: string): string => {
    const value = given.get(name);
    if (!value) throw new NotGenuine(`the header ${name} is missing`);
    return value;
  };
  const [id, sentAt, signatures] = [header('webhook-id'), header('webhook-timestamp'), header('webhook-signature')];
  if (!/^\d+$/.test(sentAt)) throw new NotGenuine('webhook-timestamp is not a number');
  if (Math.abs(now - Number(sentAt)) > tolerance) throw new NotGenuine('the delivery is too old, or from the future: it may be replayed');
  const raw = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  const key = await signingKey(secret);
  const signed = new Uint8Array([...new TextEncoder().encode(`${id}.${sentAt}.`), ...raw]);
  const versions = signatures.split(' ').filter((one) => one.startsWith('v1,')).map((one) => bytes(one.slice(3)));
  // `verify` compares in constant time.
  const checks = await Promise.all(versions.map((one) => crypto.subtle.verify('HMAC', key, one, signed)));
  if (!checks.includes(true)) throw new NotGenuine('no signature is that of this body and secret');
  return JSON.parse(new TextDecoder().decode(raw));
}

async function signingKey(secret: string): Promise<CryptoKey> {
  const key = bytes(secret.replace(/^whsec_/, ''));
  if (key.length === 0) throw new NotGenuine('the secret is not one of a subscription');
  return crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
}

/** What is no base64 is nothing, and verifies nothing. */
function bytes(base64: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}
