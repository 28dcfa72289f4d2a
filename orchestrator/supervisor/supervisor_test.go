package supervisor_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/supervisor"
	"mcpx/orchestrator/supervisor/inittest"
	"mcpx/orchestrator/supervisor/proctree"
)

func TestExits(t *testing.T) {
	for text, want := range map[string]engine.Exit{
		"exit 0":        {},
		"exit 1":        {Code: 1},
		"exit 137":      {Code: 137},
		"exit 255":      {Code: 255},
		"kill -9 $$":    {Code: -1, Signal: "SIGKILL"},
		"kill -TERM $$": {Code: -1, Signal: "SIGTERM"},
		"kill -SEGV $$": {Code: -1, Signal: "SIGSEGV"},
		"kill -36 $$":   {Code: -1, Signal: "SIGRTMIN+2"},
	} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, want, do(t, sh(text)).Exit)
		})
	}
}

func TestStartErrors(t *testing.T) {
	for name, c := range map[string]struct {
		job  job
		want string
	}{
		"no interpreter":          {job{argv: []string{"nosuchlang"}}, "nosuchlang is not on the PATH /usr/bin:/bin"},
		"no PATH":                 {job{argv: []string{"nosuchlang"}, env: []string{"A=b"}}, "/usr/local/bin"},
		"no such path":            {job{argv: []string{"/no/such"}}, "/no/such: no such file"},
		"not executable":          {job{argv: []string{"/sys/fs/cgroup/text"}}, "permission denied"},
		"not executable, by PATH": {job{argv: []string{"text"}, env: []string{"PATH=/sys/fs/cgroup"}}, "/sys/fs/cgroup/text can't be executed"},
		"no cwd":                  {job{argv: []string{"sh"}, cwd: "/nope"}, "working directory"},
		"cwd is a file":           {job{argv: []string{"sh"}, cwd: "/sys/fs/cgroup/text"}, "not a directory"},
		"cwd is closed":           {job{argv: []string{"sh"}, cwd: "/sys/fs/cgroup/closed"}, "permission denied"},
		"no command":              {job{argv: []string{}}, "no command"},
		"NUL":                     {job{argv: []string{"sh", "a\x00b"}}, "invalid argument"},
		"a huge variable":         {job{argv: []string{"sh"}, env: []string{"PATH=/bin", "A=" + strings.Repeat("x", 200_000)}}, "argument list too long"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, func(s *stage) {
				require.NoError(t, os.WriteFile(filepath.Join(s.Cgroup, "text"), []byte("text"), 0o644))
				require.NoError(t, os.Mkdir(filepath.Join(s.Cgroup, "closed"), 0o700))
				if os.Getuid() != 0 { // then the box has our uid
					require.NoError(t, os.Chmod(filepath.Join(s.Cgroup, "closed"), 0))
				}
			})
			got := b.do(c.job)
			require.Contains(t, got.StartError, c.want)
			require.Equal(t, -1, got.Code)
			require.NoError(t, b.Collect(t.Context(), newSink()))
		})
	}
}

func TestProgramIsFound(t *testing.T) {
	for name, j := range map[string]job{
		"by path":               {argv: []string{"/bin/echo", "hi"}},
		"on PATH":               {argv: []string{"echo", "hi"}},
		"on the last PATH":      {argv: []string{"echo", "hi"}, env: []string{"PATH=/nope", "PATH=/nope:/usr/bin"}},
		"without PATH":          {argv: []string{"echo", "hi"}, env: []string{}},
		"relative to cwd":       {argv: []string{"./echo", "hi"}, cwd: "/usr/bin"},
		"on PATH relative":      {argv: []string{"echo", "hi"}, cwd: "/usr", env: []string{"PATH=bin"}},
		"in the current by ::":  {argv: []string{"echo", "hi"}, cwd: "/usr/bin", env: []string{"PATH=/nope::"}},
		"directory of the name": {argv: []string{"echo", "hi"}, env: []string{"PATH=/sys/fs/cgroup:/bin"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, func(s *stage) { require.NoError(t, os.Mkdir(filepath.Join(s.Cgroup, "echo"), 0o755)) })
			got := b.do(j)
			require.Equal(t, "hi\n", got.out, got.StartError)
		})
	}
}

