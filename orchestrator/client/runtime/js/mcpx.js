// @ts-self-types="./mcpx.d.ts"
// What a script that mcpx runs can use; see mcpx.d.ts. One file for deno, bun
// and node.

import index from "./index.js";

// hidden properties are not printed with an error, whose message says enough.
function hidden(target, properties) {
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(target, name, { value, enumerable: false, configurable: true, writable: true });
  }
}

export class MCPXError extends Error {
  constructor(detail, { code = "internal", hint, field, status = 0, cause } = {}) {
    super(hint ? `${detail} (${hint})` : detail, cause === undefined ? undefined : { cause });
    hidden(this, { detail, code, hint, field, status });
  }
  get name() {
    return "MCPXError";
  }
  toJSON() {
    const { name, message, code, hint, field, status } = this;
    return { name, message, code, hint, field, status };
  }
}

export class ToolError extends MCPXError {
  constructor(server, tool, detail, { raw, code = "tool_error", hint, field, status, cause } = {}) {
    super(`${server}.${tool}: ${detail}`, { code, hint, field, status, cause });
    const diagnostics = { code, detail };
    if (hint) diagnostics.hint = hint;
    if (field) diagnostics.field = field;
    if (status) diagnostics.status = status;
    hidden(this, { server, tool, detail, raw, diagnostics });
  }
  get name() {
    return "ToolError";
  }
  toJSON() {
    const { name, message, server, tool, diagnostics } = this;
    return { name, message, server, tool, diagnostics };
  }
}

// ---- HTTP

function env(name) {
  try {
    return globalThis.Deno ? Deno.env.get(name) : process.env[name];
  } catch {
    return undefined; // deno without the permission to read it
  }
}

const endpoint = env("MCPX_ENDPOINT") || "http://127.0.0.1:7717";

// fetch in node and bun gives up after five minutes; a tool may take longer.
const send = globalThis.Deno ? viaFetch : globalThis.Bun ? viaFetch : viaNode;

// A snippet may replace what is global.
const realFetch = globalThis.fetch;

async function viaFetch(method, path, body, type) {
  const headers = type ? { "content-type": type } : {};
  const answer = await realFetch(endpoint + path, { method, headers, body, timeout: false });
  return { status: answer.status, text: await answer.text() };
}

let http;

function load() {
  return http ??= import("node:http").then(({ Agent, request }) => ({ agent: new Agent({ keepAlive: true, timeout: 0 }), request }));
}

async function viaNode(method, path, body, type) {
  const { agent, request } = await load();
  const bytes = body === undefined ? undefined : typeof body === "string" ? Buffer.from(body) : body;
  const headers = { "content-length": bytes ? bytes.byteLength : 0 };
  if (type) headers["content-type"] = type;
  return new Promise((resolve, reject) => {
    const sent = request(endpoint + path, { method, headers, agent }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("error", reject);
      answer.on("end", () => resolve({ status: answer.statusCode, text: Buffer.concat(parts).toString("utf8") }));
    });
    sent.on("error", reject);
    sent.end(bytes);
  });
}

async function exchange(method, path, body, type = "application/json") {
  let answer;
  try {
    answer = await send(method, path, body, type);
  } catch (cause) {
    throw new MCPXError(`${method} ${path}: no whole answer, so whether it was done is not known: ${cause?.message ?? cause}`, { code: "connection_lost", cause });
  }
  if (answer.status < 200 || answer.status > 299) {
    let said = {};
    try {
      said = JSON.parse(answer.text) ?? {};
    } catch {
      // not ours, then
    }
    throw new MCPXError(said.detail || said.title || `HTTP status ${answer.status}`, { code: said.code, hint: said.hint, field: said.field, status: answer.status });
  }
  return answer.text;
}

// ---- Tools

function encode(value, what) {
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`${what}: ${typeof value} has no JSON`);
  return text;
}

function segment(text) {
  return /^\.+$/.test(text) ? text.replaceAll(".", "%2E") : encodeURIComponent(text.toWellFormed());
}

// at is an error made where a call is made, for bun, which does not know any
// more when the answer comes.
function at(server, tool) {
  if (!globalThis.Bun) return undefined;
  return new ToolError(server, tool, "");
}

