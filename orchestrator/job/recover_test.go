package job_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

// beVictim is a process that has runs under way, and is to be killed.
func beVictim(dir string) {
	store, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	if err != nil {
		panic(err)
	}
	m, err := job.New(job.Config{Runner: &runner{gate: make(chan struct{})}, Store: store, LogDir: filepath.Join(dir, "logs"),
		Owner: "victim", Slots: 2, Queue: 10, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	for range 4 {
		id, err := m.Submit(context.Background(), run.Request{Source: "wait"}, run.Caller{})
		if err != nil {
			panic(err)
		}
		for e, err := range m.Watch(context.Background(), id, 0) {
			if err != nil {
				panic(err)
			}
			if e.Type == run.EventStart || e.Type == run.EventQueued {
				break
			}
		}
		fmt.Println(id)
	}
	select {}
}

// victim starts such a process, and kills it when its runs are under way.
func victim(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "MCPX_TEST_VICTIM="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var ids []string
	lines := bufio.NewScanner(out)
	for len(ids) < 4 && lines.Scan() {
		ids = append(ids, lines.Text())
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Len(t, ids, 4)
	return ids
}

func logFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "logs", "*", "*"))
	require.NoError(t, err)
	return files
}

func TestRunsOfADeadProcessEndAsLostOnce(t *testing.T) {
	dir := t.TempDir()
	ids := victim(t, dir)
	torn := logFiles(t, dir)[0]
	f, err := os.OpenFile(torn, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"type":"stdout","seq":2,"te`)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	m := managerIn(t, dir, &runner{}, 1, 1)
	lost, err := m.Recover(t.Context(), []string{"victim", "never was"})
	require.NoError(t, err)
	require.Equal(t, 4, lost)
	lost, err = m.Recover(t.Context(), []string{"victim"})
	require.NoError(t, err)
	require.Zero(t, lost)

	for _, id := range ids {
		s, err := m.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Lost, s.State)
		require.Equal(t, run.CodeLost, s.Error.Code)
		require.Contains(t, kinds(t, m, id), "error end")
		result, err := m.Result(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Lost, result.State)
	}
	for _, file := range logFiles(t, dir) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Count(text, []byte(`"type":"end"`)))
		for _, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
			decode(t, line)
		}
	}
}

// Between the end of the log and the row's, a crash must not make a second end.
func TestLogThatHasItsEndDecidesTheState(t *testing.T) {
	dir := t.TempDir()
	id := victim(t, dir)[0]
	log := filepath.Join(dir, "logs", id[len(id)-2:], id+".ndjson")
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"type":"end","seq":2,"ts":"2026-12-01T12:00:00Z","runId":"` + id + `","state":"exited","exitCode":3,"durationMs":9,"timings":{}}` + "\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())

	m := managerIn(t, dir, &runner{}, 1, 1)
	_, err = m.Recover(t.Context(), []string{"victim"})
	require.NoError(t, err)
	s, err := m.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run.Exited, s.State)
	require.Equal(t, 3, *s.ExitCode)
	require.Equal(t, "start end", kinds(t, m, id))
}

// A reader in this process follows the log of another one that lives.
func TestLogOfAnotherProcessCanBeRead(t *testing.T) {
	dir := t.TempDir()
	mine := managerIn(t, dir, &runner{}, 1, 1)
	r := &runner{}
	others := managerIn(t, dir, r, 1, 1)
	id := submit(t, others, "wait", "")
	var types []string
	for e, err := range mine.Watch(t.Context(), id, 0) {
		require.NoError(t, err)
		if types = append(types, e.Type); e.Type == run.EventStart {
			close(r.gate)
		}
	}
	require.Equal(t, []string{run.EventStart, run.EventEnd}, types)
	_, err := mine.Cancel(t.Context(), id, run.ErrCancelled)
	require.NoError(t, err)
}
