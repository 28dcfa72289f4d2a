package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"mcpx/api/auth"
	"mcpx/api/rest"
)

// Serve is the daemon: it takes requests on every address of c.Listen until ctx
// ends, then drains. It writes one line to ready when it can take requests.
func Serve(ctx context.Context, c Config, version string, ready io.Writer, log *slog.Logger) error {
	gate, err := newGate(c, log)
	if err != nil {
		return err
	}
	listeners, err := Listen(c.Listen)
	if err != nil {
		return err
	}
	for _, l := range listeners {
		if err := gate.CheckListener(l); err != nil {
			return errors.Join(err, CloseAll(listeners))
		}
	}
	r, err := Open(ctx, c, Options{Log: log})
	if err != nil {
		return errors.Join(err, CloseAll(listeners))
	}
	err = r.serve(ctx, gate, version, listeners, ready)
	return errors.Join(err, r.Close(ctx))
}

func newGate(c Config, log *slog.Logger) (auth.Gate, error) {
	gate := auth.Gate{NoToken: c.NoAuth, Hosts: c.Hosts, Origins: c.Origins}
	if c.TokenFile == "" {
		return gate, nil
	}
	var err error
	gate.Token, err = auth.LoadToken(c.TokenFile, log)
	return gate, err
}

func (r *Runtime) serve(ctx context.Context, gate auth.Gate, version string, listeners []net.Listener, ready io.Writer) error {
	door := r.MCP(version, "", "")
	defer door.Close()
	server, err := rest.NewServer(rest.Config{
		Jobs: r.Manager, Runs: r.Manager, Artifacts: r.Artifacts, Images: r.Engine, Policies: r.Policies, Tools: r.Direct, MCP: door,
		Script: r.facts, Ready: r.Ready,
		Gate: gate, Log: r.log, Version: version, DrainTimeout: r.Config.Drain,
	})
	if err != nil {
		return errors.Join(err, CloseAll(listeners))
	}
	if err := r.Ready(ctx); err != nil {
		r.log.Warn("no script can run yet", "engine", r.Engine.Name(), "error", err)
	}
	var chores sync.WaitGroup
	defer chores.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	chores.Go(func() { r.repeat(ctx, sweepInterval, "sweep", r.Sweep) })
	chores.Go(func() { r.repeat(ctx, tidyInterval, "tidy up", r.Tidy) })
	if _, err := fmt.Fprintf(ready, "ready %s\n", strings.Join(Addresses(listeners), " ")); err != nil {
		return errors.Join(err, CloseAll(listeners))
	}
	begun := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { begun <- time.Now() })
	if err := server.Serve(ctx, listeners...); err != nil {
		return err
	}
	return r.drain(context.WithoutCancel(ctx), <-begun)
}

// drain waits for the runs that no request waits for, for what is left of the
// time since begun.
func (r *Runtime) drain(ctx context.Context, begun time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, begun.Add(r.Config.Drain))
	defer cancel()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for {
		load := r.Manager.Stats()
		if load.Running == 0 && load.Queued == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			r.log.Warn("runs are ended with the daemon", "running", load.Running, "queued", load.Queued)
			return nil
		}
	}
}

const (
	drainLook     = 50 * time.Millisecond
	sweepInterval = 5 * time.Second
	tidyInterval  = 10 * time.Minute
)

// repeat does a chore at each interval until ctx ends.
func (r *Runtime) repeat(ctx context.Context, interval time.Duration, name string, chore func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := chore(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("chore was not done", "chore", name, "error", err)
		}
	}
}
