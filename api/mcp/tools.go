package mcp

import (
	"context"
	"encoding/json"
	"errors"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/api/problem"
	"mcpx/api/rest"
	"mcpx/orchestrator/run"
)

// instructions teach an agent the loop, in few tokens: clients put them into
// every conversation.
const instructions = `mcpx runs scripts in throw-away containers without network; scripts call the tools of other MCP servers.
Prefer one script over many single calls: only what it prints or returns comes back to you.

1. mcpx_ls: namespaces; with ns, its functions.
2. mcpx_search: functions by words.
3. mcpx_types: exact arguments and results of a namespace (name the functions you need).
4. mcpx_exec: run a script. The first line picks the interpreter (#!/usr/bin/env python3, #!/bin/bash ...); TypeScript needs none:

   const page = await browser.navigate({url: "http://localhost/"});
   return page.title;

Python: from mcpx import tools, emit, artifact; tools.browser.navigate(url="...").
sh: . "$MCPX_CLIENT"; mcpx_call browser navigate '{"url":"..."}'.

Loop, filter and join inside the script. Write files to $MCPX_OUTBOX: they come back as artifacts (links), read them with resources/read. A failing script is an error result with its exit code and output: correct it and run it again. mcpx_call makes one call without a script.`

// toolDoor is one tool of ours: what clients read of it, and what it does.
type toolDoor struct {
	described *sdk.Tool
	answer    func(context.Context, *call) (*sdk.CallToolResult, error)
}

// call is one call of a tool of ours.
type call struct {
	by       run.Caller
	session  string
	args     json.RawMessage
	progress *progress
}

// decode reads the arguments as strictly as the HTTP surface reads a body.
func (c *call) decode(v any) error {
	if len(c.args) == 0 {
		c.args = json.RawMessage(`{}`)
	}
	err := rest.Unmarshal(c.args, v)
	if known, ok := errors.AsType[*run.Error](err); ok && known.Hint != "" {
		known.Hint = "the tool's inputSchema lists the fields; they are case-sensitive"
	}
	return err
}

func (s *Server) tools() []toolDoor {
	return []toolDoor{
		{&sdk.Tool{
			Name: "mcpx_exec", Title: "Run a script",
			Description: "Run a program in a fresh container without network. Its first line picks the interpreter; without a #! it is TypeScript with top-level await, where tool namespaces are bare identifiers and `return` gives the result.",
			InputSchema: execSchema(), OutputSchema: resultSchema(), Annotations: runsScripts("Run a script"),
		}, s.exec},
		{&sdk.Tool{
			Name: "mcpx_run", Title: "Run a script file",
			Description: "Run a script that is stored where mcpx runs, by name (looked up in .mcpx/scripts) or path.",
			InputSchema: runSchema(), OutputSchema: resultSchema(), Annotations: runsScripts("Run a script file"),
		}, s.run},
		{&sdk.Tool{
			Name: "mcpx_ls", Title: "List tool namespaces",
			Description: "List the namespaces that scripts can call; with ns, its functions.",
			InputSchema: lsSchema(), OutputSchema: listSchema(), Annotations: looksOnly("List tool namespaces"),
		}, s.ls},
		{&sdk.Tool{
			Name: "mcpx_search", Title: "Search tools",
			Description: "Find functions by words in their names and descriptions, the best first.",
			InputSchema: searchSchema(), OutputSchema: hitsSchema(), Annotations: looksOnly("Search tools"),
		}, s.search},
		{&sdk.Tool{
			Name: "mcpx_types", Title: "Show tool types",
			Description: "Declarations of a namespace's functions: arguments, results, comments.",
			InputSchema: typesSchema(), Annotations: looksOnly("Show tool types"),
		}, s.types},
		{&sdk.Tool{
			Name: "mcpx_call", Title: "Call one tool",
			Description: "Call one function without a script. For more than one call, or when only a part of the answer matters, use mcpx_exec.",
			InputSchema: callSchema(), Annotations: runsScripts("Call one tool"),
		}, s.call},
	}
}

// runsScripts: what a script or another server's tool does is not known here.
func runsScripts(title string) *sdk.ToolAnnotations {
	yes := true
	return &sdk.ToolAnnotations{Title: title, DestructiveHint: &yes, OpenWorldHint: &yes}
}

func looksOnly(title string) *sdk.ToolAnnotations {
	no := false
	return &sdk.ToolAnnotations{Title: title, ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no, DestructiveHint: &no}
}

// handle makes the SDK's handler of a tool: who asks, then the tool's answer,
// then its error as a result that a model can act on.
func (s *Server) handle(t toolDoor) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		whole, by, done, err := s.begin(ctx, req.Extra)
		if err != nil {
			return failure(err), nil
		}
		defer done()
		c := &call{by: by, session: s.session(req.Session), args: req.Params.Arguments, progress: newProgress(ctx, req)}
		defer c.progress.end()
		result, err := t.answer(whole, c)
		if err != nil {
			s.complain(t.described.Name, err)
			return failure(err), nil
		}
		return result, nil
	}
}

// complain tells the operator of what is mcpx's own fault.
func (s *Server) complain(name string, err error) {
	if problem.New(err).Code == run.CodeInternal {
		s.config.Log.Error("MCP tool failed", "tool", name, "error", err)
	}
}

// failure is an error result. It has no structured content, which is right for
// strict clients: an output schema binds results that are no errors.
func failure(err error) *sdk.CallToolResult {
	d := problem.New(err)
	text := d.Code + ": "
	if d.Field != "" {
		text += d.Field + ": "
	}
	text += d.Detail
	for _, place := range d.Searched {
		text += "\nsearched " + place
	}
	if d.Hint != "" {
		text += "\nhint: " + d.Hint
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

func textOf(s string) []sdk.Content { return []sdk.Content{&sdk.TextContent{Text: s}} }
