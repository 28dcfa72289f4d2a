package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"mcpx/orchestrator/run"
)

// fault says on what the daemon failed. Its answers have their class already;
// a daemon that does not answer gets one here, and the end of ctx is told as
// its cause.
func (e *Engine) fault(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case noAnswer(err):
		return e.unavailable(what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// noAnswer tells whether the daemon was not reached, or went away before it
// had answered.
func noAnswer(err error) bool {
	var broken *net.OpError
	return client.IsErrConnectionFailed(err) || errors.As(err, &broken) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// bounded ends a question to the daemon that takes too long; the answer may
// still come to be, so it can't be left to the caller's patience.
func (e *Engine) bounded(ctx context.Context, what string, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), limit, e.unavailable(what, fmt.Errorf("no answer in %s", limit)))
}

func (e *Engine) unavailable(what string, err error) error {
	socket := strings.TrimPrefix(e.config.Host, "unix://")
	return &run.Error{
		Code:    run.CodeEngineUnavailable,
		Message: fmt.Sprintf("%s: docker does not answer on %s: %v", what, socket, err),
		Hint:    "start docker (`systemctl start docker`), or see with `ls -l " + socket + "` who may use its socket",
		Class:   errdefs.ErrUnavailable,
	}
}
