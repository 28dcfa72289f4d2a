package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// Listing is the structured answer of mcpx_ls.
type Listing struct {
	Namespaces []Namespace `json:"namespaces"`
}

// Namespace is a server as a listing shows it.
type Namespace struct {
	NS          string `json:"ns"`
	Server      string `json:"server"`
	Description string `json:"description,omitempty"`
	Tools       int    `json:"tools"`
	// Functions are listed when one namespace was asked for, or there are few in all.
	Functions []Function `json:"functions,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// Function is a tool as a listing shows it.
type Function struct {
	NS          string `json:"ns,omitempty"`
	Fn          string `json:"fn"`
	Description string `json:"description,omitempty"`
}

// Found is the structured answer of mcpx_search.
type Found struct {
	Functions []Function `json:"functions"`
}

const (
	fewFunctions = 60  // so many are listed without being asked for
	maxBrief     = 120 // bytes of a description in a listing
	usualHits    = 10
	maxHits      = 100
)

// brief is the first sentence or line of a description.
func brief(description string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(description), "\n")
	if sentence, _, found := strings.Cut(line, ". "); found {
		line = sentence
	}
	if line = strings.TrimSuffix(line, "."); len(line) > maxBrief {
		line = clip(line, maxBrief) + "…"
	}
	return line
}

// ls answers mcpx_ls.
func (s *Server) ls(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var args struct {
		NS string `json:"ns"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	servers, err := s.config.Tools.Servers(ctx, args.NS)
	if err != nil {
		return nil, err
	}
	all := 0
	for _, one := range servers {
		all += len(one.Tools)
	}
	listing := Listing{Namespaces: []Namespace{}}
	for _, one := range servers {
		listing.Namespaces = append(listing.Namespaces, listed(one, args.NS != "" || all <= fewFunctions))
	}
	return both(listing, listing.words(args.NS != ""))
}

func listed(server tool.Server, functions bool) Namespace {
	ns := Namespace{NS: server.Namespace, Server: server.Name, Description: brief(server.Description), Tools: len(server.Tools), Error: server.Err}
	if !functions {
		return ns
	}
	for _, t := range server.Tools {
		ns.Functions = append(ns.Functions, Function{Fn: t.Function, Description: brief(t.Description)})
	}
	return ns
}

func (l Listing) words(descriptions bool) string {
	if len(l.Namespaces) == 0 {
		return "no MCP servers are configured: name them in mcpServers of .mcpx.json"
	}
	var out strings.Builder
	for _, ns := range l.Namespaces {
		fmt.Fprintf(&out, "%s (%d)", ns.NS, ns.Tools)
		if ns.Description != "" {
			out.WriteString(" " + ns.Description)
		}
		if ns.Error != "" {
			out.WriteString(" [" + ns.Error + "]")
		}
		out.WriteString("\n")
		ns.writeFunctions(&out, descriptions)
	}
	return strings.TrimRight(out.String(), "\n")
}

// writeFunctions writes names alone unless one namespace was asked for: that
// is what makes a short listing short.
func (n Namespace) writeFunctions(out *strings.Builder, descriptions bool) {
	var names []string
	for _, f := range n.Functions {
		if descriptions {
			fmt.Fprintf(out, "  %s: %s\n", f.Fn, f.Description)
		} else {
			names = append(names, f.Fn)
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(out, "  %s\n", strings.Join(names, " "))
	}
}

// search answers mcpx_search.
func (s *Server) search(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	args := struct {
		Query string `json:"query"`
		Limit int    `json:"limit"`
	}{Limit: usualHits}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	switch {
	case strings.TrimSpace(args.Query) == "":
		return nil, missing("query", "words to search for")
	case args.Limit < 1 || args.Limit > maxHits:
		return nil, &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: "limit",
			Message: fmt.Sprintf("%d is not a number from 1 to %d", args.Limit, maxHits)}
	}
	hits, err := s.config.Tools.Search(ctx, args.Query, args.Limit)
	if err != nil {
		return nil, err
	}
	found := Found{Functions: []Function{}}
	var words []string
	for _, hit := range hits {
		f := Function{NS: hit.Tool.Namespace, Fn: hit.Tool.Function, Description: brief(hit.Tool.Description)}
		found.Functions = append(found.Functions, f)
		words = append(words, fmt.Sprintf("%s.%s: %s", f.NS, f.Fn, f.Description))
	}
	if len(words) == 0 {
		words = []string{"nothing found; mcpx_ls lists the namespaces"}
	}
	return both(found, strings.Join(words, "\n"))
}

// types answers mcpx_types.
func (s *Server) types(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var args struct {
		NS        string   `json:"ns"`
		Functions []string `json:"functions"`
		Lang      string   `json:"lang"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	if args.NS == "" {
		return nil, missing("ns", "a namespace")
	}
	declarations, err := s.config.Tools.Types(ctx, args.NS, args.Lang, args.Functions...)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: textOf(declarations)}, nil
}

// both answers with a document and with the same in words.
func both(document any, words string) (*sdk.CallToolResult, error) {
	structured, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: textOf(words), StructuredContent: json.RawMessage(structured)}, nil
}
