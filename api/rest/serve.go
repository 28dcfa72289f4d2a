package rest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/errgroup"

	"mcpx/api/auth"
	"mcpx/orchestrator/run"
)

// Limits of a connection.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Serve answers on all listeners until ctx ends; then it takes no more runs,
// lets requests under way end for as long as Config.DrainTimeout says, cuts off
// the rest and returns when no handler is left. It closes the listeners.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	for _, l := range listeners {
		if err := s.config.Gate.CheckListener(l); err != nil {
			return errors.Join(err, closeAll(listeners))
		}
	}
	server := &http.Server{
		Handler:           s,
		ConnContext:       auth.WithPeer,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
	}
	group, stop := errgroup.WithContext(ctx)
	for _, l := range listeners {
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		<-stop.Done() // the daemon is told to go, or a listener broke
		return s.shutDown(context.WithoutCancel(ctx), server)
	})
	return group.Wait()
}

func closeAll(listeners []net.Listener) error {
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (s *Server) shutDown(ctx context.Context, server *http.Server) error {
	s.drain.Do(func() { close(s.draining) })
	ctx, cancel := context.WithTimeout(ctx, s.config.DrainTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.config.Log.Warn("requests are cut off", "after", s.config.DrainTimeout)
		err = server.Close()
	}
	s.active.Wait()
	return err
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

func errDraining() error {
	return &run.Error{Code: run.CodeShuttingDown, Class: errdefs.ErrUnavailable, Message: "the daemon is going down"}
}

// untilDrain ends with ctx, or when the server begins to drain.
func (s *Server) untilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-s.draining:
			cancel(run.ErrShutdown)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
