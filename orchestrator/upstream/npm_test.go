package upstream_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/orchestrator/upstream"
)

// installed yields the directory of the servers from npm, for the runs of the
// tests that are against real things. Without npm such a run fails.
func installed(t *testing.T) (modules string, wanted bool) {
	t.Helper()
	if os.Getenv("RUN_ENGINE") == "" {
		t.Log("not run: the servers from npm want RUN_ENGINE")
		return "", false
	}
	lock, err := os.ReadFile("testdata/npm/package-lock.json")
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	sum := sha256.Sum256(lock)
	dir := filepath.Join(cache, "mcpx-test", "npm-"+hex.EncodeToString(sum[:6]))
	output, err := exec.CommandContext(t.Context(), "testdata/npm/install.sh", dir).CombinedOutput()
	require.NoError(t, err, "%s", output)
	return filepath.Join(dir, "node_modules", "@modelcontextprotocol"), true
}

func node(t *testing.T, modules, name string, args ...string) upstream.Server {
	t.Helper()
	return upstream.Server{Name: name, Command: "node", Args: append([]string{filepath.Join(modules, "server-"+name, "dist", "index.js")}, args...),
		Cwd: t.TempDir(), StartTimeout: 2 * time.Minute, CallTimeout: time.Minute}
}

func TestServersFromNpm(t *testing.T) {
	modules, wanted := installed(t)
	if !wanted {
		return
	}
	files := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(files, "a.txt"), []byte("≤ here"), 0o600))
	memory := node(t, modules, "memory")
	memory.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}
	m := manager(t, node(t, modules, "everything", "stdio"), node(t, modules, "filesystem", files), memory)
	for _, s := range m.Servers(t.Context()) {
		require.Empty(t, s.Err, s.Name)
		require.NotEmpty(t, s.Tools, s.Name)
		for _, one := range s.Tools {
			checker, err := tool.CompileArguments(one.InputSchema)
			require.NoError(t, err, "%s.%s", s.Name, one.Name)
			require.NotNil(t, checker.Example(), "%s.%s %s", s.Name, one.Name, one.InputSchema)
		}
	}

	t.Run("everything", func(t *testing.T) {
		text, err := call(t, m, "everything", "echo", `{"message":"hi"}`)
		require.NoError(t, err)
		require.Equal(t, "Echo: hi", text)
		result, err := m.Call(t.Context(), tool.Call{Server: "everything", Tool: "get-structured-content", Arguments: json.RawMessage(`{"location":"Chicago"}`)})
		require.NoError(t, err)
		value, err := tool.Unwrap(result.Raw)
		require.NoError(t, err)
		require.Contains(t, string(value), `"temperature"`)
		result, err = m.Call(t.Context(), tool.Call{Server: "everything", Tool: "get_tiny_image"})
		require.NoError(t, err)
		require.Contains(t, string(result.Raw), `"image/png"`)
		_, err = call(t, m, "everything", "echo", `{"message":7}`)
		require.Equal(t, "arguments.message", problem(t, err, run.CodeInvalidArguments, errdefs.ErrInvalidArgument).Field)
	})
	t.Run("progress", func(t *testing.T) {
		var mu sync.Mutex
		var seen []float64
		_, err := m.Call(t.Context(), tool.Call{Server: "everything", Tool: "trigger-long-running-operation",
			Arguments: json.RawMessage(`{"duration":1,"steps":4}`), Progress: func(done, total float64, _ string) {
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, 4.0, total)
				seen = append(seen, done)
			}})
		require.NoError(t, err)
		require.Equal(t, []float64{1, 2, 3, 4}, seen)
	})
	t.Run("filesystem", func(t *testing.T) {
		arguments, err := json.Marshal(map[string]string{"path": filepath.Join(files, "a.txt")})
		require.NoError(t, err)
		text, err := call(t, m, "filesystem", "read_text_file", string(arguments))
		require.NoError(t, err)
		require.Equal(t, "≤ here", text)
		result, err := m.Call(t.Context(), tool.Call{Server: "filesystem", Tool: "read_text_file", Arguments: json.RawMessage(`{"path":"/etc/shadow"}`)})
		require.NoError(t, err)
		require.True(t, result.IsError)
		require.Contains(t, tool.Text(result.Raw), "Access denied")
		write, err := m.Tool(t.Context(), "filesystem", "write_file")
		require.NoError(t, err)
		require.NotNil(t, write.Destructive)
		require.True(t, *write.Destructive)
	})
	t.Run("memory", func(t *testing.T) {
		_, err := call(t, m, "memory", "create_entities", `{"entities":[{"name":"mcpx","entityType":"program","observations":["runs scripts"]}]}`)
		require.NoError(t, err)
		text, err := call(t, m, "memory", "read_graph", `{}`)
		require.NoError(t, err)
		require.Contains(t, text, "runs scripts")
		_, err = call(t, m, "memory", "create_entities", `{"entities":[{"name":"x"}]}`)
		e := problem(t, err, run.CodeInvalidArguments, errdefs.ErrInvalidArgument)
		require.Contains(t, e.Message, "arguments.entities[0].entityType: is required and missing")
	})
}

// The same server over HTTP, by both transports that it has.
func TestServerFromNpmOverHTTP(t *testing.T) {
	modules, wanted := installed(t)
	if !wanted {
		return
	}
	for kind, transport := range map[string]upstream.Transport{"streamableHttp": upstream.HTTP, "sse": upstream.SSE} {
		t.Run(kind, func(t *testing.T) {
			port := freePort(t)
			cmd := exec.Command("node", filepath.Join(modules, "server-everything", "dist", "index.js"), kind)
			cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
			stderr, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			t.Cleanup(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			lines := bufio.NewScanner(stderr)
			for lines.Scan() && !strings.Contains(lines.Text(), strconv.Itoa(port)) {
			}
			go func() {
				for lines.Scan() {
				}
			}()
			path := map[string]string{"streamableHttp": "/mcp", "sse": "/sse"}[kind]
			m := manager(t, upstream.Server{Name: "far", Transport: transport, URL: "http://127.0.0.1:" + strconv.Itoa(port) + path,
				StartTimeout: 30 * time.Second, CallTimeout: 30 * time.Second})
			text, err := call(t, m, "far", "echo", `{"message":"hi"}`)
			require.NoError(t, err)
			require.Equal(t, "Echo: hi", text)
			var mu sync.Mutex
			var seen []float64
			_, err = m.Call(t.Context(), tool.Call{Server: "far", Tool: "trigger-long-running-operation",
				Arguments: json.RawMessage(`{"duration":1,"steps":3}`), Progress: func(done, _ float64, _ string) {
					mu.Lock()
					defer mu.Unlock()
					seen = append(seen, done)
				}})
			require.NoError(t, err)
			require.Equal(t, []float64{1, 2, 3}, seen)
		})
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
