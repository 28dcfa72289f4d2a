// What a script that mcpx runs can use:
//
//   import { tools, emit, artifact, input, log, result, ToolError } from "mcpx";
//
// In a snippet these names, and the namespaces of tools, need no import.

/** What mcpx could not or would not do. */
export declare class MCPXError extends Error {
  readonly code: string;
  readonly detail: string;
  readonly hint?: string;
  readonly field?: string;
  /** HTTP status, 0 when no answer came. */
  readonly status: number;
}

/** A tool that reported an error (code "tool_error"), or a call that was not made. */
export declare class ToolError extends MCPXError {
  readonly server: string;
  readonly tool: string;
  /** The tool's whole result, if there is one. */
  readonly raw?: CallToolResult;
  readonly diagnostics: { code: string; detail: string; hint?: string; field?: string; status?: number };
}

/** A tool's result as its server sent it. */
export interface CallToolResult {
  content: any[];
  structuredContent?: any;
  isError?: boolean;
  [name: string]: any;
}

/** A value that is an object or array knows its envelope, unless it has a `raw` of its own. */
export type Value<R> = R extends { raw: any } ? R : R extends object ? R & { readonly raw: CallToolResult } : R;

export interface Tool<A, R> {
  (args: A): Promise<Value<R>>;
  /** The whole result; it does not throw when the tool itself reports an error. */
  raw(args: A): Promise<CallToolResult>;
  readonly server: string;
  readonly tool: string;
}

export interface ToolWithOptionalArguments<A, R> {
  (args?: A): Promise<Value<R>>;
  /** The whole result; it does not throw when the tool itself reports an error. */
  raw(args?: A): Promise<CallToolResult>;
  readonly server: string;
  readonly tool: string;
}

export interface Artifact {
  id: string;
  name: string;
  mime: string;
  size: number;
  sha256: string;
  uri: string;
}

export declare const tools: Tools;

/** Hands a JSON value to the run's readers at once. */
export declare function emit(value: unknown): Promise<void>;

/** Sets the run's result; the last one stands. */
export declare function result(value: unknown): Promise<void>;

/**
 * Keeps data as an artifact: text, bytes, { path }, an MCP image, audio or
 * resource block, or a tool's value or result that carries one.
 */
export declare function artifact(name: string, data: unknown, options?: { mime?: string }): Promise<Artifact>;

/** An input of the run. */
export declare const input: {
  (name: string): Promise<Uint8Array>;
  text(name: string): Promise<string>;
  json(name: string): Promise<any>;
  path(name: string): string;
};

/** Lines for the run's readers; they never throw. */
export declare const log: {
  debug(...values: unknown[]): Promise<void>;
  info(...values: unknown[]): Promise<void>;
  warn(...values: unknown[]): Promise<void>;
  error(...values: unknown[]): Promise<void>;
};

/** Waits until everything that was emitted and logged has arrived. */
export declare function flush(): Promise<void>;
