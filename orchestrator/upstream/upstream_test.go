package upstream_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
	"mcpx/orchestrator/upstream"
)

// server is one that this binary plays.
func server(t *testing.T, name, mode string) upstream.Server {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	return upstream.Server{Name: name, Command: binary, Cwd: t.TempDir(), Env: map[string]string{modeVariable: mode},
		StartTimeout: 20 * time.Second, CallTimeout: 20 * time.Second}
}

func lookup(name string) (string, bool) {
	value, ok := map[string]string{"PATH": os.Getenv("PATH"), "HOME": "/nowhere", "DAEMON_SECRET": "do-not-inherit"}[name]
	return value, ok
}

func manager(t *testing.T, servers ...upstream.Server) *upstream.Manager {
	t.Helper()
	return managerIn(t, t.TempDir(), servers...)
}

func managerIn(t *testing.T, dir string, servers ...upstream.Server) *upstream.Manager {
	t.Helper()
	m, err := upstream.New(upstream.Config{Servers: servers, Dir: dir, Lookup: lookup})
	require.NoError(t, err)
	closing(t, m)
	return m
}

func closing(t *testing.T, m *upstream.Manager) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		require.NoError(t, m.Close(ctx))
	})
}

func call(t *testing.T, m *upstream.Manager, server, name, arguments string) (string, error) {
	t.Helper()
	result, err := m.Call(t.Context(), tool.Call{Server: server, Tool: name, Arguments: json.RawMessage(arguments)})
	return tool.Text(result.Raw), err
}

func problem(t *testing.T, err error, code string, class error) *run.Error {
	t.Helper()
	require.Error(t, err)
	var e *run.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%s (%s)", e.Message, e.Hint)
	require.ErrorIs(t, err, class)
	return e
}

func living(pid int) bool { return syscall.Kill(pid, 0) == nil }

func pidOf(t *testing.T, m *upstream.Manager, server string) int {
	t.Helper()
	text, err := call(t, m, server, "pid", "")
	require.NoError(t, err)
	pid, err := strconv.Atoi(text)
	require.NoError(t, err)
	return pid
}

func TestCallReachesTheServerAndItStays(t *testing.T) {
	m := manager(t, server(t, "one", "sdk"))
	text, err := call(t, m, "one", "echo", `{"text":"hi","times":3}`)
	require.NoError(t, err)
	require.Equal(t, "hihihi", text)
	first := pidOf(t, m, "one")
	require.Equal(t, first, pidOf(t, m, "one"))
	status := m.Status()[0]
	require.Equal(t, upstream.Running, status.State)
	require.Equal(t, first, status.Instances[0].PID)
	require.Zero(t, status.Restarts)
}

func TestListingsStartNothingTheSecondTime(t *testing.T) {
	dir := t.TempDir()
	config := server(t, "my-server", "sdk")
	first := managerIn(t, dir, config)
	servers := first.Servers(t.Context())
	require.Len(t, servers, 1)
	require.Empty(t, servers[0].Err)
	require.Equal(t, "my_server", servers[0].Namespace)
	require.NotEmpty(t, servers[0].Tools)

	second := managerIn(t, dir, config)
	began := time.Now()
	require.NotEmpty(t, second.Servers(t.Context())[0].Tools)
	require.Equal(t, upstream.Idle, second.Status()[0].State, "nothing was started")
	require.Less(t, time.Since(began), time.Second)
	echo, err := second.Tool(t.Context(), "my_server", "echo")
	require.NoError(t, err)
	require.True(t, *echo.ReadOnly)
	require.Equal(t, "my-server", echo.Server)
	hits := second.Search(t.Context(), "echo", 3)
	require.Equal(t, "echo", hits[0].Tool.Name)
}

func TestAnotherCommandIsAskedAnew(t *testing.T) {
	dir := t.TempDir()
	require.NotEmpty(t, managerIn(t, dir, server(t, "one", "sdk")).Servers(t.Context())[0].Tools)
	other := server(t, "one", "sdk")
	other.Args = []string{"-another"}
	m := managerIn(t, dir, other)
	require.NotEmpty(t, m.Servers(t.Context())[0].Tools)
	require.Equal(t, upstream.Running, m.Status()[0].State)
}

