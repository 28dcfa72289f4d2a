package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
)

const (
	// freshFor is how long Docker's word for a tag holds: asking is 2 ms of the
	// 20 that a run takes, and a tag is built anew a few times a day.
	freshFor = time.Second
	// askTimeout bounds a question to Docker, which may hang where we don't need it.
	askTimeout = 5 * time.Second
)

// stockPrefix is that of the images that mcpx builds.
const stockPrefix = "mcpx/"

// asked is what a reference meant when it was last looked at.
type asked struct {
	at    time.Time
	image image
}

// EnsureImage finds ref among the images here, or a local Docker's: those are
// taken over by the first Prepare, whatever pull says, for nothing is fetched
// from elsewhere. Who only lists images does not have them all unpacked so.
func (e *Engine) EnsureImage(ctx context.Context, ref string, _ engine.PullPolicy) (engine.Image, error) {
	if err := e.ready(ctx); err != nil {
		return engine.Image{}, err
	}
	i, err := e.look(ctx, ref)
	return i.facts(), err
}

func (i image) facts() engine.Image {
	return engine.Image{Digest: i.Digest, Env: i.Env, Init: i.Init, Size: i.Size}
}

// here tells whether i can be mounted.
func (i image) here() bool { return len(i.Layers) > 0 }

// image is ref's image, unpacked.
func (e *Engine) image(ctx context.Context, ref string) (image, error) {
	i, err := e.look(ctx, ref)
	if err != nil || i.here() {
		return i, err
	}
	if i, err = e.takeOver(ctx, ref, i); err == nil {
		e.remember(ref, i)
	}
	return i, err
}

// look tells what ref means.
func (e *Engine) look(ctx context.Context, ref string) (image, error) {
	if i, ok := e.lately(ref); ok {
		return i, nil
	}
	i, err := e.find(ctx, ref)
	if err == nil {
		e.remember(ref, i)
	}
	return i, err
}

func (e *Engine) remember(ref string, i image) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh[ref] = asked{time.Now(), i}
}

// lately bounds what it remembers by forgetting what is too old.
func (e *Engine) lately(ref string) (image, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.fresh, func(_ string, said asked) bool { return time.Since(said.at) > freshFor })
	said, ok := e.fresh[ref]
	return said.image, ok
}

// find looks without what was said lately. A name that says what it stands for
// is not asked about again.
func (e *Engine) find(ctx context.Context, ref string) (image, error) {
	if i, err := e.store.image(ref); !errdefs.IsNotFound(err) {
		return i, err
	}
	known, err := e.store.reference(ref)
	if err != nil && !errdefs.IsNotFound(err) {
		return image{}, err
	}
	if err == nil && strings.Contains(ref, "sha256:") {
		return e.store.image(known.Image)
	}
	return e.current(ctx, ref, known)
}

// current is what ref means now: to Docker, else to the store.
func (e *Engine) current(ctx context.Context, ref string, known reference) (image, error) {
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	theirs, err := e.docker.ImageInspect(ask, ref)
	switch {
	case ctx.Err() != nil:
		return image{}, context.Cause(ctx)
	case err != nil && known.Image != "": // imported before, and Docker has it no more or does not answer
		return e.store.image(known.Image)
	case errdefs.IsNotFound(err):
		return image{}, notHere(ref, "neither here nor in docker")
	case err != nil:
		return image{}, notHere(ref, "not here, and docker could not be asked: "+err.Error())
	case known.Source == theirs.ID:
		return e.store.image(known.Image)
	}
	i := image{Digest: theirs.ID, Size: theirs.Size}
	if theirs.Config != nil {
		i.Env, i.Init = theirs.Config.Env, theirs.Config.Labels[initLabel]
	}
	return i, nil
}

// takeOver imports an image of Docker's, one at a time: several that ask for
// the same one would unpack it each.
func (e *Engine) takeOver(ctx context.Context, ref string, theirs image) (image, error) {
	select {
	case e.importing <- struct{}{}:
		defer func() { <-e.importing }()
	case <-ctx.Done():
		return image{}, context.Cause(ctx)
	}
	id := theirs.Digest
	if known, err := e.store.reference(id); err == nil { // by another name, or by now
		known.Ref = ref
		if err := e.store.name(known); err != nil {
			return image{}, err
		}
		return e.store.image(known.Image)
	}
	e.config.Log.Info("taking an image over from docker", "image", ref, "id", id)
	stream, err := e.docker.ImageSave(ctx, []string{id})
	if err != nil {
		return image{}, fmt.Errorf("image %s from docker: %w", ref, err)
	}
	all, err := e.load(ctx, stream, func(_ manifest, i *image) []reference {
		i.Digest, i.Size = id, theirs.Size
		return []reference{{Ref: id, Image: i.ID, Source: id}, {Ref: ref, Image: i.ID, Source: id}}
	})
	if err = errors.Join(err, stream.Close()); err != nil {
		return image{}, fmt.Errorf("image %s from docker: %w", ref, err)
	}
	if len(all) != 1 {
		return image{}, fmt.Errorf("image %s from docker: its archive holds %d images: %w", ref, len(all), errdefs.ErrInternal)
	}
	return all[0], nil
}

// Import takes the images of an archive into the store: one of `docker save`,
// or an OCI layout. Each can be had by the names that the archive gives it, and
// by its digest.
func (e *Engine) Import(ctx context.Context, from io.Reader) ([]engine.Image, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	found, err := e.load(ctx, from, func(m manifest, i *image) []reference {
		var all []reference
		for _, name := range m.RepoTags {
			all = append(all, reference{Ref: name, Image: i.ID})
		}
		return all
	})
	if err != nil {
		return nil, fmt.Errorf("import of images: %w", err)
	}
	var all []engine.Image
	for _, i := range found {
		all = append(all, i.facts())
	}
	return all, nil
}

// load unpacks an archive. What an image is called, name tells.
func (e *Engine) load(ctx context.Context, from io.Reader, name func(manifest, *image) []reference) ([]image, error) {
	a, err := spool(ctx, e.store.dir, from)
	if err != nil {
		return nil, err
	}
	defer a.close() //nolint:errcheck // it was read only
	manifests, err := a.manifests()
	if err != nil {
		return nil, err
	}
	unlock, err := e.store.lock()
	if err != nil {
		return nil, err
	}
	defer unlock() //nolint:errcheck // closing a file that nothing was written to
	var all []image
	for _, m := range manifests {
		i, err := e.store.unpack(ctx, a, m)
		if err != nil {
			return nil, err
		}
		names := name(m, &i)
		if err := e.store.add(i, names...); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// notHere is that image ref is missing.
func notHere(ref, why string) error {
	e := &run.Error{
		Code: run.CodeImageNotFound, Class: errdefs.ErrNotFound,
		Message: "image " + ref + " is not on this machine: " + why,
		Hint:    "`docker pull " + ref + "` brings it where this engine takes it over from",
	}
	if name, ok := strings.CutPrefix(ref, stockPrefix); ok {
		name, _, _ = strings.Cut(name, ":")
		e.Hint = "`mcpx images build " + name + "` makes it"
	}
	return e
}
