package daemon_test

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/supervisor/inittest"
)

// settings are those of a process with the fake engine.
func settings(t *testing.T, state string) daemon.Config {
	t.Helper()
	config, _, err := daemon.Load(daemon.Sources{Process: process(t, nil), Flags: map[string][]string{
		"state": {state}, "engine": {daemon.EngineFake}, "init": {inittest.Build(t)},
	}})
	require.NoError(t, err)
	return config
}

func open(t *testing.T, state string, o daemon.Options) *daemon.Runtime {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	r, err := daemon.Open(t.Context(), settings(t, state), o)
	require.NoError(t, err)
	return r
}

func result(t *testing.T, r *daemon.Runtime, req run.Request) run.Result {
	t.Helper()
	id, err := r.Manager.Submit(t.Context(), req, run.Caller{Principal: "local"})
	require.NoError(t, err)
	done, err := r.Manager.Wait(t.Context(), id)
	require.NoError(t, err)
	return done
}

func TestStateIsNobodyElsesToRead(t *testing.T) {
	state := t.TempDir()
	require.NoError(t, os.Chmod(state, 0o755)) // somebody made it before us
	r := open(t, state, daemon.Options{})
	done := result(t, r, run.Request{Source: "#!/bin/bash\necho hi >$MCPX_OUTBOX/a"})
	require.Len(t, done.Artifacts, 1, "%+v", done)
	require.NoError(t, filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		require.NoError(t, err)
		inside := strings.HasPrefix(path, r.Config.State+"/fake") || strings.HasPrefix(path, r.Config.State+"/run/")
		if !inside && path != state && entry.Type().IsRegular() {
			require.Zero(t, info.Mode().Perm()&0o077, path)
		}
		return nil
	}))
	require.NoError(t, r.Close(t.Context()))
}

func TestLiveStdinReachesTheScript(t *testing.T) {
	r := open(t, t.TempDir(), daemon.Options{Stdin: strings.NewReader("from the caller\n")})
	done := result(t, r, run.Request{Source: "#!/bin/bash\ncat"})
	require.Equal(t, "from the caller\n", done.Stdout)
	require.NoError(t, r.Close(t.Context()))
}

func TestCleanEndLeavesNoOwner(t *testing.T) {
	state := t.TempDir()
	r := open(t, state, daemon.Options{})
	result(t, r, run.Request{Source: "#!/bin/bash\ntrue"})
	require.NoError(t, r.Close(t.Context()))
	for _, pattern := range []string{"owners/*.lock", "run/*", "fake/*"} {
		left, err := filepath.Glob(filepath.Join(state, pattern))
		require.NoError(t, err)
		for _, name := range left {
			require.Equal(t, ".lock", filepath.Base(name))
		}
	}
}

// Whoever cannot be opened must leave the state directory to others.
func TestFailedOpenLeavesNoOwner(t *testing.T) {
	state := t.TempDir()
	config := settings(t, state)
	config.Policy = filepath.Join(state, "missing.yaml")
	_, err := daemon.Open(t.Context(), config, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "missing.yaml")
	own, dead, err := daemon.Acquire(state)
	require.NoError(t, err)
	require.Empty(t, dead)
	require.NoError(t, own.Bury())
}

func TestTidyKeepsWhatIsYoung(t *testing.T) {
	r := open(t, t.TempDir(), daemon.Options{})
	done := result(t, r, run.Request{Source: "#!/bin/bash\ntrue"})
	require.NoError(t, r.Tidy(t.Context()))
	kept, err := r.Manager.Get(t.Context(), done.RunID)
	require.NoError(t, err)
	require.Equal(t, run.Exited, kept.State)
	require.NoError(t, r.Close(t.Context()))
}
