package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

// initLabel is how an image says that it carries an init.
const initLabel = "mcpx.init.protocol"

// ours is the prefix of the images that mcpx builds.
const ours = "mcpx/"

// facts are what the making of a container has to know of its image.
type facts struct {
	id string
	// volumes are places for which docker would make a volume on the host's
	// disk, without limit.
	volumes []string
}

// EnsureImage asks the daemon each time, for a tag can be built anew (1 to 2 ms).
func (e *Engine) EnsureImage(ctx context.Context, ref string, pull engine.PullPolicy) (engine.Image, error) {
	found, err := e.inspect(ctx, ref)
	if !errdefs.IsNotFound(err) {
		return found, err
	}
	if pull != engine.PullMissing {
		return engine.Image{}, notHere(ref, "")
	}
	if err := e.pull(ctx, ref); err != nil {
		return engine.Image{}, err
	}
	return e.inspect(ctx, ref)
}

// inspect yields what is known of an image, and remembers what its ID stands for.
func (e *Engine) inspect(ctx context.Context, ref string) (engine.Image, error) {
	if err := e.negotiate(ctx); err != nil {
		return engine.Image{}, err
	}
	i, err := e.client.ImageInspect(ctx, ref)
	if errdefs.IsNotFound(err) {
		return engine.Image{}, notHere(ref, "")
	}
	if err != nil {
		return engine.Image{}, e.fault(ctx, "image "+ref, err)
	}
	found := engine.Image{Digest: i.ID, Size: i.Size}
	known := facts{id: i.ID}
	if i.Config != nil {
		found.Env, found.Init = i.Config.Env, i.Config.Labels[initLabel]
		known.volumes = slices.Sorted(maps.Keys(i.Config.Volumes))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.images[i.ID] = known
	return found, nil
}

// facts costs a question only when EnsureImage did not yield ref.
func (e *Engine) facts(ctx context.Context, ref string) (facts, error) {
	if known, ok := e.known(ref); ok {
		return known, nil
	}
	found, err := e.inspect(ctx, ref)
	if err != nil {
		return facts{}, err
	}
	known, _ := e.known(found.Digest)
	return known, nil
}

func (e *Engine) known(id string) (facts, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.images[id]
	return known, ok
}

// pull fetches ref. Docker takes back what it has fetched when that fails.
func (e *Engine) pull(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.config.PullTimeout,
		fmt.Errorf("no more than %s are given to it: %w", e.config.PullTimeout, context.DeadlineExceeded))
	defer cancel()
	e.config.Log.Info("pulling an image", "image", ref)
	progress, err := e.client.ImagePull(ctx, ref, image.PullOptions{})
	if err == nil {
		err = errors.Join(follow(progress), progress.Close())
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, noAnswer(err):
		return e.fault(ctx, "pull of image "+ref, err)
	}
	return notHere(ref, err.Error())
}

// follow reads how a pull goes on; that it failed is told in its last message.
func follow(progress io.Reader) error {
	messages := json.NewDecoder(progress)
	for {
		var m struct {
			Error string `json:"error"`
		}
		switch err := messages.Decode(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m.Error != "":
			return errors.New(m.Error)
		}
	}
}

// notHere is that image ref is missing; why it could not be fetched, if that was tried.
func notHere(ref, why string) error {
	e := &run.Error{
		Code: run.CodeImageNotFound, Class: errdefs.ErrNotFound,
		Message: "image " + ref + " is not on this machine",
		Hint:    "`docker pull " + ref + "`, or let the policy pull it with `pull: missing`",
	}
	if why != "" {
		e.Message += " and could not be pulled: " + why
		e.Hint = "check the name; `docker pull " + ref + "` tries it by hand"
	}
	if name, ok := strings.CutPrefix(ref, ours); ok {
		name, _, _ = strings.Cut(name, ":")
		e.Hint = "`mcpx images build " + name + "` makes it"
	}
	return e
}
