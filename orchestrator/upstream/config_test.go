package upstream_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/upstream"
)

func variables(name string) (string, bool) {
	value, ok := map[string]string{"TOKEN": "t0ken-value", "EMPTY": "", "NESTED": "${TOKEN}"}[name]
	return value, ok
}

func parse(t *testing.T, text string) (*upstream.File, error) {
	t.Helper()
	return upstream.Parse([]byte(text), "/project", variables)
}

func TestConfigurationIsTheOneThatHostsShare(t *testing.T) {
	file, err := parse(t, `{
	// what hosts know
	"inputs": [],
	"mcpServers": {
		"files": {
			"command": "npx", "args": ["-y", "server", "--key=${TOKEN}", "${MISSING:-fallback}", "${EMPTY:-empty}", "$HOME ${", "${1x}"],
			"env": {"A": "${NESTED}", "B": "${EMPTY}"},
			"cwd": "sub",
			"gallery": true, /* of another host */
			"mcpx": {
				"sharing": "exclusive", "scope": "session", "max": 3,
				"idleTimeout": "1m", "callTimeout": "90s", "startTimeout": "5s",
				"tools": ["read_*"], "excludeTools": ["/^write/", "delete"],
				"description": "the files",
			},
		},
		"far.away": {"type": "streamable-http", "url": "https://example.com/mcp?k=${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
		"old": {"type": "sse", "url": "http://example.com/sse"},
		"off": {"command": "x ${MISSING}", "disabled": true},
	},
}`)
	require.NoError(t, err)
	require.Len(t, file.Servers, 4)
	files := file.Servers[0]
	require.Equal(t, upstream.Stdio, files.Transport)
	require.Equal(t, []string{"-y", "server", "--key=t0ken-value", "fallback", "empty", "$HOME ${", "${1x}"}, files.Args)
	require.Equal(t, map[string]string{"A": "${TOKEN}", "B": ""}, files.Env, "what was put in is not looked at again")
	require.Equal(t, "/project/sub", files.Cwd)
	require.Equal(t, upstream.Exclusive, files.Sharing)
	require.Equal(t, upstream.ScopeSession, files.Scope)
	require.Equal(t, 3, files.Max)
	require.Equal(t, []time.Duration{time.Minute, 90 * time.Second, 5 * time.Second},
		[]time.Duration{files.IdleTimeout, files.CallTimeout, files.StartTimeout})
	require.Equal(t, "the files", files.Description)
	require.Empty(t, files.Problem)
	far := file.Servers[1]
	require.Equal(t, "far.away", far.Name)
	require.Equal(t, upstream.HTTP, far.Transport)
	require.Equal(t, "Bearer t0ken-value", far.Headers["Authorization"])
	require.Equal(t, upstream.SSE, file.Servers[2].Transport)
	require.True(t, file.Servers[3].Disabled)
	require.Empty(t, file.Servers[3].Problem)
	require.Equal(t, []string{"line 9: mcpServers.files.gallery is not known to mcpx and has no effect"}, file.Warnings)
}

func TestDefaultsAreSafe(t *testing.T) {
	file, err := parse(t, `{"mcpServers":{"a":{"command":"x"},"b":{"command":"x","mcpx":{"scope":"run"}},"c":{"command":"x","mcpx":{"min":2}}}}`)
	require.NoError(t, err)
	a, b, c := file.Servers[0], file.Servers[1], file.Servers[2]
	require.Equal(t, upstream.Shared, a.Sharing)
	require.Equal(t, upstream.ScopeGlobal, a.Scope)
	require.Equal(t, 1, a.Max)
	require.Equal(t, upstream.DefaultCallTimeout, a.CallTimeout)
	require.Equal(t, upstream.DefaultScopedMax, b.Max)
	require.Equal(t, 2, c.Max)
}

func TestMissingVariableMakesOneServerUnusable(t *testing.T) {
	file, err := parse(t, `{"mcpServers":{"a":{"command":"x","env":{"KEY":"${MISSING}"}},"b":{"command":"y"}}}`)
	require.NoError(t, err)
	require.Equal(t, "env.KEY wants the variable MISSING, which is not set", file.Servers[0].Problem)
	require.Empty(t, file.Servers[1].Problem)
}

