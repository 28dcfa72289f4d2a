package job_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
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

// victim starts such a process, and kills it when its runs are under way: the
// first two run, the other two wait.
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

func logOf(dir, id string) string { return filepath.Join(dir, "logs", id[len(id)-2:], id+".ndjson") }

func addTo(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func removeAll(t *testing.T, files []string) {
	t.Helper()
	for _, file := range files {
		require.NoError(t, os.Remove(file))
	}
}

// wholeLog checks that every line of a log can be read, and that it ends once.
func wholeLog(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(text, []byte(`"type":"end"`)), "%s", text)
	for _, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		var e run.Event
		require.NoError(t, json.Unmarshal(line, &e), "%s", line)
	}
}

func TestRunsOfADeadProcessEndAsLostOnce(t *testing.T) {
	dir := t.TempDir()
	ids := victim(t, dir)
	m := managerIn(t, dir, &runner{}, 1, 1)
	lost, err := m.Recover(t.Context(), []string{"victim", "never was"})
	require.NoError(t, err)
	require.Equal(t, 4, lost)
	lost, err = m.Recover(t.Context(), []string{"victim"})
	require.NoError(t, err)
	require.Zero(t, lost)

	for i, id := range ids {
		s, err := m.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Lost, s.State)
		require.Equal(t, run.CodeLost, s.Error.Code)
		require.NotNil(t, s.EndedAt)
		require.Equal(t, i < 2, s.StartedAt != nil)
		require.Equal(t, []string{"start", "queued"}[i/2]+" error end", kinds(t, m, id))
		result, err := m.Result(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, run.Lost, result.State)
		wholeLog(t, logOf(dir, id))
	}
}

const outLine = `{"type":"stdout","seq":2,"ts":"2026-12-01T12:00:00Z","text":"out"}` + "\n"

func TestWhatWasWrittenStaysReadable(t *testing.T) {
	for name, c := range map[string]struct{ tail, kinds string }{
		"torn":                      {outLine + `{"type":"stdout","seq":3,"te`, "start stdout error end"},
		"torn before its line feed": {outLine + outLine[:len(outLine)-1], "start stdout error end"},
		"zeros":                     {outLine + "\x00\x00\x00\x00\n\x00", "start stdout error end"},
		"written twice":             {outLine + outLine, "start stdout error end"},
		"a cut-off object":          {outLine + `{"type":"end","seq":3}x` + "\n", "start stdout error end"},
		"nothing":                   {"", "start error end"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			id := victim(t, dir)[0]
			addTo(t, logOf(dir, id), c.tail)
			m := managerIn(t, dir, &runner{}, 1, 1)
			lost, err := m.Recover(t.Context(), []string{"victim"})
			require.NoError(t, err)
			require.Equal(t, 4, lost)
			require.Equal(t, c.kinds, kinds(t, m, id))
			result, err := m.Result(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, int64(len(result.Stdout)), result.StdoutBytes)
			wholeLog(t, logOf(dir, id))
		})
	}
}

// A log of a newer program is not cut off at what this one doesn't know.
func TestUnknownEventsAreKept(t *testing.T) {
	dir := t.TempDir()
	id := victim(t, dir)[0]
	addTo(t, logOf(dir, id), `{"type":"novelty","seq":2,"x":1}`+"\n"+`{"type":"log","seq":3,"level":"info","message":"m"}`+"\n")
	m := managerIn(t, dir, &runner{}, 1, 1)
	_, err := m.Recover(t.Context(), []string{"victim"})
	require.NoError(t, err)
	text, err := os.ReadFile(logOf(dir, id))
	require.NoError(t, err)
	require.Contains(t, string(text), "novelty")
	require.Contains(t, string(text), `"type":"end","seq":5`)
}

// Between the end of the log and the row's, a crash must not make a second end.
func TestLogThatHasItsEndDecidesTheState(t *testing.T) {
	dir := t.TempDir()
	id := victim(t, dir)[0]
	addTo(t, logOf(dir, id), `{"type":"error","seq":2,"code":"exit_status","message":"exited with 3"}`+"\n"+
		`{"type":"end","seq":3,"ts":"2026-12-01T12:00:00Z","runId":"`+id+`","state":"exited","exitCode":3,"durationMs":9,"timings":{}}`+"\n")
	m := managerIn(t, dir, &runner{}, 1, 1)
	lost, err := m.Recover(t.Context(), []string{"victim"})
	require.NoError(t, err)
	require.Equal(t, 3, lost, "the other three")
	s, err := m.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run.Exited, s.State)
	require.Equal(t, 3, *s.ExitCode)
	require.Equal(t, run.CodeExitStatus, s.Error.Code)
	require.Equal(t, noon.Truncate(1e9), *s.EndedAt)
	require.Equal(t, "start error end", kinds(t, m, id))
	wholeLog(t, logOf(dir, id))
}

func TestRunWithoutALogIsLostToo(t *testing.T) {
	dir := t.TempDir()
	ids := victim(t, dir)
	removeAll(t, logFiles(t, dir))
	m := managerIn(t, dir, &runner{}, 1, 1)
	lost, err := m.Recover(t.Context(), []string{"victim"})
	require.NoError(t, err)
	require.Equal(t, 4, lost)
	require.Equal(t, "error end", kinds(t, m, ids[0]))
}

func TestTwoWhoRecoverAtOnce(t *testing.T) {
	dir := t.TempDir()
	ids := victim(t, dir)
	var lost atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		m := managerIn(t, dir, &runner{}, 1, 1)
		wg.Go(func() {
			n, err := m.Recover(t.Context(), []string{"victim"})
			if err != nil {
				t.Error(err)
			}
			lost.Add(int64(n))
		})
	}
	wg.Wait()
	require.Equal(t, int64(4), lost.Load())
	for _, id := range ids {
		wholeLog(t, logOf(dir, id))
	}
}
