package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// Limits of a tool's answer that is handed on, in bytes.
const (
	maxInline = 1 << 20  // of one medium that the caller wants inline
	maxValue  = 32 << 10 // of text; more becomes an artifact
)

// call answers mcpx_call.
func (s *Server) call(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var args struct {
		NS        string          `json:"ns"`
		Fn        string          `json:"fn"`
		Arguments json.RawMessage `json:"arguments"`
		Inline    bool            `json:"inline"`
	}
	if err := c.decode(&args); err != nil {
		return nil, err
	}
	switch {
	case args.NS == "":
		return nil, missing("ns", "a namespace")
	case args.Fn == "":
		return nil, missing("fn", "a function")
	}
	result, err := s.config.Tools.Call(ctx, tool.Call{
		Server: args.NS, Tool: args.Fn, Arguments: args.Arguments, Session: c.session, Principal: c.by.Principal, Progress: c.progress.upstream,
	})
	if err != nil {
		return nil, err
	}
	h := handover{Server: s, call: c, name: args.Fn, inline: args.Inline}
	return h.result(ctx, result)
}

// handover turns another server's result into one of ours. Media become
// artifacts: a model pays for what it gets, seen or not.
type handover struct {
	*Server
	call   *call
	name   string
	inline bool
	links  []run.Artifact
	media  []sdk.Content
}

func (h *handover) result(ctx context.Context, from tool.Result) (*sdk.CallToolResult, error) {
	raw, err := h.takeMedia(ctx, from.Raw)
	if err != nil {
		return nil, err
	}
	value, err := h.value(raw, from.IsError)
	if err != nil {
		return nil, err
	}
	if value, err = h.short(ctx, value); err != nil {
		return nil, err
	}
	if from.Note != "" {
		value += "\n" + from.Note
	}
	for _, a := range h.links {
		value += "\n" + describeArtifact(a)
	}
	content := textOf(strings.TrimPrefix(value, "\n"))
	content = append(append(content, h.media...), links(h.links)...)
	return &sdk.CallToolResult{Content: content, IsError: from.IsError}, nil
}

// value is what a script would get, as text.
func (h *handover) value(raw json.RawMessage, isError bool) (string, error) {
	if text := tool.Text(raw); isError && text != "" {
		return text, nil
	}
	value, err := tool.Unwrap(raw)
	if err != nil {
		return "", &run.Error{Code: run.CodeInvalidResponse, Message: err.Error()}
	}
	var plain *string
	if json.Unmarshal(value, &plain) == nil && plain != nil {
		return *plain, nil
	}
	if string(value) == "null" && len(h.links) > 0 {
		return "", nil
	}
	return string(value), nil
}

// short keeps a text that is over the limit as an artifact, and its beginning.
func (h *handover) short(ctx context.Context, value string) (string, error) {
	if len(value) <= maxValue {
		return value, nil
	}
	kind := "text/plain"
	if json.Valid([]byte(value)) {
		kind = "application/json"
	}
	kept, err := h.keep(ctx, h.name+extension(kind), kind, []byte(value))
	if err != nil {
		return "", err
	}
	head := clip(value, maxValue/4)
	return fmt.Sprintf("%s\n[... %d bytes cut; all of it: %s]", head, len(value)-len(head), kept.URI), nil
}

// block is a content block that may carry media.
type block struct {
	Type     string `json:"type"`
	Data     []byte `json:"data"`
	MIMEType string `json:"mimeType"`
	Resource *struct {
		URI      string `json:"uri"`
		Blob     []byte `json:"blob"`
		MIMEType string `json:"mimeType"`
	} `json:"resource"`
}

// takeMedia takes images, audio and blobs out of a result, and yields the rest.
func (h *handover) takeMedia(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	var envelope map[string]json.RawMessage
	var blocks []json.RawMessage
	if json.Unmarshal(raw, &envelope) != nil || json.Unmarshal(envelope["content"], &blocks) != nil {
		return raw, nil
	}
	rest := []json.RawMessage{}
	for _, one := range blocks {
		taken, err := h.takeBlock(ctx, one)
		if err != nil {
			return nil, err
		}
		if !taken {
			rest = append(rest, one)
		}
	}
	if len(rest) == len(blocks) {
		return raw, nil
	}
	content, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	envelope["content"] = content
	return json.Marshal(envelope)
}

func (h *handover) takeBlock(ctx context.Context, raw json.RawMessage) (taken bool, err error) {
	var b block
	if err := json.Unmarshal(raw, &b); err != nil {
		return false, nil // what it is, the caller may find out
	}
	name, kind, data := h.name, b.MIMEType, b.Data
	if b.Type == "resource" && b.Resource != nil && b.Resource.Blob != nil {
		name, kind, data = path.Base(b.Resource.URI), b.Resource.MIMEType, b.Resource.Blob
	}
	if len(data) == 0 {
		return false, nil
	}
	if path.Ext(name) == "" {
		name += extension(kind)
	}
	kept, err := h.keep(ctx, name, kind, data)
	if err != nil {
		return false, err
	}
	h.links = append(h.links, kept)
	if h.inline && len(data) <= maxInline {
		h.media = append(h.media, b.content(kind, data))
	}
	return true, nil
}

func (b block) content(kind string, data []byte) sdk.Content {
	switch b.Type {
	case "image":
		return &sdk.ImageContent{Data: data, MIMEType: kind}
	case "audio":
		return &sdk.AudioContent{Data: data, MIMEType: kind}
	}
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: b.Resource.URI, MIMEType: kind, Blob: data}}
}

func (h *handover) keep(ctx context.Context, name, kind string, data []byte) (run.Artifact, error) {
	return h.config.Artifacts.Keep(ctx, artifacts.Meta{
		Name: name, MIME: kind, Size: int64(len(data)), Session: h.call.session, Principal: h.call.by.Principal,
	}, bytes.NewReader(data))
}

// extension is the usual one of a media type. The system's table has several
// for some, in no order that means anything.
func extension(kind string) string {
	for known, ext := range map[string]string{
		"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif", "image/svg+xml": ".svg",
		"audio/wav": ".wav", "audio/mpeg": ".mp3", "application/pdf": ".pdf", "application/json": ".json", "text/plain": ".txt",
	} {
		if base, _, err := mime.ParseMediaType(kind); err == nil && base == known {
			return ext
		}
	}
	return ".bin"
}