func TestWrongConfigurationNamesLineAndField(t *testing.T) {
	for name, c := range map[string]struct{ text, field, says string }{
		"not JSON":          {"{\n\"mcpServers\": nope}", "", "not JSON"},
		"no servers":        {`{"servers":{}}`, "mcpServers", "is missing"},
		"servers of a list": {`{"mcpServers":[]}`, "mcpServers", "wanted an object"},
		"server of text":    {"{\"mcpServers\":{\n\"a\":\"x\"}}", "mcpServers.a", "line 2: mcpServers.a: wanted an object"},
		"nothing to start":  {`{"mcpServers":{"a":{}}}`, "mcpServers.a", "neither command nor url"},
		"both":              {`{"mcpServers":{"a":{"command":"x","url":"http://x"}}}`, "mcpServers.a", "both command and url"},
		"unknown type":      {`{"mcpServers":{"a":{"url":"http://x","type":"carrier"}}}`, "mcpServers.a.type", "not stdio, http or sse"},
		"type without url":  {`{"mcpServers":{"a":{"command":"x","type":"http"}}}`, "mcpServers.a.type", "wants a url"},
		"bad url":           {`{"mcpServers":{"a":{"url":"ftp://x"}}}`, "mcpServers.a.url", "not an http or https address"},
		"args of text":      {`{"mcpServers":{"a":{"command":"x","args":"y"}}}`, "mcpServers.a.args", "wanted a list of strings"},
		"env of numbers":    {`{"mcpServers":{"a":{"command":"x","env":{"A":1}}}}`, "mcpServers.a.env", "wanted an object of strings"},
		"null":              {`{"mcpServers":{"a":{"command":null}}}`, "mcpServers.a.command", "wanted a string"},
		"twice":             {`{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}`, "mcpServers.a", "stands there twice"},
		"unknown in block": {"{\"mcpServers\":{\"a\":{\"command\":\"x\",\n\"mcpx\":{\n\"idleTimout\":\"1s\"}}}}", "mcpServers.a.mcpx.idleTimout",
			"line 3: mcpServers.a.mcpx.idleTimout: is not a known member"},
		"bad duration":     {`{"mcpServers":{"a":{"command":"x","mcpx":{"callTimeout":30}}}}`, "mcpServers.a.mcpx.callTimeout", "wanted a duration"},
		"duration of zero": {`{"mcpServers":{"a":{"command":"x","mcpx":{"callTimeout":"0s"}}}}`, "mcpServers.a.mcpx.callTimeout", "above 0"},
		"bad scope":        {`{"mcpServers":{"a":{"command":"x","mcpx":{"scope":"world"}}}}`, "mcpServers.a.mcpx.scope", "wanted one of global, session, run, call"},
		"bad max":          {`{"mcpServers":{"a":{"command":"x","mcpx":{"max":0}}}}`, "mcpServers.a.mcpx.max", "from 1 to 1000"},
		"fraction":         {`{"mcpServers":{"a":{"command":"x","mcpx":{"max":1.5}}}}`, "mcpServers.a.mcpx.max", "whole number"},
		"min over max":     {`{"mcpServers":{"a":{"command":"x","mcpx":{"min":3,"max":2}}}}`, "mcpServers.a.mcpx.min", "more than max"},
		"min of a run":     {`{"mcpServers":{"a":{"command":"x","mcpx":{"min":1,"scope":"run"}}}}`, "mcpServers.a.mcpx.min", "only a server of scope global"},
		"bad regexp":       {`{"mcpServers":{"a":{"command":"x","mcpx":{"tools":["/(/"]}}}}`, "mcpServers.a.mcpx.tools", "not a regular expression"},
		"bad glob":         {`{"mcpServers":{"a":{"command":"x","mcpx":{"tools":["["]}}}}`, "mcpServers.a.mcpx.tools", "neither a name nor a glob"},
		"empty name":       {`{"mcpServers":{"":{"command":"x"}}}`, "mcpServers.", "is no name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, c.text)
			var e *run.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, run.CodeInvalidOption, e.Code)
			require.Equal(t, c.field, e.Field)
			require.Contains(t, e.Message, c.says)
			require.ErrorIs(t, err, errdefs.ErrInvalidArgument)
		})
	}
}

