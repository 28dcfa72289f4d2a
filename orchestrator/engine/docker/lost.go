package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

const (
	// lostTimeout bounds finding out what became of a container.
	lostTimeout = 15 * time.Second
	// settleTime is how long a container may take to end by itself once init's
	// connection is gone. It mostly has ended; docker only does not know yet.
	settleTime = time.Second
	// oomTimeout bounds the question for an event.
	oomTimeout = 5 * time.Second
	// eventDelay is how much later than init docker may hear of it.
	eventDelay = 100 * time.Millisecond
)

// killed is how docker reports a death by SIGKILL.
const killed = 128 + 9

// lost finds out how a script ended whose init did not report. why says what
// became of the connection. A stdio error is told beside the exit, as always.
func (c *Container) lost(ctx context.Context, why error) (engine.Exit, error) {
	asked := ctx.Err() != nil
	ctx, cancel := c.engine.bounded(ctx, "end of the container of run "+c.spec.Run, lostTimeout)
	defer cancel()
	state, alive, err := c.end(ctx)
	switch {
	case c.isRemoved() || errdefs.IsNotFound(err):
		return engine.Exit{Code: -1}, c.gone()
	case err != nil:
		return engine.Exit{Code: -1}, err
	case state.OOMKilled:
		return engine.Exit{Code: -1, Signal: "SIGKILL", OOMKilled: true}, c.link.Failure()
	case asked, state.ExitCode == killed && !alive:
		return engine.Exit{Code: -1, Signal: "SIGKILL"}, c.link.Failure()
	}
	return engine.Exit{Code: -1}, fmt.Errorf("container of run %s ended with %s: %w", c.spec.Run, ending(state), why)
}

// ending is how a container ended, in words.
func ending(state *container.State) string {
	if state.Error != "" {
		return fmt.Sprintf("code %d (%s)", state.ExitCode, state.Error)
	}
	return fmt.Sprintf("code %d", state.ExitCode)
}

// end sees to it that the container does not run. alive tells that it still
// did, although its init had hung up.
func (c *Container) end(ctx context.Context) (state *container.State, alive bool, err error) {
	brief, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	state, err = c.stopped(brief)
	if err == nil || brief.Err() == nil || ctx.Err() != nil {
		return state, false, err
	}
	err = c.engine.client.ContainerKill(ctx, c.id, "SIGKILL")
	if err != nil && !errdefs.IsConflict(err) { // a conflict: it has just ended
		return nil, true, c.engine.fault(ctx, "kill container of run "+c.spec.Run, err)
	}
	state, err = c.stopped(ctx)
	return state, true, err
}

// stopped waits for the container's end and yields its state.
func (c *Container) stopped(ctx context.Context) (*container.State, error) {
	what := "end of the container of run " + c.spec.Run
	if err := c.wait(ctx, container.WaitConditionNotRunning); err != nil {
		return nil, c.engine.fault(ctx, what, err)
	}
	found, err := c.engine.client.ContainerInspect(ctx, c.id)
	if err != nil {
		return nil, c.engine.fault(ctx, what, err)
	}
	if found.ContainerJSONBase == nil || found.State == nil {
		return nil, fmt.Errorf("%s: docker tells no state: %w", what, errdefs.ErrInternal)
	}
	return found.State, nil
}

// wait waits for the container as docker sees it. The client's goroutine ends
// only with an answer taken, so the end of ctx is left to it.
func (c *Container) wait(ctx context.Context, until container.WaitCondition) error {
	done, failed := c.engine.client.ContainerWait(ctx, c.id, until)
	select {
	case <-done:
		return nil
	case err := <-failed:
		return err
	}
}

// gone is that somebody removed the container under us.
func (c *Container) gone() error {
	by := "somebody else"
	if c.isRemoved() {
		by = "its own daemon"
	}
	return &run.Error{
		Code: run.CodeInternal, Class: errdefs.ErrAborted,
		Message: fmt.Sprintf("the container of run %s was removed by %s before the script's end was seen", c.spec.Run, by),
	}
}

func (c *Container) isRemoved() bool {
	select {
	case <-c.removed:
		return true
	default:
		return false
	}
}

// sawOOM asks whether docker saw the memory limit kill a process of the
// container, where init can't. The container lives on for its outbox, and the
// daemon notes in its state only afterwards what its events tell already.
func (c *Container) sawOOM(ctx context.Context) (bool, error) {
	what := "events of the container of run " + c.spec.Run
	ctx, cancel := c.engine.bounded(ctx, what, oomTimeout)
	defer cancel()
	until := time.Now().Add(eventDelay)
	messages, failed := c.engine.client.Events(ctx, events.ListOptions{
		Since: "0", Until: fmt.Sprintf("%d.%09d", until.Unix(), until.Nanosecond()),
		Filters: filters.NewArgs(filters.Arg("container", c.id), filters.Arg("event", "oom")),
	})
	for {
		select {
		case <-messages:
			return true, nil
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return false, nil
			}
			return false, c.engine.fault(ctx, what, err)
		}
	}
}
