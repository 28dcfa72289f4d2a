package enginetest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func endingChecks() []check {
	return []check{
		{"EndedContextEndsTheScript", endedContext},
		{"DeadlineEndsTheScript", deadline},
		{"ScriptMayHandleItsEnd", handledTerm},
		{"ScriptThatIgnoresTermIsKilled", ignoredTerm},
		{"ZeroGraceKills", zeroGrace},
		{"EndTakesDetachedChildren", endTakesDetached},
		{"BusyScriptIsEnded", busyScript},
		{"FloodIsEnded", flood},
		{"ContextEndedBeforeRunStartsNothing", endedBeforeRun},
	}
}

// until calls do, once, when text has been written.
type until struct {
	text string
	do   func()

	mu   sync.Mutex
	seen string
}

func (u *until) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := strings.Contains(u.seen, u.text)
	u.seen += string(p)
	if !before && strings.Contains(u.seen, u.text) {
		u.do()
	}
	return len(p), nil
}

// stop runs a job that says "up", then ends its context, and tells how long the end took.
func (b *bench) stop(c engine.Container, job engine.Job) (exit engine.Exit, output string, took time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	var at time.Time
	out := &until{text: "up\n", do: func() {
		at = time.Now()
		cancel(errEnough)
	}}
	b.within(patience, "end of a script", func() {
		var err error
		exit, err = c.Run(ctx, job, engine.IO{Stdout: out})
		require.NoError(b, err, "how ctx ended is for the caller to know")
	})
	return exit, out.seen, time.Since(at)
}

func endedContext(b *bench) {
	exit, output, took := b.stop(b.prepare(b.spec("sh")), shell("echo up; exec sleep 60"))
	require.Equal(b, engine.Exit{Code: -1, Signal: "SIGTERM"}, exit)
	require.Equal(b, "up\n", output)
	require.Less(b, took, slack)
}

func deadline(b *bench) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	r, err := b.try(ctx, b.prepare(b.spec("sh")), shell("printf A; exec sleep 60"), nil)
	require.NoError(b, err)
	require.Equal(b, engine.Exit{Code: -1, Signal: "SIGTERM"}, r.Exit)
	require.Equal(b, "A", r.stdout, "output before the end is kept")
	require.Less(b, r.took, time.Second+slack)
}

func handledTerm(b *bench) {
	exit, output, _ := b.stop(b.prepare(b.spec("sh")), shell(
		`trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done`))
	require.Equal(b, engine.Exit{Code: 3}, exit)
	require.Equal(b, "up\nbye\n", output)
}

func ignoredTerm(b *bench) {
	job := shell(`trap '' TERM INT HUP; echo up; while :; do sleep 0.2; done`)
	job.Grace = 500 * time.Millisecond
	exit, _, took := b.stop(b.prepare(b.spec("sh")), job)
	require.Equal(b, engine.Exit{Code: -1, Signal: "SIGKILL"}, exit)
	require.GreaterOrEqual(b, took, job.Grace)
	require.Less(b, took, job.Grace+slack)
}

func zeroGrace(b *bench) {
	job := shell(`trap '' TERM; echo up; while :; do sleep 0.2; done`)
	job.Grace = 0
	exit, _, took := b.stop(b.prepare(b.spec("sh")), job)
	require.Equal(b, engine.Exit{Code: -1, Signal: "SIGKILL"}, exit)
	require.Less(b, took, slack)
}

func endTakesDetached(b *bench) {
	mark := marker()
	_, _, took := b.stop(b.prepare(b.spec("sh")), shell(
		`setsid sh -c 'trap "" TERM; : '`+mark+`'; while :; do sleep 0.2; done' > /dev/null 2>&1 < /dev/null &
(setsid sleep 300.`+mark+` > /dev/null 2>&1 &); echo up; exec sleep 300.`+mark))
	require.Less(b, took, slack+5*time.Second)
	require.Empty(b, processes(b, mark))
}

func busyScript(b *bench) {
	exit, _, took := b.stop(b.prepare(b.spec("sh")), shell(`echo up; while :; do :; done`))
	require.Equal(b, engine.Exit{Code: -1, Signal: "SIGTERM"}, exit)
	require.Less(b, took, slack)
}

// flood ends while the connection is as full as it gets.
func flood(b *bench) {
	job := shell(`trap '' TERM; echo up; while :; do head -c 1000000 /dev/zero; done`)
	job.Grace = 200 * time.Millisecond
	exit, _, took := b.stop(b.prepare(b.spec("sh")), job)
	require.Equal(b, engine.Exit{Code: -1, Signal: "SIGKILL"}, exit)
	require.Less(b, took, slack)
}

func endedBeforeRun(b *bench) {
	ctx, cancel := context.WithCancelCause(b.Context())
	cancel(errEnough)
	exit, err := b.prepare(b.spec("sh")).Run(ctx, shell("exit 0"), engine.IO{Started: func() { b.Error("it was started") }})
	require.ErrorIs(b, err, errEnough)
	require.Equal(b, engine.Exit{Code: -1}, exit)
}