func TestServerThatDiesFailsItsCallAtOnceAndIsStartedAgain(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Env["API_TOKEN"] = "s3cr3t-value"
	m := manager(t, s)
	first := pidOf(t, m, "one")
	began := time.Now()
	_, err := call(t, m, "one", "die", "")
	e := problem(t, err, run.CodeOutcomeUnknown, errdefs.ErrUnavailable)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Contains(t, e.Message, "outcome is unknown")
	require.Contains(t, e.Message, "exit status 7")
	require.Contains(t, e.Message, "fatal: [redacted] was refused")
	require.NotEqual(t, first, pidOf(t, m, "one"))
	status := m.Status()[0]
	require.Equal(t, 1, status.Restarts)
	require.Contains(t, status.Stderr, "[redacted]")
	text, err := json.Marshal(status)
	require.NoError(t, err)
	require.NotContains(t, string(text), "s3cr3t")
}

func TestServerThatKeepsFailingIsLeftAloneForAWhile(t *testing.T) {
	s := server(t, "one", "crash")
	s.Env["API_TOKEN"] = "s3cr3t-value"
	m := manager(t, s, server(t, "two", "sdk"))
	var e *run.Error
	for range 4 {
		_, err := call(t, m, "one", "echo", `{"text":"x"}`)
		e = problem(t, err, run.CodeUpstreamUnavailable, errdefs.ErrUnavailable)
		require.NotContains(t, e.Message, "s3cr3t")
		require.Error(t, m.Refresh(t.Context(), "one"))
	}
	err := m.Refresh(t.Context(), "one")
	require.ErrorContains(t, err, "in a row and is started again in")
	require.ErrorContains(t, err, "cannot open the database, token=[redacted]")
	require.Equal(t, upstream.Failed, m.Status()[0].State)
	text, err := call(t, m, "two", "echo", `{"text":"unharmed"}`)
	require.NoError(t, err)
	require.Equal(t, "unharmed", text)
}

func TestServerThatNeverInitialisesIsBoundedAndHoldsNobodyUp(t *testing.T) {
	mute := server(t, "mute", "mute")
	mute.StartTimeout = time.Second
	m := manager(t, mute, server(t, "two", "sdk"))
	began := time.Now()
	servers := m.Servers(t.Context())
	require.Less(t, time.Since(began), 15*time.Second)
	require.Contains(t, servers[0].Err, "did not answer initialize in time")
	require.NotEmpty(t, servers[1].Tools)
	began = time.Now()
	require.NotEmpty(t, m.Servers(t.Context())[0].Err)
	require.Less(t, time.Since(began), 500*time.Millisecond, "it is asked once")
}

func TestServerThatKnowsOnlyInitializeIsMet(t *testing.T) {
	old := server(t, "old", "old")
	old.StartTimeout = 4 * time.Second
	m := manager(t, old)
	servers := m.Servers(t.Context())
	require.Empty(t, servers[0].Err)
	require.Equal(t, "veteran", servers[0].Tools[0].Name)
}

func TestCallThatHangsEndsInTimeAndTheServerIsTold(t *testing.T) {
	s := server(t, "one", "sdk")
	s.CallTimeout = 300 * time.Millisecond
	told := filepath.Join(t.TempDir(), "told")
	s.Env["CANCELLED_FILE"] = told
	m := manager(t, s)
	require.NoError(t, m.Refresh(t.Context(), "one"))
	_, err := call(t, m, "one", "hang", "")
	e := problem(t, err, run.CodeUpstreamTimeout, context.DeadlineExceeded)
	require.Contains(t, e.Message, "within 300ms")
	require.Contains(t, e.Message, "unknown")
	require.Eventually(t, func() bool { _, err := os.Stat(told); return err == nil }, 5*time.Second, 10*time.Millisecond)
	_, err = call(t, m, "one", "pid", "")
	require.NoError(t, err, "the server is still of use")
}

