package orchestrator

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

// The endings of a run must never be taken for one another.
func TestDecideTellsEveryEndingApart(t *testing.T) {
	exit := func(code int) *engine.Exit { return &engine.Exit{Code: code} }
	killed := func(oom bool) *engine.Exit { return &engine.Exit{Code: -1, Signal: "SIGKILL", OOMKilled: oom} }
	for name, c := range map[string]struct {
		ending ending
		state  run.State
		code   string // of the problem, "" for none
		exit   any    // exit code or nil
	}{
		"success":                      {ending{exit: exit(0)}, run.Exited, "", 0},
		"exit 1":                       {ending{exit: exit(1)}, run.Exited, run.CodeExitStatus, 1},
		"exit 137 is no signal":        {ending{exit: exit(137)}, run.Exited, run.CodeExitStatus, 137},
		"kill -9 is no lack of memory": {ending{exit: killed(false)}, run.Signalled, run.CodeSignalled, nil},
		"out of memory":                {ending{exit: killed(true)}, run.OOMKilled, run.CodeOOMKilled, nil},
		"a child ran out of memory":    {ending{exit: &engine.Exit{Code: 7, OOMKilled: true}}, run.Exited, run.CodeExitStatus, 7},
		"time limit":                   {ending{cause: run.ErrTimeout, exit: killed(false)}, run.TimedOut, run.CodeTimedOut, nil},
		"time limit, TERM handled":     {ending{cause: run.ErrTimeout, exit: exit(0)}, run.TimedOut, run.CodeTimedOut, 0},
		"time limit, engine lost it":   {ending{cause: run.ErrTimeout, err: errors.New("x")}, run.TimedOut, run.CodeTimedOut, nil},
		"output limit":                 {ending{cause: run.ErrOutputLimit, exit: killed(false)}, run.OutputLimit, run.CodeOutputLimit, nil},
		"cancelled":                    {ending{cause: run.ErrCancelled, exit: killed(false)}, run.Cancelled, run.CodeCancelled, nil},
		"client gone":                  {ending{cause: run.ErrClientGone, exit: killed(false)}, run.Cancelled, run.CodeCancelled, nil},
		"shutdown":                     {ending{cause: run.ErrShutdown, exit: killed(false)}, run.Cancelled, run.CodeShuttingDown, nil},
		"interpreter not in the image": {ending{exit: &engine.Exit{Code: -1, StartError: "deno: not found"}}, run.Failed, run.CodeStartFailed, nil},
		"engine went away":             {ending{err: fmt.Errorf("docker: %w", errdefs.ErrUnavailable)}, run.Failed, run.CodeEngineUnavailable, nil},
		"engine does not know":         {ending{}, run.Failed, run.CodeInternal, nil},
		"event log cannot be written":  {ending{cause: errors.New("disk full"), exit: killed(false)}, run.Failed, run.CodeInternal, nil},
		"a known error keeps its code": {ending{err: &run.Error{Code: run.CodeImageNotFound, Class: errdefs.ErrNotFound}}, run.Failed, run.CodeImageNotFound, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.ending.decide()
			require.Equal(t, c.state, o.state)
			if c.code == "" {
				require.Nil(t, o.problem)
			} else {
				require.Equal(t, c.code, o.problem.Code)
				require.NotEmpty(t, o.problem.Code)
			}
			if c.exit == nil {
				require.Nil(t, o.exitCode)
			} else {
				require.Equal(t, c.exit, *o.exitCode)
			}
		})
	}
}
