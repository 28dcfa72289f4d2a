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

// EnsureImage finds ref among the images here. What a local Docker has under
// that name is taken over, whatever pull says, for nothing is fetched from
// elsewhere. A name that says what it stands for is not asked about again.
func (e *Engine) EnsureImage(ctx context.Context, ref string, _ engine.PullPolicy) (engine.Image, error) {
	if err := e.ready(ctx); err != nil {
		return engine.Image{}, err
	}
	i, err := e.image(ctx, ref)
	if err != nil {
		return engine.Image{}, err
	}
	return i.facts(), nil
}

func (e *Engine) image(ctx context.Context, ref string) (image, error) {
	if i, ok := e.lately(ref); ok {
		return i, nil
	}
	i, err := e.find(ctx, ref)
	if err != nil {
		return image{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fresh[ref] = asked{time.Now(), i}
	return i, nil
}

// find looks without what was said lately.
func (e *Engine) find(ctx context.Context, ref string) (image, error) {
	if i, err := e.store.image(ref); !errdefs.IsNotFound(err) {
		return i, err
	}
	known, err := e.store.reference(ref)
	if err != nil && !errdefs.IsNotFound(err) {
		return image{}, err
	}
	if err == nil && strings.Contains(ref, "@sha256:") {
		return e.store.image(known.Image)
	}
	return e.current(ctx, ref, known)
}

// lately bounds what it remembers by forgetting what is too old.
func (e *Engine) lately(ref string) (image, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.fresh, func(_ string, said asked) bool { return time.Since(said.at) > freshFor })
	said, ok := e.fresh[ref]
	return said.image, ok
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
	case known.Source == theirs.ID && known.Image != "":
		return e.store.image(known.Image)
	}
	return e.takeOver(ctx, ref, theirs.ID)
}

// takeOver imports an image of Docker's, one at a time: several that ask for
// the same one would unpack it each.
func (e *Engine) takeOver(ctx context.Context, ref, id string) (image, error) {
	select {
	case e.importing <- struct{}{}:
		defer func() { <-e.importing }()
	case <-ctx.Done():
		return image{}, context.Cause(ctx)
	}
	if i, err := e.store.image(id); err == nil { // known by another name, or by now
		return i, e.store.add(i, reference{Ref: ref, Image: i.ID, Source: id})
	}
	e.config.Log.Info("taking an image over from docker", "image", ref, "id", id)
	stream, err := e.docker.ImageSave(ctx, []string{id})
	if err != nil {
		return image{}, fmt.Errorf("image %s from docker: %w", ref, err)
	}
	all, err := e.load(ctx, stream, func(manifest) []string { return []string{ref, id} }, id)
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
	found, err := e.load(ctx, from, func(m manifest) []string { return m.RepoTags }, "")
	if err != nil {
		return nil, fmt.Errorf("import of images: %w", err)
	}
	var all []engine.Image
	for _, i := range found {
		all = append(all, i.facts())
	}
	return all, nil
}

func (i image) facts() engine.Image {
	return engine.Image{Digest: i.ID, Env: i.Env, Init: i.Init, Size: i.Size}
}

// load unpacks an archive, and calls each image by its names.
func (e *Engine) load(ctx context.Context, from io.Reader, names func(manifest) []string, source string) ([]image, error) {
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
		var refs []reference
		for _, name := range names(m) {
			refs = append(refs, reference{Ref: name, Image: i.ID, Source: source})
		}
		if err := e.store.add(i, refs...); err != nil {
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