func TestCancelledCallIsCancelledUpstream(t *testing.T) {
	s := server(t, "one", "sdk")
	told := filepath.Join(t.TempDir(), "told")
	s.Env["CANCELLED_FILE"] = told
	m := manager(t, s)
	require.NoError(t, m.Refresh(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := m.Call(ctx, tool.Call{Server: "one", Tool: "hang"})
	problem(t, err, run.CodeCancelled, context.Canceled)
	require.Eventually(t, func() bool { _, err := os.Stat(told); return err == nil }, 5*time.Second, 10*time.Millisecond)
}

func TestProgressIsPassedOn(t *testing.T) {
	m := manager(t, server(t, "one", "sdk"))
	var seen []float64
	_, err := m.Call(t.Context(), tool.Call{Server: "one", Tool: "progress", Progress: func(done, total float64, message string) {
		require.Equal(t, 5.0, total)
		require.Equal(t, "step", message)
		seen = append(seen, done)
	}})
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 3, 4, 5}, seen)
}

func TestToolErrorIsAResult(t *testing.T) {
	m := manager(t, server(t, "one", "sdk"))
	result, err := m.Call(t.Context(), tool.Call{Server: "one", Tool: "fail"})
	require.NoError(t, err)
	require.True(t, result.IsError)
	require.Equal(t, "it is not to be", tool.Text(result.Raw))
	require.Empty(t, result.Note)
}

func TestNothingIsLeftBehind(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, m *upstream.Manager){
		"closed": func(t *testing.T, m *upstream.Manager) { require.NoError(t, m.Close(t.Context())) },
		"died": func(t *testing.T, m *upstream.Manager) {
			_, err := call(t, m, "one", "die", "")
			problem(t, err, run.CodeOutcomeUnknown, errdefs.ErrUnavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := manager(t, server(t, "one", "sdk"))
			pids := []int{pidOf(t, m, "one")}
			text, err := call(t, m, "one", "spawn", "")
			require.NoError(t, err)
			for _, field := range strings.Fields(text) {
				pid, err := strconv.Atoi(field)
				require.NoError(t, err)
				require.True(t, living(pid))
				pids = append(pids, pid)
			}
			end(t, m)
			for _, pid := range pids {
				require.Eventually(t, func() bool { return !living(pid) || zombie(pid) }, 5*time.Second, 10*time.Millisecond)
			}
		})
	}
}