function failure(site, server, tool, detail, more) {
  const error = new ToolError(server, tool, detail, more);
  if (!site) return error;
  for (const name of ["message", "server", "tool", "detail", "raw", "diagnostics", "code", "hint", "field", "status", "cause"]) {
    if (Object.hasOwn(error, name)) hidden(site, { [name]: error[name] });
  }
  return site;
}

async function call(site, server, tool, args = {}) {
  if (args === null || typeof args !== "object" || Array.isArray(args)) {
    throw new TypeError(`${server}.${tool} takes one object of arguments`);
  }
  const body = encode(args, `${server}.${tool}`);
  try {
    return JSON.parse(await exchange("POST", `/v1/call/${segment(server)}/${segment(tool)}`, body));
  } catch (cause) {
    if (!(cause instanceof MCPXError)) throw cause;
    const { detail, code, hint, field, status } = cause;
    throw failure(site, server, tool, detail, { code, hint, field, status, cause: cause.cause });
  }
}

function toolOf(server, tool) {
  const run = async (args) => {
    const site = at(server, tool);
    const answer = await call(site, server, tool, args);
    if (answer.isError) {
      throw failure(site, server, tool, answer.text || "the tool reported an error", { raw: answer.raw });
    }
    const { value, raw } = answer;
    if (value !== null && typeof value === "object" && !Object.hasOwn(value, "raw")) {
      Object.defineProperty(value, "raw", { value: raw, enumerable: false });
    }
    return value;
  };
  run.raw = async (args) => (await call(at(server, tool), server, tool, args)).raw;
  run.server = server;
  run.tool = tool;
  return run;
}

// distance is how many letters have to change, for the nearest names.
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}

function unknownName(what, name, known) {
  const lower = name.toLowerCase();
  const near = known
    .map((k) => [k.toLowerCase().includes(lower) || lower.includes(k.toLowerCase()) ? 1 : distance(k.toLowerCase(), lower), k])
    .filter(([d, k]) => d <= Math.max(2, Math.min(k.length, name.length) / 3))
    .sort((a, b) => a[0] - b[0])
    .slice(0, 3)
    .map(([, k]) => k);
  const hint = near.length ? `; did you mean ${near.join(" or ")}?` : known.length ? `; there are ${known.slice(0, 20).join(", ")}` : "";
  return new TypeError(`no ${what} "${name}"${hint}`);
}

// What the languages look up on anything, and what must not be an error then.
const quiet = new Set(["then", "toJSON", "constructor", "prototype", "toString", "valueOf", "inspect", "nodeType", "$$typeof", "asymmetricMatch", "__esModule", "default"]);

// lazy makes members when they are used, and tells of those that there are not.
function lazy(names, make, missing) {
  const made = new Map();
  const target = Object.create(null);
  for (const name of names) {
    Object.defineProperty(target, name, {
      enumerable: true,
      get() {
        if (!made.has(name)) made.set(name, make(name));
        return made.get(name);
      },
    });
  }
  return new Proxy(target, {
    get(_, name) {
      if (typeof name !== "string" || Object.hasOwn(target, name) || quiet.has(name)) return target[name];
      return missing(name);
    },
    set(_, name) {
      throw new TypeError(`${String(name)} can't be set`);
    },
  });
}

function namespaceOf(name) {
  const { server, open, tools: functions } = index[name];
  const known = Object.keys(functions);
  const make = (f) => toolOf(server, functions[f]);
  return lazy(known, make, (wanted) => {
    const byName = known.find((f) => functions[f] === wanted);
    if (byName) return make(byName);
    if (open) return toolOf(server, wanted);
    throw unknownName(`tool in tools.${name}:`, wanted, known);
  });
}

const namespaces = Object.keys(index);

export const tools = lazy(namespaces, namespaceOf, (wanted) => {
  const byName = namespaces.find((n) => index[n].server === wanted);
  if (byName) return tools[byName];
  throw unknownName("namespace", wanted, namespaces);
});

// ---- The run's readers. What is sent arrives in the order in which it was sent.

let last = Promise.resolve();

