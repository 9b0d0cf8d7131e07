// Version 7 of the AI SDK wants a newer Node.js than the package does.

import assert from 'node:assert/strict';

export const NEWER_NODE = Number(process.versions.node.split('.')[0]) >= 22 ? process.execPath : process.env.NEWER_NODE;
assert.ok(NEWER_NODE, 'run the tests with Node.js 22 or newer, or set NEWER_NODE to such a one');