// zombie children of a dead server are reaped by whoever is process 1.
func zombie(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestMuteServerThatIgnoresSignalsIsKilled(t *testing.T) {
	mute := server(t, "mute", "mute")
	m := manager(t, mute)
	go m.Servers(t.Context())
	require.Eventually(t, func() bool { return m.Status()[0].State == upstream.Starting }, 5*time.Second, time.Millisecond)
	began := time.Now()
	require.NoError(t, m.Close(t.Context()))
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestCloseBreaksCallsOff(t *testing.T) {
	m := manager(t, server(t, "one", "sdk"))
	require.NoError(t, m.Refresh(t.Context()))
	var work sync.WaitGroup
	work.Go(func() {
		_, err := m.Call(t.Context(), tool.Call{Server: "one", Tool: "hang"})
		problem(t, err, run.CodeOutcomeUnknown, errdefs.ErrUnavailable)
	})
	require.Eventually(t, func() bool {
		i := m.Status()[0].Instances
		return len(i) == 1 && i[0].Calls == 1
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, m.Close(t.Context()))
	work.Wait()
	_, err := call(t, m, "one", "pid", "")
	problem(t, err, run.CodeUpstreamUnavailable, errdefs.ErrUnavailable)
}

func TestStoppedServerIsReplaced(t *testing.T) {
	s := server(t, "one", "sdk")
	s.CallTimeout = 500 * time.Millisecond
	m := manager(t, s)
	first := pidOf(t, m, "one")
	_, err := call(t, m, "one", "stop", "")
	problem(t, err, run.CodeUpstreamTimeout, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return !living(first) }, 15*time.Second, 50*time.Millisecond)
	require.NotEqual(t, first, pidOf(t, m, "one"))
}

func TestIdleServerEnds(t *testing.T) {
	s := server(t, "one", "sdk")
	s.IdleTimeout = 50 * time.Millisecond
	m := manager(t, s)
	first := pidOf(t, m, "one")
	require.Eventually(t, func() bool { return !living(first) }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return m.Status()[0].State == upstream.Idle }, 10*time.Second, 10*time.Millisecond)
	require.NotEqual(t, first, pidOf(t, m, "one"))
	require.Zero(t, m.Status()[0].Restarts)
}

func TestWarmInstancesStay(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Min, s.IdleTimeout = 1, time.Millisecond
	m := manager(t, s)
	m.Warm(t.Context())
	require.Eventually(t, func() bool { return m.Status()[0].State == upstream.Running }, 10*time.Second, 10*time.Millisecond)
	pid := m.Status()[0].Instances[0].PID
	require.Equal(t, pid, pidOf(t, m, "one"))
	require.Never(t, func() bool { return !living(pid) }, 200*time.Millisecond, 20*time.Millisecond)
}

func TestExclusiveServerTakesOneCallAtATime(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Sharing, s.Max = upstream.Exclusive, 2
	m := manager(t, s)
	require.NoError(t, m.Refresh(t.Context()))
	var work sync.WaitGroup
	var mu sync.Mutex
	pids := map[string]int{}
	for range 6 {
		work.Go(func() {
			text, err := call(t, m, "one", "slow", "")
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			pids[text]++
		})
	}
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
			for _, i := range m.Status()[0].Instances {
				require.LessOrEqual(t, i.Calls, 1)
			}
		}
	}
	require.Len(t, pids, 2)
}

func TestScopesKeepHoldersApart(t *testing.T) {
	for scope, calls := range map[upstream.Scope][]struct {
		call tool.Call
		same int // index of an earlier call with the same process, or -1
	}{
		upstream.ScopeSession: {
			{tool.Call{Principal: "a", Session: "s", Run: "1"}, -1},
			{tool.Call{Principal: "a", Session: "s", Run: "2"}, 0},
			{tool.Call{Principal: "b", Session: "s", Run: "3"}, -1},
			{tool.Call{Principal: "a", Run: "4"}, -1},
			{tool.Call{Principal: "a", Run: "4"}, 3},
		},
		upstream.ScopeRun: {
			{tool.Call{Session: "s", Run: "1"}, -1},
			{tool.Call{Session: "s", Run: "2"}, -1},
			{tool.Call{Run: "1"}, 0},
		},
		upstream.ScopeCall: {{tool.Call{Run: "1"}, -1}, {tool.Call{Run: "1"}, -1}},
	} {
		t.Run(string(scope), func(t *testing.T) {
			s := server(t, "one", "sdk")
			s.Scope = scope
			m := manager(t, s)
			var pids []string
			for _, c := range calls {
				c.call.Server, c.call.Tool = "one", "pid"
				result, err := m.Call(t.Context(), c.call)
				require.NoError(t, err)
				pid := tool.Text(result.Raw)
				if c.same >= 0 {
					require.Equal(t, pids[c.same], pid)
				} else {
					require.NotContains(t, pids, pid)
				}
				pids = append(pids, pid)
			}
		})
	}
}

func TestInstancesEndWithTheirHolder(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Scope = upstream.ScopeRun
	m := manager(t, s)
	result, err := m.Call(t.Context(), tool.Call{Server: "one", Tool: "pid", Run: "r1"})
	require.NoError(t, err)
	pid, err := strconv.Atoi(tool.Text(result.Raw))
	require.NoError(t, err)
	m.EndRun("r2")
	require.True(t, living(pid))
	m.EndRun("r1")
	require.Eventually(t, func() bool { return !living(pid) }, 10*time.Second, 10*time.Millisecond)
}

