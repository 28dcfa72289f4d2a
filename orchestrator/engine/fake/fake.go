// Package fake is an engine without containers, for tests: it runs scripts as
// processes of this host, below an mcpx-init of their own. It keeps the
// contract's order, errors and clean-up. It isolates nothing, limits nothing,
// and shows the host's own files, so what it runs has to be trusted; Info says
// so (Enforces).
package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
)

// Config says what an Engine has. All fields must be set.
type Config struct {
	// Init is the path of an mcpx-init (see package inittest).
	Init string
	// Dir holds a directory for each container; engines of several lives share it.
	Dir string
	// Images are the references that EnsureImage knows.
	Images map[string]engine.Image
}

// Engine runs scripts on this host.
type Engine struct {
	config Config

	mu   sync.Mutex
	live map[string]*container // by ID
}

var _ engine.Engine = (*Engine)(nil)

// New makes c.Dir if need be.
func New(c Config) (*Engine, error) {
	if _, err := os.Stat(c.Init); err != nil {
		return nil, fmt.Errorf("fake engine's init: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("fake engine: %w", err)
	}
	return &Engine{config: c, live: make(map[string]*container)}, nil
}

// Name is "fake".
func (e *Engine) Name() string { return "fake" }

// Info tells that nothing is enforced.
func (e *Engine) Info(context.Context) (engine.Info, error) {
	return engine.Info{Version: "1", OS: runtime.GOOS, Arch: runtime.GOARCH, Mounts: true}, nil
}

// EnsureImage knows the images of the Config; pull brings no others.
func (e *Engine) EnsureImage(_ context.Context, ref string, _ engine.PullPolicy) (engine.Image, error) {
	image, ok := e.config.Images[ref]
	if !ok {
		return engine.Image{}, fmt.Errorf("image %s: %w", ref, errdefs.ErrNotFound)
	}
	return image, nil
}

// Close leaves the containers alone.
func (e *Engine) Close() error { return nil }

// Prepare starts an init and waits for its connection.
func (e *Engine) Prepare(ctx context.Context, spec engine.Spec) (engine.Container, error) {
	c, err := e.create(spec)
	if err != nil {
		return nil, fmt.Errorf("container of run %s: %w", spec.Run, err)
	}
	if err := c.start(ctx, e.config.Init); err != nil {
		return nil, errors.Join(fmt.Errorf("container of run %s: %w", spec.Run, err), c.Remove(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// create makes a container's directory with its record.
func (e *Engine) create(spec engine.Spec) (*container, error) {
	if !e.knows(spec.Image) {
		return nil, fmt.Errorf("image %s: %w", spec.Image, errdefs.ErrNotFound)
	}
	dir, err := os.MkdirTemp(e.config.Dir, "container-")
	if err != nil {
		return nil, err
	}
	c := &container{engine: e, spec: spec, dir: dir}
	err = writeRecord(dir, record{Owner: spec.Owner, Run: spec.Run})
	if err == nil {
		c.places, err = furnish(dir, spec)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live[c.ID()] = c
	return c, nil
}

// knows tells whether ref is a reference or a digest of the Config.
func (e *Engine) knows(ref string) bool {
	if _, ok := e.config.Images[ref]; ok {
		return true
	}
	for _, image := range e.config.Images {
		if image.Digest == ref {
			return true
		}
	}
	return false
}

func (e *Engine) forget(c *container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.live, c.ID())
}

// Sweep removes the containers whose record names owner.
func (e *Engine) Sweep(ctx context.Context, owner string) (int, error) {
	entries, err := os.ReadDir(e.config.Dir)
	if err != nil {
		return 0, fmt.Errorf("sweep of %s: %w", owner, err)
	}
	removed := 0
	var failed []error
	for _, entry := range entries {
		dir := filepath.Join(e.config.Dir, entry.Name())
		r, err := readRecord(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue // it is being made or removed
		}
		if err == nil && r.Owner != owner {
			continue
		}
		if err == nil {
			err = e.sweep(ctx, dir, r)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("sweep of %s: %w", entry.Name(), err))
			continue
		}
		removed++
	}
	return removed, errors.Join(failed...)
}

// sweep removes one container, of this life or of an earlier one.
func (e *Engine) sweep(ctx context.Context, dir string, r record) error {
	e.mu.Lock()
	c := e.live[filepath.Base(dir)]
	e.mu.Unlock()
	if c != nil {
		return c.Remove(ctx)
	}
	if r.Init.PID != 0 {
		if err := endTree(ctx, r.Init); err != nil {
			return err
		}
	}
	return removeAll(dir)
}
