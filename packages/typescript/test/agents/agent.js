// What the agents share: the tool, which leaves a line in a file for each time that it ran, and can die in the middle.

import { appendFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { z } from 'zod';

export const [command, folder] = process.argv.slice(2);
/** What the user says. */
export const ask = process.env.ASK ?? 'Refund A-7';
export const modelUrl = process.env.MODEL_URL;
export const session = `case-${basename(folder)}`;
export const parameters = z.object({ order: z.string(), amount: z.number() });

export async function sendRefund({ order, amount }) {
  appendFileSync(join(folder, 'effects'), `${order} ${amount}\n`);
  if (process.env.DIE) process.kill(process.pid, 'SIGKILL');
  return `refunded ${amount} for ${order}`;
}

/** `recorded` is the framework's own word for what became of the call. */
export function tell(held, said, recorded) {
  for (const gate of held) console.log(`held ${gate.hold}`);
  if (held.length === 0) console.log(`said ${said}\nrecorded ${recorded}`);
}
