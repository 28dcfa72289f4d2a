package enginetest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func exitChecks() []check {
	return []check{
		{"ExitCodesAreTheScripts", exitCodes},
		{"SignalsAreNamed", signals},
		{"MissingInterpreterIsAStartError", missingInterpreter},
		{"MissingCwdIsAStartError", missingCwd},
		{"StartedIsCalledOnceBeforeOutput", startedOnce},
	}
}

func exitCodes(b *bench) {
	for _, code := range []int{0, 1, 137, 255} {
		b.exits(b.sh(fmt.Sprintf("exit %d", code)), code)
	}
}

func signals(b *bench) {
	for short, name := range map[string]string{"KILL": "SIGKILL", "TERM": "SIGTERM", "SEGV": "SIGSEGV"} {
		r := b.sh("kill -" + short + " $$; sleep 60")
		require.Equal(b, engine.Exit{Code: -1, Signal: name}, r.Exit)
	}
}

func missingInterpreter(b *bench) {
	job := shell("exit 0")
	job.Argv[0] = "nosuchlang"
	b.notStarted(job, "nosuchlang")
}

func missingCwd(b *bench) {
	job := shell("exit 0")
	job.Cwd = "/nope"
	b.notStarted(job, "/nope")
}

// notStarted wants a start error that names the culprit, and the container to
// go on to Collect.
func (b *bench) notStarted(job engine.Job, culprit string) {
	b.Helper()
	c := b.prepare(b.spec("sh"))
	exit, err := c.Run(b.Context(), job, engine.IO{Started: func() { b.Error("nothing was started") }})
	require.NoError(b, err)
	require.Contains(b, exit.StartError, culprit)
	exit.StartError = ""
	require.Equal(b, engine.Exit{Code: -1}, exit)
	require.NoError(b, c.Collect(b.Context(), &shelf{}))
}

// order notes what came in which order. Its methods are called one at a time.
type order struct{ seen []string }

func (o *order) Write(p []byte) (int, error) {
	o.seen = append(o.seen, "output")
	return len(p), nil
}

func startedOnce(b *bench) {
	var o order
	exit, err := b.prepare(b.spec("sh")).Run(b.Context(), shell("echo hi"), engine.IO{
		Stdout: &o, Started: func() { o.seen = append(o.seen, "started") },
	})
	require.NoError(b, err)
	require.Equal(b, engine.Exit{}, exit)
	require.Equal(b, []string{"started", "output"}, o.seen)
}
