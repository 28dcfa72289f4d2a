package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Remove ends the connection and the container.
func (c *Container) Remove(ctx context.Context) error {
	c.removing.Do(func() { close(c.removed) })
	if c.link != nil {
		c.link.Close() //nolint:errcheck // the container goes with it
	}
	c.clearing.Lock()
	defer c.clearing.Unlock()
	if c.cleared {
		return nil
	}
	if err := c.clear(ctx); err != nil {
		return fmt.Errorf("remove container of run %s: %w", c.spec.Run, err)
	}
	c.cleared = true
	c.release()
	return nil
}

// clear takes the directory away last: as long as it is there, Sweep finds the rest.
func (c *Container) clear(ctx context.Context) error {
	if err := c.kill(ctx); err != nil {
		return err
	}
	if err := c.group.empty(); err != nil {
		return err
	}
	if err := c.group.remove(c.groupDirs()); err != nil {
		return err
	}
	if c.init != nil {
		c.init.file.Close() //nolint:errcheck // nothing can be done about it
	}
	return os.RemoveAll(c.dir)
}

func (c *Container) groupDirs() []string {
	if c.engine.runtime.ownGroups() {
		return c.group.every()
	}
	var all []string
	for _, dir := range c.group.dirs() {
		all = append(all, dir)
	}
	return all
}

// kill ends what the runtime has made, and waits for the runtime itself.
func (c *Container) kill(ctx context.Context) error {
	if c.started == nil {
		return nil
	}
	if err := c.awaitRuntime(ctx); err != nil {
		return err
	}
	if c.init == nil {
		return nil
	}
	if err := c.init.kill(); err != nil {
		return err
	}
	if err := c.init.wait(ctx); err != nil {
		return err
	}
	c.init.reap()
	return nil
}

// awaitRuntime waits for a runtime that is under way, which it is for some
// milliseconds only. One that hangs is killed; what it has made by then is in
// the cgroup.
func (c *Container) awaitRuntime(ctx context.Context) error {
	patience := time.NewTimer(settleTime)
	defer patience.Stop()
	select {
	case <-c.started:
		return nil
	case <-ctx.Done():
	case <-patience.C:
	}
	if err := c.runtime.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end of %s: %w", c.engine.runtime.name, err)
	}
	<-c.started
	return nil
}

// Sweep removes what is found below an owner's name, in the directory and in
// the cgroups: either may be there without the other.
func (e *Engine) Sweep(ctx context.Context, owner string) (int, error) {
	if err := e.ready(ctx); err != nil {
		return 0, err
	}
	if !filepath.IsLocal(owner) || filepath.Base(owner) != owner {
		return 0, fmt.Errorf("owner %q: %w", owner, errdefs.ErrInvalidArgument)
	}
	ids, err := e.found(owner)
	if err != nil {
		return 0, fmt.Errorf("containers of owner %s: %w", owner, err)
	}
	removed := 0
	var failed error
	for _, id := range ids {
		if err := e.sweep(owner, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(failed, e.leave(owner))
}

func (e *Engine) found(owner string) ([]string, error) {
	var ids []string
	for _, dir := range append(e.ownerGroups(owner), e.store.path("run", owner)) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			if entry.IsDir() && !slices.Contains(ids, entry.Name()) {
				ids = append(ids, entry.Name())
			}
		}
	}
	return ids, nil
}

func (e *Engine) ownerGroups(owner string) []string { return e.groups.group(owner, "").every() }

func (e *Engine) sweep(owner, id string) error {
	g := e.groups.group(owner, id)
	if err := g.empty(); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	if err := g.remove(g.every()); err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	return os.RemoveAll(e.store.path("run", owner, id))
}

// leave takes away the owner's own directories, unless containers of his have
// come since.
func (e *Engine) leave(owner string) error {
	for _, dir := range append(e.ownerGroups(owner), e.store.path("run", owner)) {
		err := unix.Rmdir(dir)
		if err != nil && !slices.Contains([]error{unix.ENOENT, unix.ENOTEMPTY, unix.EBUSY}, err) {
			return fmt.Errorf("directory of owner %s: %w", owner, err)
		}
	}
	return nil
}
