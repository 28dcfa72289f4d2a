// Runs a script in which the client's names are global, and makes what its
// function returns the run's result.

import * as mcpx from "./mcpx.js";

function args() {
  return globalThis.Deno ? Deno.args : process.argv.slice(2);
}

function define(name, value) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}

// provide makes the names global that the script uses and does not declare.
function provide(names) {
  for (const name of names) {
    if (name === "args") define(name, args());
    else if (Object.hasOwn(mcpx, name)) define(name, mcpx[name]);
    else if (!(name in globalThis)) define(name, mcpx.tools[name]);
  }
}

async function provideCommonJS(script) {
  const { createRequire } = await import("node:module");
  define("require", createRequire(script));
  define("__filename", script);
  define("__dirname", script.slice(0, script.lastIndexOf("/")));
}

function formatter() {
  try {
    return process.getBuiltinModule("node:util").format;
  } catch {
    return (...values) => values.map(String).join(" ");
  }
}

// mirror also hands what the console is told to the run's readers. console.log
// is left out: it is how a script writes its output.
function mirror() {
  let format;
  for (const level of ["debug", "info", "warn", "error"]) {
    const real = console[level];
    console[level] = (...values) => {
      real.apply(console, values);
      format ??= formatter();
      mcpx.log[level](format(...values));
    };
  }
}

function callable(value) {
  return typeof value === "function" && !/^class\b/.test(Function.prototype.toString.call(value));
}

// picked is the function to call, if there is one.
function picked(module, name) {
  if (!name) return callable(module.default) ? module.default : undefined;
  if (callable(module[name])) return module[name];
  throw new TypeError(`the script does not export a function "${name}"; it exports ${Object.keys(module).join(", ") || "nothing"}`);
}

export async function launch(options, load) {
  if (globalThis.process?.argv) process.argv[1] = options.script;
  provide(options.names);
  if (options.commonJS) await provideCommonJS(options.script);
  if (options.captureConsole) mirror();
  try {
    const run = picked(await load(), options.export);
    const value = run && (await run(...args()));
    if (value !== undefined) await mcpx.result(value);
  } finally {
    await mcpx.flush();
  }
}
