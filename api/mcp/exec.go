package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/run"
)

// exec answers mcpx_exec.
func (s *Server) exec(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var args struct {
		Source  string      `json:"source"`
		Options run.Options `json:"options"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	if args.Source == "" {
		return nil, missing("source", "the program's text")
	}
	return s.carryOut(ctx, c, run.Request{Source: args.Source, Options: args.Options})
}

// run answers mcpx_run.
func (s *Server) run(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var args struct {
		File    string      `json:"file"`
		Options run.Options `json:"options"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	if args.File == "" {
		return nil, missing("file", "a script's name or path")
	}
	return s.carryOut(ctx, c, run.Request{File: args.File, Options: args.Options})
}

func missing(field, what string) error {
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: field, Message: "it is missing: " + what}
}

// carryOut runs a request and answers with its result. A script that did not
// exit with 0 is an error result, so that a model sees that it has to act; it
// keeps its structured content, which fits the schema all the same.
func (s *Server) carryOut(ctx context.Context, c *call, req run.Request) (*sdk.CallToolResult, error) {
	if err := checkOptions(req.Options); err != nil {
		return nil, err
	}
	req.Options.Output = run.OutputStructured
	req.Options.Capabilities = []string{"artifacts"}
	if req.Options.Session == "" {
		req.Options.Session = c.session
	}
	chosen := req.Options.Cwd != ""
	if !chosen {
		req.Options.Cwd = s.config.Cwd
	}
	result, err := s.config.Runs.Exec(ctx, req, c.by, func(e run.Event) error {
		c.progress.event(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !chosen && succeeded(result) {
		result.Logs = slices.DeleteFunc(result.Logs, func(l run.Log) bool { return l.Code == codeNotMounted })
	}
	return answer(result)
}

// codeNotMounted marks the log that says that the script does not see the
// caller's directory, which concerns few of those who never named one.
const codeNotMounted = "cwd_not_mounted"

func succeeded(r run.Result) bool {
	return r.State == run.Exited && r.ExitCode != nil && *r.ExitCode == 0
}

// checkOptions refuses what would change the form of an answer that has one only.
func checkOptions(o run.Options) error {
	for name, given := range map[string]bool{
		"output": o.Output != "", "task": o.Task != nil, "capabilities": o.Capabilities != nil, "artifacts": o.Artifacts != nil,
	} {
		if given {
			return &run.Error{Code: run.CodeUnsupportedOption, Class: errdefs.ErrInvalidArgument, Field: "options." + name,
				Message: "it is about HTTP answers and means nothing here", Hint: "leave it out"}
		}
	}
	return nil
}

func answer(result run.Result) (*sdk.CallToolResult, error) {
	cut := bounded(result)
	structured, err := json.Marshal(cut)
	if err != nil {
		return nil, fmt.Errorf("result of run %s: %w", result.RunID, err)
	}
	return &sdk.CallToolResult{
		Content:           append(textOf(describe(result)), links(cut.Artifacts)...),
		StructuredContent: json.RawMessage(structured),
		IsError:           !succeeded(result),
	}, nil
}

// links are the artifacts for clients that know what a resource is.
func links(list []run.Artifact) []sdk.Content {
	var all []sdk.Content
	for _, a := range list {
		all = append(all, &sdk.ResourceLink{URI: a.URI, Name: a.Name, MIMEType: a.MIME, Size: &a.Size,
			Description: "sha256 " + a.SHA256})
	}
	return all
}
