#!/usr/bin/env node
// Starts the program of the package for this platform, which npm chose among the optional dependencies. No install script:
// it works with --ignore-scripts.
"use strict";

const { spawn } = require("node:child_process");

const name = `@standfast/server-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/standfast`);
} catch {
  console.error(
    `standfast: there is no package ${name} here. Either this platform has none, or npm was configured to leave out optional ` +
      "dependencies (--omit=optional).",
  );
  process.exit(2);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`standfast: ${program} cannot be started: ${error.message}`);
  process.exit(2);
});
child.on("exit", (code, signal) => process.exit(signal ? 1 : (code ?? 1)));