func TestFullScopedServerMakesRoom(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Scope, s.Max = upstream.ScopeRun, 1
	m := manager(t, s)
	for _, id := range []string{"1", "2", "1"} {
		_, err := m.Call(t.Context(), tool.Call{Server: "one", Tool: "pid", Run: id})
		require.NoError(t, err)
	}
}

func TestServerSeesOnlyWhatItIsGiven(t *testing.T) {
	s := server(t, "one", "sdk")
	s.Env["MINE"] = "given"
	m := manager(t, s)
	text, err := call(t, m, "one", "environment", "")
	require.NoError(t, err)
	require.Contains(t, text, "MINE=given")
	require.Contains(t, text, "HOME=/nowhere")
	require.NotContains(t, text, "do-not-inherit")
}

func TestRenamedToolIsUnknownAndTheHistorySaysWhen(t *testing.T) {
	m := manager(t, server(t, "one", "sdk"))
	_, err := call(t, m, "one", "echo", `{"text":"x"}`)
	require.NoError(t, err)
	_, err = call(t, m, "one", "rename", "")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := call(t, m, "one", "echo", `{"text":"x"}`)
		var e *run.Error
		require.ErrorAs(t, err, &e)
		require.Contains(t, []string{run.CodeUnknownTool, run.CodeInvalidArguments}, e.Code)
		return e.Code == run.CodeUnknownTool && strings.Contains(e.Hint, "echo_text") && strings.Contains(e.Hint, "echo changed at 20") &&
			strings.Contains(e.Hint, "removed")
	}, 5*time.Second, 10*time.Millisecond)
	text, err := call(t, m, "one", "echo_text", `{"text":"x"}`)
	require.NoError(t, err)
	require.Equal(t, "new", text)
	require.Len(t, m.Status()[0].Changes, 2)
}

func TestCallThatFailsAfterASchemaChangedIsToldOfIt(t *testing.T) {
	dir := t.TempDir()
	config := server(t, "one", "sdk")
	m := managerIn(t, dir, config)
	require.NoError(t, m.Refresh(t.Context()))
	_, err := call(t, m, "one", "reshape", "")
	require.NoError(t, err)
	const what = "message is new and required, text is gone, times was integer and is string"
	require.Eventually(t, func() bool { return len(m.Status()[0].Changes) == 1 }, 5*time.Second, 10*time.Millisecond)
	_, err = call(t, m, "one", "echo", `{"text":"x"}`)
	e := problem(t, err, run.CodeInvalidArguments, errdefs.ErrInvalidArgument)
	require.Contains(t, e.Hint, "echo changed at 20")
	require.Contains(t, e.Hint, what)
	result, err := m.Call(t.Context(), tool.Call{Server: "one", Tool: "echo", Arguments: json.RawMessage(`{"message":"x"}`)})
	require.NoError(t, err)
	require.True(t, result.IsError)
	require.Contains(t, result.Note, what)
	require.NoError(t, m.Close(t.Context()))

	later := managerIn(t, dir, config)
	require.Contains(t, later.Status()[0].Changes[0].String(), what, "the history outlives the process")
	require.NoError(t, later.Refresh(t.Context()))
	require.Len(t, later.Status()[0].Changes, 2, "a new process has the old schema")
}

func TestServerThatDoesNotReadHoldsACallNoLongerThanItsLimit(t *testing.T) {
	s := server(t, "one", "sdk")
	m := manager(t, s)
	pid := pidOf(t, m, "one")
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	arguments, err := json.Marshal(map[string]string{"text": strings.Repeat("x", 1<<20)})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = m.Call(ctx, tool.Call{Server: "one", Tool: "echo", Arguments: arguments})
	problem(t, err, run.CodeUpstreamTimeout, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Eventually(t, func() bool { return !living(pid) }, 15*time.Second, 20*time.Millisecond)
	text, err := call(t, m, "one", "echo", string(arguments))
	require.NoError(t, err)
	require.Len(t, text, 1<<20)
}
