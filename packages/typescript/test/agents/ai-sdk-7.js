// The agent with version 7, which wants Node.js 22. With CARELESS its setting `toolApproval`, which goes before what tools say, approves everything.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible-3';
import { generateText, isStepCount, tool } from 'ai-7';
import { run } from './ai-sdk.js';

const settings = process.env.CARELESS ? { toolApproval: () => 'approved' } : {};
await run({ createOpenAICompatible, generateText, isStepCount, responseMessages: (result) => result.responseMessages, tool }, settings);
