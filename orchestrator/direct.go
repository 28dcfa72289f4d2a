package orchestrator

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"mcpx/orchestrator/client"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/policies"
)

// Upstream are the configured MCP servers (*upstream.Manager).
type Upstream interface {
	Tools
	Refresh(ctx context.Context, servers ...string) error
}

// Direct are the tools for callers that are no scripts. It grants what a script
// of some interpreter may call, since a caller could run one, and no more; and
// it records calls as those of scripts are recorded.
type Direct struct {
	Upstream Upstream
	Policies *policies.Document
	Audit    Auditor // nil: no record
	AuditKey []byte
	Log      *slog.Logger
}

// Servers lists the server that ns names, all when it is empty, with the tools
// that may be called.
func (d *Direct) Servers(ctx context.Context, ns string) ([]tool.Server, error) {
	found := []tool.Server{}
	for _, server := range d.Upstream.Servers(ctx) {
		if ns != "" && ns != server.Namespace && ns != server.Name {
			continue
		}
		server.Tools = slices.DeleteFunc(slices.Clone(server.Tools), func(t tool.Tool) bool { return d.check(t) != nil })
		found = append(found, server)
	}
	if ns != "" && len(found) == 0 {
		_, err := d.Upstream.Tool(ctx, ns, "") // it says which there are
		return nil, err
	}
	return found, nil
}

// check is nil when some interpreter's script may call t.
func (d *Direct) check(t tool.Tool) error {
	var refused error
	for _, rule := range d.Policies.Rules() {
		rules := policies.ToolRules{Policy: rule.Name, Allow: rule.ToolsAllow, Deny: rule.ToolsDeny, ConfirmDestructive: rule.ConfirmDestructive}
		if refused = rules.Check(t.Server, t.Name, t.ReadOnly, t.Destructive); refused == nil {
			return nil
		}
	}
	return refused
}

// Search finds tools by words, the best first.
func (d *Direct) Search(ctx context.Context, query string, limit int) ([]tool.Hit, error) {
	servers, err := d.Servers(ctx, "")
	if err != nil {
		return nil, err
	}
	return tool.Search(servers, query, limit), nil
}

// Types declares a namespace in a language, all its functions unless some are named.
func (d *Direct) Types(ctx context.Context, ns, lang string, functions ...string) (string, error) {
	servers, err := d.Servers(ctx, ns)
	if err != nil {
		return "", err
	}
	text := ""
	for _, server := range servers {
		if server.Tools, err = d.named(ctx, server, functions); err != nil {
			return "", err
		}
		declarations, err := client.Declarations(lang, server)
		if err != nil {
			return "", err
		}
		text += declarations
	}
	return text, nil
}

// named picks tools by name or function; a name that none has is an error.
func (d *Direct) named(ctx context.Context, server tool.Server, names []string) ([]tool.Tool, error) {
	if len(names) == 0 {
		return server.Tools, nil
	}
	var picked []tool.Tool
	for _, name := range names {
		t, err := d.Upstream.Tool(ctx, server.Name, name)
		if err == nil {
			err = d.check(t)
		}
		if err != nil {
			return nil, err
		}
		picked = append(picked, t)
	}
	return picked, nil
}

// Call makes one call, if it is granted, and records it.
func (d *Direct) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	record := AuditedCall{At: time.Now().UTC(), Principal: c.Principal, RequestBytes: int64(len(c.Arguments)),
		Call: run.Call{Server: c.Server, Tool: c.Tool, ArgsHash: hashArguments(d.AuditKey, c.Arguments)}}
	result, err := d.callGranted(ctx, c, &record.Call)
	record.ResponseBytes = int64(len(result.Raw))
	record.Call.DurationMs = time.Since(record.At).Milliseconds()
	record.Call.OK = err == nil && !result.IsError
	record.Call.Error = errorClass(err, result)
	if d.Audit != nil {
		if auditErr := d.Audit.RecordCall(context.WithoutCancel(ctx), record); auditErr != nil {
			d.Log.Error("tool call is not in the audit", "server", record.Call.Server, "tool", record.Call.Tool, "error", auditErr)
		}
	}
	return result, err
}

func (d *Direct) callGranted(ctx context.Context, c tool.Call, record *run.Call) (tool.Result, error) {
	t, err := d.Upstream.Tool(ctx, c.Server, c.Tool)
	if err != nil {
		return tool.Result{}, err
	}
	record.Server, record.Tool, record.DestructiveHint = t.Server, t.Name, t.Destructive
	if err := d.check(t); err != nil {
		return tool.Result{}, err
	}
	c.Server, c.Tool = t.Server, t.Name
	return d.Upstream.Call(ctx, c)
}

// Refresh asks servers, all when none is named, what tools they have.
func (d *Direct) Refresh(ctx context.Context, servers ...string) error {
	return d.Upstream.Refresh(ctx, servers...)
}

// hashArguments lets calls with the same arguments be found without telling
// what they were: a bare digest of a short text can be guessed.
func hashArguments(key []byte, args json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, args) != nil {
		compact.Write(args)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(compact.Bytes())
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
