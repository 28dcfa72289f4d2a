package upstream_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/tool"
	"mcpx/orchestrator/upstream"
)

// BenchmarkCall tells what a call costs more than one by the SDK alone, both
// to a server of the same program, in turns.
func BenchmarkCall(b *testing.B) {
	binary, err := os.Executable()
	require.NoError(b, err)
	cmd := exec.Command(binary)
	cmd.Env = []string{modeVariable + "=sdk"}
	direct, err := mcp.NewClient(&mcp.Implementation{Name: "bench"}, nil).Connect(b.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	require.NoError(b, err)
	defer direct.Close()
	m, err := upstream.New(upstream.Config{Dir: b.TempDir(), Servers: []upstream.Server{{Name: "one", Command: binary, Cwd: b.TempDir(),
		Env: map[string]string{modeVariable: "sdk"}}}})
	require.NoError(b, err)
	defer m.Close(b.Context())
	arguments := json.RawMessage(`{"text":"hi"}`)
	var ours, theirs []time.Duration
	for b.Loop() {
		began := time.Now()
		_, err := m.Call(b.Context(), tool.Call{Server: "one", Tool: "echo", Arguments: arguments})
		ours = append(ours, time.Since(began))
		require.NoError(b, err)
		began = time.Now()
		_, err = direct.CallTool(b.Context(), &mcp.CallToolParams{Name: "echo", Arguments: arguments})
		theirs = append(theirs, time.Since(began))
		require.NoError(b, err)
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	at := func(all []time.Duration, q float64) float64 {
		return float64(all[int(float64(len(all)-1)*q)].Microseconds())
	}
	b.ReportMetric(at(ours, 0.5), "p50-µs")
	b.ReportMetric(at(theirs, 0.5), "sdk-p50-µs")
	b.ReportMetric(at(ours, 0.99), "p99-µs")
	b.ReportMetric(at(theirs, 0.99), "sdk-p99-µs")
}

// BenchmarkListings has 50 servers of 40 tools, from the catalogue.
func BenchmarkListings(b *testing.B) {
	dir := b.TempDir()
	var servers []upstream.Server
	for i := range 50 {
		servers = append(servers, upstream.Server{Name: fmt.Sprintf("server-%d", i), Command: "nothing"})
	}
	fill(b, dir, servers)
	m, err := upstream.New(upstream.Config{Dir: dir, Servers: servers})
	require.NoError(b, err)
	defer m.Close(b.Context())
	require.Len(b, m.Servers(b.Context())[7].Tools, 40)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			other, err := upstream.New(upstream.Config{Dir: dir, Servers: servers})
			require.NoError(b, err)
			require.NoError(b, other.Close(b.Context()))
		}
	})
	b.Run("ls", func(b *testing.B) {
		for b.Loop() {
			m.Servers(b.Context())
		}
	})
	b.Run("search", func(b *testing.B) {
		for b.Loop() {
			m.Search(b.Context(), "tool 17 of server", 20)
		}
	})
}

// fill writes the catalogue as if each server had listed forty tools.
func fill(b *testing.B, dir string, servers []upstream.Server) {
	b.Helper()
	var tools []tool.Tool
	for i := range 40 {
		tools = append(tools, tool.Tool{Name: fmt.Sprintf("tool_%d", i), Description: strings.Repeat("does this and that ", 10),
			InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","description":"where"},"depth":{"type":"integer"}},"required":["path"]}`)})
	}
	for _, s := range servers {
		require.NoError(b, upstream.SaveRecord(dir, s, tools))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(b, err)
	require.Len(b, files, len(servers))
}
