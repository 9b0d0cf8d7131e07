// The agent with version 6.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, tool } from 'ai';
import { run } from './ai-sdk.js';

await run({ createOpenAICompatible, generateText, isStepCount: stepCountIs, responseMessages: (result) => result.response.messages, tool });
