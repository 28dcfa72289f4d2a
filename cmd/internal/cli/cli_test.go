package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"mcpx/cmd/internal/cli"
	"mcpx/orchestrator/supervisor/inittest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"mcpx": func() { os.Exit(cli.Main()) }, "toolserver": toolServer, "mcpclient": mcpClient,
	})
}

// engineUnderTest is the engine that the scripts use: the fake one, or the one
// that RUN_ENGINE names first.
func engineUnderTest() string {
	if name, _, _ := strings.Cut(os.Getenv("RUN_ENGINE"), ","); name != "" {
		return name
	}
	return "fake"
}

func TestScripts(t *testing.T) { runScripts(t, "testdata/script") }

// The scripts of this directory say what only real containers do.
func TestEngineScripts(t *testing.T) {
	if engineUnderTest() == "fake" {
		t.Log("not run: testdata/engine wants RUN_ENGINE=docker")
		return
	}
	runScripts(t, "testdata/engine")
}

func runScripts(t *testing.T, dir string) {
	init := inittest.Build(t)
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(scriptTime),
		Setup: func(e *testscript.Env) error {
			e.Defer(func() { endDaemon(e.WorkDir) })
			home := filepath.Join(e.WorkDir, "home")
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			config := filepath.Join(home, "config.yaml")
			e.Setenv("HOME", home)
			e.Setenv("XDG_RUNTIME_DIR", home)
			e.Setenv("MCPX_CONFIG", config)
			e.Setenv("MCPX_ENGINE", engineUnderTest())
			e.Setenv("MCPX_INIT", init)
			e.Setenv("MCPX_LOG_LEVEL", "error") // the fake engine warns of itself
			e.Setenv("MCPX_STATE", filepath.Join(e.WorkDir, "state"))
			return os.WriteFile(config, nil, 0o600)
		},
		Condition: func(name string) (bool, error) { return name == engineUnderTest(), nil },
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"lines": lines, "nothingleft": nothingLeft},
	})
}

// scriptTime is how long all scripts may take.
const scriptTime = 3 * time.Minute

// endDaemon ends the daemon of a script that did not come to its end.
func endDaemon(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "daemon.pid"))
	if err != nil {
		return
	}
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// lines checks how many lines a stream of the last command has: lines stderr 1.
func lines(ts *testscript.TestScript, neg bool, args []string) {
	text := strings.TrimSuffix(ts.ReadFile(args[0]), "\n")
	n := 0
	if text != "" {
		n = strings.Count(text, "\n") + 1
	}
	if (args[1] == strconv.Itoa(n)) == neg {
		ts.Fatalf("%s has %d lines:\n%s", args[0], n, text)
	}
}

// nothingLeft checks that no control directory and no owner outlives a command.
func nothingLeft(ts *testscript.TestScript, _ bool, _ []string) {
	for _, pattern := range []string{"run/*", "owners/*.lock", "fake/*"} {
		found, err := filepath.Glob(filepath.Join(ts.Getenv("MCPX_STATE"), pattern))
		ts.Check(err)
		for _, name := range found {
			if filepath.Base(name) != ".lock" {
				ts.Fatalf("%s is left", name)
			}
		}
	}
}
