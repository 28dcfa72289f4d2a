package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/supervisor/proctree"
)

// container is one init on this host and what is below it.
type container struct {
	engine *Engine
	spec   engine.Spec
	dir    string
	places places
	link   *link.Link

	init   proctree.Process
	exited chan struct{} // closed when init has been reaped; nil before it started
	failed error         // how it ended; read after exited

	removing sync.Mutex
	removed  bool
}

var _ engine.Container = (*container)(nil)

// ID is the name of the container's directory.
func (c *container) ID() string { return filepath.Base(c.dir) }

// start starts init and waits until it is connected.
func (c *container) start(ctx context.Context, path string) error {
	if err := c.spawn(path); err != nil {
		return err
	}
	if err := writeRecord(c.dir, record{Owner: c.spec.Owner, Run: c.spec.Run, Init: c.init}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-c.exited:
			cancel(fmt.Errorf("init ended: %w: %w", c.failed, errdefs.ErrUnavailable))
		case <-ctx.Done():
		}
	})
	conn, err := c.spec.Control.Accept(ctx)
	if err != nil {
		return err
	}
	c.link, err = link.New(ctx, conn, link.Config{})
	return err
}

// spawn starts init, which knows nothing but its socket and outbox.
func (c *container) spawn(path string) error {
	outbox := ""
	if c.spec.Outbox > 0 {
		outbox = filepath.Join(c.dir, outboxName)
	}
	cmd := exec.Command(path, "host", filepath.Join(c.spec.ControlDir, engine.SocketName), outbox, "127.0.0.1:0")
	cmd.Env = []string{}
	cmd.Dir = c.dir
	if c.spec.Workdir != "" {
		cmd.Dir = c.places.path(c.spec.Workdir)
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		c.failed = cmd.Wait()
		if text := strings.TrimSpace(complaint.String()); text != "" {
			c.failed = errors.Join(c.failed, errors.New(text))
		}
	}()
	c.exited = exited
	var err error
	c.init, err = proctree.Find(cmd.Process.Pid)
	return err
}

// Run places the files and hands the job to init.
func (c *container) Run(ctx context.Context, job engine.Job, stdio engine.IO) (engine.Exit, error) {
	if err := link.PlaceFiles(c.spec.ControlDir, job.Files); err != nil {
		return engine.Exit{Code: -1}, err
	}
	return c.link.Run(ctx, c.places.job(job, c.link.Endpoint()), stdio)
}

// Collect has init walk the outbox.
func (c *container) Collect(ctx context.Context, sink engine.Outbox) error {
	return c.link.Collect(ctx, sink)
}

// Remove ends init and what is below it, then removes the directory.
func (c *container) Remove(ctx context.Context) error {
	c.removing.Lock()
	defer c.removing.Unlock()
	if c.removed {
		return nil
	}
	if err := c.end(ctx); err != nil {
		return fmt.Errorf("removal of %s: %w", c.ID(), err)
	}
	if err := removeAll(c.dir); err != nil {
		return fmt.Errorf("removal of %s: %w", c.ID(), err)
	}
	c.engine.forget(c)
	c.removed = true
	return nil
}

// end closes the connection, on which init ends everything and itself. One
// that does not is killed.
func (c *container) end(ctx context.Context) error {
	if c.exited == nil {
		return nil
	}
	if c.link != nil {
		c.link.Close() //nolint:errcheck // init's end is waited for
	}
	wait, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	if c.link != nil {
		select {
		case <-c.exited:
			return nil
		case <-wait.Done():
		}
	}
	// Due even if the caller has no time left: nobody else does it.
	if err := endTree(context.WithoutCancel(ctx), c.init); err != nil {
		return err
	}
	<-c.exited
	return nil
}