func TestScriptSeesItsEnvironmentAndNoMore(t *testing.T) {
	got := do(t, job{argv: []string{"/usr/bin/env"}, env: []string{"B=2", "A=\xff é", "MCPX_RUN=r"}})
	require.Equal(t, "B=2\nA=\xff é\nMCPX_RUN=r\n", got.out)
}

func TestScriptComesUpClean(t *testing.T) {
	got := do(t, script("state"))
	require.Equal(t, strings.Join([]string{
		"leads its session: true", "pipes and sockets: 3", "blocks: true", "blocks: true", "blocks: true",
		"score: 500", "score: 0", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "",
	}, "\n"), got.out, got.err)
}

func TestOutputPassesUnchanged(t *testing.T) {
	got := do(t, sh("/test script noise & /test script noise >&2; wait"))
	var want strings.Builder
	require.NoError(t, noise(&want, 1))
	require.True(t, want.String() == got.out, "stdout has %d bytes", len(got.out))
	require.True(t, want.String() == got.err, "stderr has %d bytes", len(got.err))
}

func TestOutputOfManyKillsIsKept(t *testing.T) {
	// What was written right before the end is in the pipe when no one lives.
	for range 20 {
		require.Equal(t, "a\nb", do(t, sh(`printf 'a\nb'; kill -9 $$`)).out)
	}
}

func TestStdin(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 3<<16)
	for name, c := range map[string]struct {
		stdin io.Reader
		text  string
		want  string
	}{
		"none":            {nil, `read x; echo "[$x]"`, "[]\n"},
		"empty":           {strings.NewReader(""), `read x; echo "[$x]"`, "[]\n"},
		"some":            {strings.NewReader("hi\n"), `read x; echo "[$x]"`, "[hi]\n"},
		"large":           {strings.NewReader(large), "cat", large},
		"not read":        {strings.NewReader(large), "echo done", "done\n"},
		"not read, waits": {strings.NewReader(large), "exec 0<&-; echo done", "done\n"},
		"endless":         {endless{}, "head -c 1000000 | wc -c", "1000000\n"},
		"endless, closed": {endless{}, "exec 0<&-; echo done", "done\n"},
	} {
		t.Run(name, func(t *testing.T) {
			j := sh(c.text)
			j.stdin = c.stdin
			got := do(t, j)
			require.True(t, c.want == got.out, "%d bytes: %.80s", len(got.out), got.out)
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestNothingOutlivesTheScript(t *testing.T) {
	for name, text := range map[string]string{
		"background":          "sleep 300 & echo done",
		"session":             "setsid sleep 300 </dev/null >/dev/null 2>&1 & echo done",
		"daemon":              "(setsid sh -c 'sleep 300 & sleep 300' &) ; echo done",
		"deaf":                "(trap '' TERM INT HUP; exec sleep 300) & echo done",
		"stopped":             "sleep 300 & kill -STOP $!; echo done",
		"holding the pipe":    "(while :; do sleep 300; done) & echo done",
		"hundreds":            "i=0; while [ $i -lt 300 ]; do sleep 300 & i=$((i+1)); done; echo done",
		"forking all the way": "(while :; do sleep 0 & done) & echo done",
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, "done\n", do(t, sh(text)).out) })
		t.Run(name+", on a host", func(t *testing.T) {
			b := openOnHost(t)
			require.Equal(t, "done\n", b.do(sh(text)).out)
			below, err := proctree.Descendants(b.cmd.Process.Pid)
			require.NoError(t, err)
			require.Empty(t, below)
		})
	}
}

func TestForkBombEnds(t *testing.T) {
	for name, text := range map[string]string{
		"first one leaves": "b() { b | b & }; b; echo done",
		"first one stays":  "echo done; b() { b & b & wait; }; b",
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, func(s *stage) { s.Pids = 200 })
			j := sh(text)
			j.on = "done"
			b.do(j)
		})
	}
}

func TestOrphansAreReaped(t *testing.T) {
	got := do(t, script("orphans"))
	require.Equal(t, "reaped\n", got.out, got.err)
}

