package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/api/problem"
	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

// maxResource is the largest resource that fits a message, in bytes.
const maxResource = 16 << 20

func (s *Server) addResources(server *sdk.Server) {
	server.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "artifact", Title: "What a script left", URITemplate: artifacts.URIPrefix + "{id}",
		Description: "A file that a script left, or a medium that a tool returned.",
	}, s.read(s.readArtifact))
	server.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "run", Title: "A part of a run's result", URITemplate: runsPrefix + "{id}/{part}",
		Description: "All of what an answer had to cut; part is one of " + partsOfARun + ".",
	}, s.read(s.readRun))
}

// read makes the SDK's handler of a resource.
func (s *Server) read(one func(ctx context.Context, uri string, by run.Caller) (*sdk.ResourceContents, error)) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		ctx, by, done, err := s.begin(ctx, req.Extra)
		if err != nil {
			return nil, err
		}
		defer done()
		contents, err := one(ctx, req.Params.URI, by)
		if errdefs.IsNotFound(err) {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		}
		if err != nil {
			s.complain("resources/read", err)
			return nil, rpcError(err)
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
	}
}

func rpcError(err error) error {
	d := problem.New(err)
	return &jsonrpc.Error{Code: codeInvalidParams, Message: strings.TrimSpace(d.Code + ": " + d.Detail + " " + d.Hint)}
}

func (s *Server) readArtifact(ctx context.Context, uri string, by run.Caller) (*sdk.ResourceContents, error) {
	about, body, err := s.config.Artifacts.Artifact(ctx, strings.TrimPrefix(uri, artifacts.URIPrefix), by)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if about.Size > maxResource {
		return nil, tooLarge(uri, about.Size, "GET /v1/artifacts/"+about.ID+", or mcpx artifacts get "+about.ID)
	}
	data, err := io.ReadAll(io.LimitReader(body, maxResource+1))
	if err != nil {
		return nil, fmt.Errorf("artifact %s: %w", about.ID, err)
	}
	return contentsOf(uri, about.MIME, data), nil
}

func tooLarge(uri string, size int64, instead string) error {
	return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange,
		Message: fmt.Sprintf("%s has %d bytes, a message takes %d", uri, size, maxResource), Hint: instead}
}

// contentsOf is text where it can be: models read that.
func contentsOf(uri, kind string, data []byte) *sdk.ResourceContents {
	c := &sdk.ResourceContents{URI: uri, MIMEType: kind}
	if utf8.Valid(data) && textual(kind) {
		c.Text = string(data)
	} else {
		c.Blob = data
	}
	return c
}

func textual(kind string) bool {
	for _, known := range []string{"text/", "application/json", "application/xml", "application/yaml", "application/javascript", "image/svg+xml"} {
		if strings.HasPrefix(kind, known) {
			return true
		}
	}
	return false
}

func (s *Server) readRun(ctx context.Context, uri string, by run.Caller) (*sdk.ResourceContents, error) {
	id, part, _ := strings.Cut(strings.TrimPrefix(uri, runsPrefix), "/")
	result, err := s.config.Runs.Result(ctx, id, by)
	if err != nil {
		return nil, err
	}
	data, kind, err := partOf(result, part)
	if err != nil {
		return nil, err
	}
	if len(data) > maxResource {
		return nil, tooLarge(uri, int64(len(data)), "GET /v1/runs/"+id+", or mcpx runs show "+id)
	}
	return contentsOf(uri, kind, data), nil
}

func partOf(r run.Result, part string) (data []byte, kind string, err error) {
	const plain, document = "text/plain", "application/json"
	list := func(v any) ([]byte, string, error) {
		data, err := json.Marshal(v)
		return data, document, err
	}
	switch part {
	case "stdout":
		return streamOf(r.Stdout, r.StdoutEncoding), plain, nil
	case "stderr":
		return streamOf(r.Stderr, r.StderrEncoding), plain, nil
	case "result":
		if len(r.Result) == 0 {
			return []byte("null"), document, nil
		}
		return r.Result, document, nil
	case "emits":
		return list(r.Emits)
	case "logs":
		return list(r.Logs)
	case "calls":
		return list(r.Calls)
	case "artifacts":
		return list(r.Artifacts)
	case "skipped":
		return list(r.Skipped)
	}
	return nil, "", fmt.Errorf("%q is no part of a run: %w", part, errdefs.ErrNotFound)
}

// streamOf is a stream's bytes as the script wrote them.
func streamOf(s, encoding string) []byte {
	if encoding != "base64" {
		return []byte(s)
	}
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return []byte(s) // it is ours: cannot be
	}
	return data
}