func TestServerInAContainerIsRefusedByName(t *testing.T) {
	_, err := parse(t, `{"mcpServers":{"a":{"command":"x","mcpx":{"image":"alpine"}}}}`)
	var e *run.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, run.CodeUnsupportedOption, e.Code)
	require.Equal(t, "mcpServers.a.mcpx.image", e.Field)
	require.ErrorIs(t, err, errdefs.ErrNotImplemented)
}

func TestNearestConfigurationIsFound(t *testing.T) {
	root, user := t.TempDir(), t.TempDir()
	deep := filepath.Join(root, "a", "b")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a", ".mcpx"), 0o755))
	require.NoError(t, os.MkdirAll(deep, 0o755))
	path, searched := upstream.Find(deep, user)
	require.Empty(t, path)
	require.Equal(t, filepath.Join(deep, ".mcpx.json"), searched[0])
	require.Equal(t, "/etc/mcpx/config.json", searched[len(searched)-1])
	for _, place := range []string{
		filepath.Join(user, "config.json"),
		filepath.Join(root, ".mcp.json"),
		filepath.Join(root, "a", ".mcp.json"),
		filepath.Join(root, "a", ".mcpx", "config.json"),
		filepath.Join(root, "a", ".mcpx.json"),
	} {
		require.NoError(t, os.WriteFile(place, []byte(`{"mcpServers":{"x":{"command":"y"}}}`), 0o600))
		path, _ = upstream.Find(deep, user)
		require.Equal(t, place, path)
	}
	require.NoError(t, os.Mkdir(filepath.Join(deep, ".mcp.json"), 0o755))
	path, _ = upstream.Find(deep, user)
	require.Equal(t, filepath.Join(root, "a", ".mcpx.json"), path, "a directory is no file")
}

func TestLoadedFileKnowsItsProject(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ".mcpx", "config.json")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("\ufeff{\"mcpServers\":{\"x\":{\"command\":\"y\"}}}"), 0o600))
	file, err := upstream.Load(path, nil)
	require.NoError(t, err)
	require.Equal(t, path, file.Path)
	require.Equal(t, dir, file.Servers[0].Cwd)

	require.NoError(t, os.WriteFile(path, []byte(`{"mcpServers":{"x":{}}}`), 0o600))
	_, err = upstream.Load(path, nil)
	require.ErrorContains(t, err, path+": line 1")
	_, err = upstream.Load(filepath.Join(dir, "none"), nil)
	require.ErrorIs(t, err, errdefs.ErrNotFound)
	_, err = upstream.Load(dir, nil)
	require.ErrorContains(t, err, "not a regular file")
}

func FuzzParse(f *testing.F) {
	f.Add(`{"mcpServers":{"a":{"command":"x","args":["${TOKEN}"],"mcpx":{"scope":"run","tools":["/x/"]}},"b":{"url":"http://x"}}}`)
	f.Add("{ // c\n\"mcpServers\": {\"a\":{\"command\":\"\",}},}")
	f.Add(`{"mcpServers":{"a":{"mcpx":{"image":1,"max":1e99}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := parse(t, text)
		if err != nil {
			var e *run.Error
			require.True(t, errors.As(err, &e))
			require.NotNil(t, e.Class)
			require.NotEmpty(t, e.Message)
			return
		}
		for _, s := range file.Servers {
			require.NotEmpty(t, s.Name)
			require.True(t, s.Command != "" || s.URL != "" || s.Problem != "" || strings.Contains(text, "${"))
			require.Positive(t, s.Max)
			require.GreaterOrEqual(t, s.Max, s.Min)
			require.Positive(t, s.CallTimeout)
		}
	})
}
