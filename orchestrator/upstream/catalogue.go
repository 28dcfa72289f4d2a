package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpx/orchestrator/tool"
)

// record is what is known of one server's tools, in a file of its own.
type record struct {
	Server    string    `json:"server"`
	Namespace string    `json:"namespace"`
	Origin    string    `json:"origin"` // which command or address listed them
	Fetched   time.Time `json:"fetched"`
	// Tools are as listed, all of them: which ones scripts may use is decided
	// when they are looked up.
	Tools []tool.Tool `json:"tools"`
	// Functions are the identifiers that were given, those of tools that are
	// gone, too: one that comes back has its old name.
	Functions map[string]string `json:"functions"`
	History   []Change          `json:"history"`
}

// Bounds of a record, which a server fills.
const (
	maxRecord    = 64 << 20
	maxToolName  = 256
	maxFunctions = 2 * maxTools
)

// known reports whether the tools of a server were ever listed.
func (r *record) known() bool { return !r.Fetched.IsZero() }

// updated is the record after a server listed its tools.
func (r *record) updated(tools []tool.Tool, at time.Time) *record {
	next := *r
	next.Tools = named(r.Server, r.Namespace, acceptable(tools), r.Functions)
	if r.known() {
		next.History = append(slices.Clone(r.History), changes(r.Tools, next.Tools, at)...)
		next.History = next.History[max(len(next.History)-maxHistory, 0):]
	}
	next.Functions = map[string]string{}
	if len(r.Functions) < maxFunctions {
		for name, id := range r.Functions {
			next.Functions[name] = id
		}
	}
	for _, t := range next.Tools {
		next.Functions[t.Name] = t.Function
	}
	next.Fetched = at
	return &next
}

// acceptable leaves out what no caller could name, and a second tool of a name.
func acceptable(tools []tool.Tool) []tool.Tool {
	seen := map[string]bool{}
	var out []tool.Tool
	for _, t := range tools {
		if t.Name == "" || len(t.Name) > maxToolName || strings.ContainsFunc(t.Name, control) || seen[t.Name] {
			continue
		}
		seen[t.Name] = true
		out = append(out, t)
	}
	return out
}

func named(server, namespace string, tools []tool.Tool, recorded map[string]string) []tool.Tool {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	functions := tool.Functions(names, recorded)
	for i := range tools {
		tools[i].Server, tools[i].Namespace, tools[i].Function = server, namespace, functions[tools[i].Name]
	}
	return tools
}

// last is the newest change of a tool.
func (r *record) last(name string) (Change, bool) {
	for _, c := range slices.Backward(r.History) {
		if c.Tool == name {
			return c, true
		}
	}
	return Change{}, false
}

// origin tells one command or address from another. It holds nothing that was
// secret: variables' values and headers are left out, the rest is hashed.
func origin(s Server) string {
	text, err := json.Marshal([]any{s.Transport, s.Command, s.Args, s.Cwd, s.URL})
	if err != nil { // strings
		return ""
	}
	for _, secret := range newRedactor(s).secrets {
		text = []byte(strings.ReplaceAll(string(text), secret, redacted))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// catalogue is the directory of records.
type catalogue struct{ dir string }

func (c catalogue) path(server string) string {
	sum := sha256.Sum256([]byte(server))
	readable := tool.Functions([]string{server}, nil)[server]
	return filepath.Join(c.dir, readable+"-"+hex.EncodeToString(sum[:4])+".json")
}

// load reads a record; one that is missing is empty, one that is damaged is an
// error and empty, too.
func (c catalogue) load(server string) (*record, error) {
	empty := &record{Server: server}
	file, err := os.Open(c.path(server))
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err != nil {
		return empty, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return empty, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	if r.Server != server {
		return empty, fmt.Errorf("read %s: it is of server %q", file.Name(), r.Server)
	}
	return &r, nil
}

// save replaces a record; readers see the old one or the new one.
func (c catalogue) save(r *record) (err error) {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if len(text) > maxRecord {
		return fmt.Errorf("the tools of %s take %d bytes, more than %d", r.Server, len(text), maxRecord)
	}
	file, err := os.CreateTemp(c.dir, ".record-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(file.Name()) //nolint:errcheck // the first error tells
		}
	}()
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), c.path(r.Server))
	}
	if err != nil {
		return err
	}
	return syncDir(c.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