function inOrder(path, body) {
  const mine = last.then(() => exchange("POST", path, body)).then(() => undefined);
  last = mine.catch(() => {});
  return mine;
}

export function flush() {
  return last;
}

export async function emit(value) {
  await inOrder("/v1/emit", encode(value, "emit"));
}

export async function result(value) {
  await inOrder("/v1/result", encode(value, "result"));
}

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return value.stack ?? String(value);
  if (typeof value === "object" && value !== null) {
    try {
      return JSON.stringify(value) ?? String(value);
    } catch {
      return Object.prototype.toString.call(value);
    }
  }
  return String(value);
}

let complained = false;
const complain = console.error.bind(console);

function say(level) {
  // A script must not fail for a line about it.
  return (...values) =>
    inOrder("/v1/log", JSON.stringify({ level, message: values.map(shown).join(" ") })).catch((why) => {
      if (!complained) complain(`mcpx: log: ${why.message}`);
      complained = true;
    });
}

export const log = { debug: say("debug"), info: say("info"), warn: say("warn"), error: say("error") };

// ---- Files

const encoder = new TextEncoder();

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// block finds the first block that holds bytes: in a block, a list of them, or an envelope.
function block(data) {
  if (Array.isArray(data)) {
    for (const item of data) {
      const found = block(item);
      if (found) return found;
    }
    return undefined;
  }
  if (data === null || typeof data !== "object") return undefined;
  if ((data.type === "image" || data.type === "audio") && typeof data.data === "string") {
    return { bytes: fromBase64(data.data), mime: data.mimeType };
  }
  if (data.type === "resource" && typeof data.resource?.blob === "string") {
    return { bytes: fromBase64(data.resource.blob), mime: data.resource.mimeType };
  }
  if (data.type === "resource" && typeof data.resource?.text === "string") {
    return { bytes: encoder.encode(data.resource.text), mime: data.resource.mimeType };
  }
  return Array.isArray(data.content) ? block(data.content) : undefined;
}

async function content(data) {
  if (typeof data === "string") return { bytes: encoder.encode(data), mime: "text/plain; charset=utf-8" };
  if (data instanceof ArrayBuffer) return { bytes: new Uint8Array(data) };
  if (ArrayBuffer.isView(data)) return { bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
  if (data instanceof Blob) return { bytes: new Uint8Array(await data.arrayBuffer()), mime: data.type || undefined };
  if (data !== null && typeof data === "object" && typeof data.path === "string" && data.type === undefined) {
    const { readFile } = await import("node:fs/promises");
    return { bytes: await readFile(data.path) };
  }
  const found = block(data) ?? block(data?.raw);
  if (found) return found;
  throw new TypeError("artifact takes text, bytes, { path }, an MCP image, audio or resource block, or a result that carries one");
}

export async function artifact(name, data, options = {}) {
  const { bytes, mime } = await content(data);
  return JSON.parse(await exchange("POST", "/v1/artifacts?name=" + segment(String(name)), bytes, options.mime ?? mime ?? ""));
}

function pathOf(name) {
  const inbox = env("MCPX_INBOX");
  if (!inbox) throw new MCPXError(`input "${name}": this run has no inputs`, { code: "no_input", hint: "send it as options.inputs" });
  if (typeof name !== "string" || name === "" || name === "." || name === ".." || /[/\0]/.test(name)) {
    throw new MCPXError(`input "${name}": not a name of an input`, { code: "no_input" });
  }
  return `${inbox}/${name}`;
}

export async function input(name) {
  const path = pathOf(name);
  const { readFile, readdir } = await import("node:fs/promises");
  try {
    return new Uint8Array(await readFile(path));
  } catch (cause) {
    if (cause?.code !== "ENOENT") throw cause;
    const there = await readdir(env("MCPX_INBOX")).catch(() => []);
    throw new MCPXError(`input "${name}" is not there`, { code: "no_input", hint: `there are: ${there.join(", ") || "none"}`, cause });
  }
}
input.path = pathOf;
input.text = async (name) => new TextDecoder().decode(await input(name));
input.json = async (name) => JSON.parse(await input.text(name));
