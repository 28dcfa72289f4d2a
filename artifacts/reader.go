package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
)

// Get yields an artifact; errdefs.ErrNotFound when there is none, or its time is up.
func (s *Store) Get(ctx context.Context, id string) (Artifact, error) {
	if _, err := ParseID(id); err != nil {
		return Artifact{}, err
	}
	a, err := s.index.Get(ctx, id)
	if errdefs.IsNotFound(err) || err == nil && a.expired(s.options.Now()) {
		return Artifact{}, notFound(id)
	}
	return a, err
}

// OpenBlob opens an artifact's content. The reader keeps it, even when the
// artifact is deleted meanwhile. errdefs.ErrDataLoss when it is not what was
// registered.
func (s *Store) OpenBlob(ctx context.Context, id string) (Artifact, *os.File, error) {
	a, err := s.Get(ctx, id)
	if err != nil {
		return Artifact{}, nil, err
	}
	file, err := s.openContent(a)
	if errors.Is(err, fs.ErrNotExist) {
		return Artifact{}, nil, s.goneOrDamaged(ctx, id)
	}
	if err != nil {
		return Artifact{}, nil, fmt.Errorf("content of artifact %s: %w", id, err)
	}
	return a, file, nil
}

// openContent trusts neither the index nor the disk blindly: a shortened file
// must not be handed out as a whole one.
func (s *Store) openContent(a Artifact) (*os.File, error) {
	d, err := ParseDigest(a.SHA256)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
	}
	file, err := os.Open(s.blobPath(d))
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Size() != a.Size {
		err = fmt.Errorf("it has %d bytes instead of %d: %w", info.Size(), a.Size, errdefs.ErrDataLoss)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// goneOrDamaged tells a blob that was deleted a moment ago from one that is missing.
func (s *Store) goneOrDamaged(ctx context.Context, id string) error {
	if _, err := s.Get(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("content of artifact %s is missing from the store: %w", id, errdefs.ErrDataLoss)
}

// List yields a page of the artifacts whose time is not up, the newest first,
// and where the next page begins.
func (s *Store) List(ctx context.Context, f Filter) ([]Artifact, string, error) {
	return s.index.List(ctx, s.options.Now(), f)
}

// Usage is how many bytes of distinct content there are.
func (s *Store) Usage(ctx context.Context) (int64, error) { return s.index.Usage(ctx) }