// Where a shell traps and has a child, the child is made first: one that is
// still the shell when the signal comes would take the trap for its own, and
// then become a sleep that never heard of it.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		grace time.Duration
		want  engine.Exit
		out   string
	}{
		"default action":        {"echo ready; sleep 300", patience, engine.Exit{Code: -1, Signal: "SIGTERM"}, "ready\n"},
		"handler":               {"sleep 300 & trap 'echo bye; exit 7' TERM; echo ready; wait", patience, engine.Exit{Code: 7}, "ready\nbye\n"},
		"deaf":                  {"trap '' TERM INT HUP; echo ready; sleep 300", 50 * time.Millisecond, engine.Exit{Code: -1, Signal: "SIGKILL"}, "ready\n"},
		"no grace":              {"trap '' TERM; echo ready; sleep 300", 0, engine.Exit{Code: -1, Signal: "SIGKILL"}, "ready\n"},
		"stopped":               {"echo ready; kill -STOP $$; sleep 300", patience, engine.Exit{Code: -1, Signal: "SIGTERM"}, "ready\n"},
		"another session":       {"setsid sh -c 'sleep 300 & trap \"echo bye; exit\" TERM; echo ready; wait' & wait", patience, engine.Exit{Code: -1, Signal: "SIGTERM"}, "ready\nbye\n"},
		"output without end":    {"trap '' TERM; echo ready; yes", 50 * time.Millisecond, engine.Exit{Code: -1, Signal: "SIGKILL"}, ""},
		"deaf child of another": {"(trap '' TERM; echo ready; sleep 300) & wait", 50 * time.Millisecond, engine.Exit{Code: -1, Signal: "SIGTERM"}, "ready\n"},
	} {
		run := func(t *testing.T, b *box) {
			j := sh(c.text)
			j.on, j.grace = "ready", c.grace
			got := b.do(j)
			require.Equal(t, c.want, got.Exit)
			if c.out != "" {
				require.Equal(t, c.out, got.out)
			}
		}
		t.Run(name, func(t *testing.T) { run(t, open(t, nil)) })
		t.Run(name+", on a host", func(t *testing.T) { run(t, openOnHost(t)) })
	}
}

func TestLostConnectionEndsAll(t *testing.T) {
	t.Run("before the job", func(t *testing.T) {
		b := open(t, nil)
		require.NoError(t, b.Close())
		b.gone()
	})
	t.Run("after the job", func(t *testing.T) {
		b := open(t, nil)
		b.do(sh("true"))
		require.NoError(t, b.Close())
		b.gone()
	})
	text := "(setsid sleep 300 </dev/null >/dev/null 2>&1 &); trap '' TERM; echo ready; sleep 300"
	for name, open := range map[string]func(*testing.T) *box{
		"in a box": func(t *testing.T) *box { return open(t, nil) }, "on a host": openOnHost,
	} {
		t.Run("under the job, "+name, func(t *testing.T) {
			b := open(t)
			var below []proctree.Process
			out := watch{for_: "ready", seen: func() {
				below, _ = proctree.Descendants(b.cmd.Process.Pid)
				b.Close()
			}}
			_, err := b.Run(t.Context(), engine.Job{Argv: []string{"/bin/sh", "-c", text}, Cwd: "/"}, engine.IO{Stdout: &out})
			require.Error(t, err)
			b.gone()
			require.NotEmpty(t, below)
			for _, p := range below {
				ended, err := p.Wait(patience)
				require.NoError(t, err)
				require.True(t, ended)
			}
		})
	}
}

func TestKilledInitTakesTheScriptAlong(t *testing.T) {
	b := openOnHost(t)
	var below []proctree.Process
	out := watch{for_: "ready", seen: func() {
		below, _ = proctree.Descendants(b.cmd.Process.Pid)
		b.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // the error would show below
	}}
	_, err := b.Run(t.Context(), engine.Job{Argv: []string{"/bin/sh", "-c", "echo ready; exec sleep 300"}, Cwd: "/"}, engine.IO{Stdout: &out})
	require.Error(t, err)
	require.Len(t, below, 1)
	ended, err := below[0].Wait(patience)
	require.NoError(t, err)
	require.True(t, ended)
}

func TestInitStandsSignals(t *testing.T) {
	got := do(t, script("attack"))
	require.Equal(t, engine.Exit{}, got.Exit)
	require.Equal(t, "init stands\n", got.out)
}

func TestInitCannotBeLookedInto(t *testing.T) {
	require.Equal(t, "done\n", do(t, script("peep")).out)
}

func TestDescriptorOutsideDoesNotHoldTheEndUp(t *testing.T) {
	b := open(t, nil)
	deaf(t, b.stage.Control)
	got := b.do(script("smuggle"))
	require.Equal(t, engine.Exit{}, got.Exit, got.err)
	require.Equal(t, "before\n", got.out)
}

func TestMemoryKillsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		file, before, after string
		kills               int
		known               bool
	}{
		"v2":           {"memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 9\n", "oom 8\noom_kill 5\n", 2, true},
		"v1":           {"memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "under_oom 0\noom_kill 1\n", 1, true},
		"none":         {"memory.events", "oom_kill 3\n", "oom_kill 3\n", 0, true},
		"not there":    {"other", "oom_kill 3\n", "oom_kill 4\n", 0, false},
		"no count":     {"memory.events", "oom 3\n", "oom 4\n", 0, false},
		"senseless":    {"memory.events", "oom_kill x\n", "oom_kill -4\n", 0, false},
		"went back":    {"memory.events", "oom_kill 3\n", "oom_kill 2\n", 0, false},
		"disappearing": {"memory.events", "oom_kill 3\n", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, func(s *stage) {
				path := filepath.Join(s.Cgroup, c.file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(c.before), 0o666))
				require.NoError(t, os.Chmod(path, 0o666))
			})
			got := b.do(job{argv: []string{"/bin/sh", "-c", `printf %s "$1" > "/sys/fs/cgroup/$0"`, c.file, c.after}})
			require.Zero(t, got.Code, got.err)
			require.Equal(t, c.kills > 0, got.OOMKilled)
			kills, known := b.OOMKills()
			require.Equal(t, c.kills, kills)
			require.Equal(t, c.known, known)
		})
	}
}

func TestRelayReachesTheSocket(t *testing.T) {
	b := open(t, nil)
	require.Equal(t, "127.0.0.1:7717", b.Endpoint())
	require.Empty(t, b.Problems())
	got := b.do(script("call", b.Endpoint()))
	require.Equal(t, "true true\n", got.out, got.err)
}

func TestRelayEndsWithTheScript(t *testing.T) {
	b := open(t, nil)
	text := `i=0; while [ $i -lt 70 ]; do /test script call 127.0.0.1:7717 & i=$((i+1)); done; wait; echo done`
	require.Contains(t, b.do(sh(text)).out, "done\n")
}

func TestRelaySurvivesWantOfDescriptors(t *testing.T) {
	b := open(t, func(s *stage) { s.NoFile = 24 })
	text := `i=0; while [ $i -lt 40 ]; do /test script call 127.0.0.1:7717 & i=$((i+1)); done; wait; echo done`
	require.Contains(t, b.do(sh(text)).out, "done\n")
	got := newSink()
	require.NoError(t, b.Collect(t.Context(), got))
}

func TestRelayThatCannotListenIsTold(t *testing.T) {
	b := open(t, func(s *stage) { s.LoDown = true })
	require.NotEmpty(t, b.Problems(), "nobody brought the loopback up, and init can't")
	require.Zero(t, b.do(sh("exit 0")).Code, "the script runs all the same")
}

func TestLoopbackIsBroughtUp(t *testing.T) {
	b := open(t, func(s *stage) { s.LoDown, s.Caps = true, true })
	require.Empty(t, b.Problems())
	require.Equal(t, "loopback: <nil>\n", b.do(script("loopback")).out)
}

func TestSlowReaderSlowsTheScript(t *testing.T) {
	b := open(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var most int64
	slow := writerFunc(func(p []byte) (int, error) {
		most += int64(len(p))
		if most > 1<<20 {
			cancel()
		}
		return len(p), nil
	})
	_, err := b.Run(ctx, engine.Job{Argv: []string{"/usr/bin/yes"}, Cwd: "/"}, engine.IO{Stdout: slow})
	require.NoError(t, err)
	// Beside what was read there is room in two pipes and a socket only.
	require.Less(t, most, int64(64<<20))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestInitIsForContainersOnly(t *testing.T) {
	err := supervisor.Run(t.Context(), supervisor.Config{SocketPath: filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, supervisor.ErrNotFirst)
	// Signal 0 only asks: if the guard were gone, nothing would happen but this failure.
	require.ErrorIs(t, supervisor.SignalEveryone(syscall.Signal(0)), supervisor.ErrNotFirst)
	out, err := exec.Command(inittest.Build(t)).CombinedOutput()
	exit := new(exec.ExitError)
	require.True(t, errors.As(err, &exit))
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, string(out), "not the first process")
}
