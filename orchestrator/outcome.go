package orchestrator

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

// ending is everything that decides what a run came to.
type ending struct {
	cause error        // why the run's context ended, nil if it did not
	exit  *engine.Exit // nil when the engine could not tell
	err   error        // why the engine could not do its part
}

// outcome is how a run ended: pure, so that every mix of a cause, an exit and
// an engine's fault can be a line in a table.
type outcome struct {
	state    run.State
	exitCode *int
	signal   string
	oom      bool
	problem  *run.Error // nil only for exit code 0
}

// decide weighs in this order: what we ended, what the engine could not do,
// what ended the script from outside, what the script did.
func (e ending) decide() outcome {
	o := outcome{}
	if e.exit != nil {
		o.signal, o.oom = e.exit.Signal, e.exit.OOMKilled
		if e.exit.Signal == "" && e.exit.StartError == "" {
			code := e.exit.Code
			o.exitCode = &code
		}
	}
	switch {
	case e.cause != nil:
		o.state, o.problem = endedByUs(e.cause)
	case e.exit == nil || e.err != nil:
		o.state, o.problem = run.Failed, failure(e.err)
	case e.exit.StartError != "":
		o.state, o.problem = run.Failed, notStarted(e.exit.StartError)
	case o.oom && o.signal == "SIGKILL":
		o.state = run.OOMKilled
		o.problem = &run.Error{Code: run.CodeOOMKilled, Message: "the script used more memory than its policy grants"}
	case o.signal != "":
		o.state = run.Signalled
		o.problem = &run.Error{Code: run.CodeSignalled, Message: "the script was ended by " + o.signal}
	default:
		o.state = run.Exited
		if *o.exitCode != 0 {
			o.problem = &run.Error{Code: run.CodeExitStatus, Message: fmt.Sprintf("the script exited with %d", *o.exitCode)}
		}
	}
	return o
}

func endedByUs(cause error) (run.State, *run.Error) {
	switch {
	case errors.Is(cause, run.ErrTimeout):
		return run.TimedOut, &run.Error{Code: run.CodeTimedOut, Message: "the script ran into its time limit",
			Hint: "ask for more with options.timeout, up to the policy's timeoutMax"}
	case errors.Is(cause, run.ErrOutputLimit):
		return run.OutputLimit, &run.Error{Code: run.CodeOutputLimit, Message: "the script wrote more than its policy's output.limit",
			Hint: "write large results to files in $MCPX_OUTBOX"}
	case errors.Is(cause, run.ErrClientGone):
		return run.Cancelled, &run.Error{Code: run.CodeCancelled, Message: "the caller went away"}
	case errors.Is(cause, run.ErrShutdown):
		return run.Cancelled, &run.Error{Code: run.CodeShuttingDown, Message: "the daemon went down"}
	case errors.Is(cause, run.ErrCancelled):
		return run.Cancelled, &run.Error{Code: run.CodeCancelled, Message: "the run was cancelled"}
	}
	return run.Failed, failure(cause)
}

func notStarted(reason string) *run.Error {
	return &run.Error{Code: run.CodeStartFailed, Message: reason, Class: errdefs.ErrFailedPrecondition,
		Hint: "the policy's image must hold the interpreter; see `mcpx policy explain` and `mcpx images ls`"}
}

// failure tells whose fault it was, as far as the error's class says.
func failure(err error) *run.Error {
	var known *run.Error
	switch {
	case err == nil:
		return &run.Error{Code: run.CodeInternal, Message: "the engine did not tell how the script ended", Class: errdefs.ErrInternal}
	case errors.As(err, &known):
		return known
	case errdefs.IsUnavailable(err):
		return &run.Error{Code: run.CodeEngineUnavailable, Message: err.Error(), Class: errdefs.ErrUnavailable,
			Hint: "`mcpx doctor` says what the engine lacks"}
	}
	return &run.Error{Code: run.CodeInternal, Message: err.Error(), Class: errdefs.ErrInternal}
}
