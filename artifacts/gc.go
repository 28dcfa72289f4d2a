package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
)

// Delete removes an artifact, and its content when nothing else has it.
// errdefs.ErrNotFound when there is none.
func (s *Store) Delete(ctx context.Context, id string) error {
	if _, err := ParseID(id); err != nil {
		return err
	}
	d, last, err := s.index.Delete(ctx, id)
	if errdefs.IsNotFound(err) {
		return notFound(id)
	}
	if err != nil || !last {
		return err
	}
	_, _, err = s.collect(context.WithoutCancel(ctx), d)
	return err
}

// collect removes a content that has no registration. Whoever places the same
// content has its folder's lock until it is registered, so none of that is lost.
func (s *Store) collect(ctx context.Context, d Digest) (size int64, gone bool, err error) {
	release, err := s.lock(d, exclusive)
	if err != nil {
		return 0, false, fmt.Errorf("content %s: %w", d, err)
	}
	defer release()
	return s.index.Forget(ctx, d, func() error {
		if err := os.Remove(s.blobPath(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// Report tells what GC removed.
type Report struct {
	Expired  int   // artifacts whose time was up
	Contents int   // blobs that nothing had any more
	Bytes    int64 // of them
}

// gcBatch is how much is removed in one transaction.
const gcBatch = 100

// GC removes the artifacts whose time is up, the contents that only they had,
// and what died between being placed and being registered.
func (s *Store) GC(ctx context.Context) (Report, error) {
	var report Report
	for {
		removed, err := s.index.Expire(ctx, s.options.Now(), gcBatch)
		report.Expired += removed
		if err != nil {
			return report, err
		}
		if removed < gcBatch {
			break
		}
	}
	for {
		garbage, err := s.index.Garbage(ctx, gcBatch)
		if err != nil {
			return report, err
		}
		before := report.Contents
		if err := s.collectAll(ctx, garbage, &report); err != nil {
			return report, err
		}
		if len(garbage) < gcBatch || report.Contents == before {
			return report, nil
		}
	}
}

func (s *Store) collectAll(ctx context.Context, garbage []Digest, report *Report) error {
	for _, d := range garbage {
		size, gone, err := s.collect(ctx, d)
		if err != nil {
			return err
		}
		if gone {
			report.Contents++
			report.Bytes += size
		}
	}
	return nil
}
