package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/containerd/errdefs"
)

// Get yields an artifact; errdefs.ErrNotFound when there is none, or its time is up.
func (s *Store) Get(ctx context.Context, id string) (Artifact, error) {
	if _, err := ParseID(id); err != nil {
		return Artifact{}, err
	}
	a, err := s.index.Get(ctx, id)
	if errdefs.IsNotFound(err) || err == nil && s.expired(a) {
		return Artifact{}, notFound(id)
	}
	return a, err
}

func (s *Store) expired(a Artifact) bool {
	return !a.ExpiresAt.IsZero() && s.options.Now().After(a.ExpiresAt)
}

// OpenBlob opens an artifact's content. The reader keeps it, even when the
// artifact is deleted meanwhile.
func (s *Store) OpenBlob(ctx context.Context, id string) (Artifact, *os.File, error) {
	a, err := s.Get(ctx, id)
	if err != nil {
		return Artifact{}, nil, err
	}
	file, err := os.Open(s.blobPath(a.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		return Artifact{}, nil, s.goneOrDamaged(ctx, id)
	}
	if err != nil {
		return Artifact{}, nil, fmt.Errorf("artifact %s: %w", id, err)
	}
	return a, file, nil
}

// goneOrDamaged tells a blob that was deleted a moment ago from one that is missing.
func (s *Store) goneOrDamaged(ctx context.Context, id string) error {
	if _, err := s.Get(ctx, id); err != nil {
		return err
	}
	return fmt.Errorf("content of artifact %s is missing from the store: %w", id, errdefs.ErrDataLoss)
}

// List yields a page, the newest first, and where the next one begins.
func (s *Store) List(ctx context.Context, f Filter) ([]Artifact, string, error) {
	return s.index.List(ctx, f)
}

// Delete removes an artifact, and its content when nothing else has it.
func (s *Store) Delete(ctx context.Context, id string) error {
	if _, err := ParseID(id); err != nil {
		return err
	}
	release, err := s.lock(syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	return s.delete(ctx, id)
}

// delete wants the exclusive lock.
func (s *Store) delete(ctx context.Context, id string) error {
	a, last, err := s.index.Delete(ctx, id)
	if errdefs.IsNotFound(err) {
		return notFound(id)
	}
	if err != nil || !last {
		return err
	}
	return s.removeBlob(a.SHA256)
}

func (s *Store) removeBlob(digest string) error {
	if err := os.Remove(s.blobPath(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeUnregistered removes a blob that has no registration.
func (s *Store) removeUnregistered(ctx context.Context, digest string) error {
	release, err := s.lock(syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	registered, err := s.index.Registered(context.WithoutCancel(ctx), digest)
	if err != nil || registered {
		return err
	}
	return s.removeBlob(digest)
}

// gcBatch is how many artifacts go while others wait for the lock.
const gcBatch = 100

// GC deletes the artifacts whose time is up and returns how many went.
func (s *Store) GC(ctx context.Context) (int, error) {
	gone := 0
	for {
		ids, err := s.index.Expired(ctx, s.options.Now(), gcBatch)
		if err != nil || len(ids) == 0 {
			return gone, err
		}
		n, err := s.deleteAll(ctx, ids)
		gone += n
		if err != nil {
			return gone, err
		}
	}
}

func (s *Store) deleteAll(ctx context.Context, ids []string) (int, error) {
	release, err := s.lock(syscall.LOCK_EX)
	if err != nil {
		return 0, err
	}
	defer release()
	for i, id := range ids {
		if err := s.delete(ctx, id); err != nil && !errdefs.IsNotFound(err) {
			return i, err
		}
	}
	return len(ids), nil
}

// Usage is how many bytes of distinct content there are.
func (s *Store) Usage(ctx context.Context) (int64, error) { return s.index.Usage(ctx) }
