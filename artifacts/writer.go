package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
)

// Meta is what is told of an artifact beside its content.
type Meta struct {
	Name      string
	MIME      string        // "": found from content and name
	Size      int64         // announced; below 0: not known
	TTL       time.Duration // 0: the store's; below 0: kept until it is deleted
	Run       string
	Session   string
	Principal string
}

// Create begins an artifact. Whoever gets a Writer ends it by Commit or Abort;
// ctx is that of the Commit too.
func (s *Store) Create(ctx context.Context, m Meta) (*Writer, error) {
	if m.Size > s.options.MaxBytes {
		return nil, tooLarge(m.Name, s.options.MaxBytes)
	}
	file, err := s.createTemporary()
	if err != nil {
		return nil, diskError(m.Name, err)
	}
	return &Writer{ctx: ctx, store: s, meta: m, file: file, sum: sha256.New()}, nil
}

// createTemporary makes a file and takes its lock; meanwhile nobody clears.
func (s *Store) createTemporary() (*os.File, error) {
	release, err := lockDir(s.temporary, shared)
	if err != nil {
		return nil, err
	}
	defer release()
	// A name of 128 random bits is never made again: whoever removes it late
	// removes nobody else's file.
	file, err := os.OpenFile(filepath.Join(s.temporary, newID()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file, exclusive); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, nil
}

// Writer takes one artifact's content. Write and Commit belong to one
// goroutine; Abort may come from another.
type Writer struct {
	ctx    context.Context // engine.OutboxFile's Commit has none
	store  *Store
	meta   Meta
	file   *os.File
	sum    hash.Hash
	head   []byte // for finding the MIME type
	size   int64
	failed error // of a Write
	done   sync.Once
}

// hashBeside is from which size on a piece is hashed and written at once.
const hashBeside = 16 << 10

var _ io.Writer = (*Writer)(nil)

// Write hashes while it writes. More than the store's MaxBytes, or than was
// announced, is an error and never a cut: after any error Commit fails too.
func (w *Writer) Write(p []byte) (int, error) {
	if w.failed != nil {
		return 0, w.failed
	}
	if w.failed = w.fits(int64(len(p))); w.failed != nil {
		return 0, w.failed
	}
	n, err := w.writeAndHash(p)
	w.size += int64(n)
	if room := sniffBytes - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, n)]...)
	}
	if err != nil {
		w.failed = diskError(w.meta.Name, err)
	}
	return n, w.failed
}

// writeAndHash does both at once where that is worth a goroutine. What is hashed
// of a piece that could not be written whole no longer matters.
func (w *Writer) writeAndHash(p []byte) (int, error) {
	if len(p) < hashBeside {
		w.sum.Write(p)
		return w.file.Write(p)
	}
	var hashed sync.WaitGroup
	hashed.Go(func() { w.sum.Write(p) })
	defer hashed.Wait()
	return w.file.Write(p)
}

func (w *Writer) fits(more int64) error {
	size := w.size + more
	if limit := w.store.options.MaxBytes; size > limit {
		return tooLarge(w.meta.Name, limit)
	}
	if w.meta.Size >= 0 && size > w.meta.Size {
		return notAsAnnounced(w.meta.Name, "more", w.meta.Size)
	}
	return nil
}

// Commit makes the content durable and registers it. It ends the Writer,
// whatever it returns.
func (w *Writer) Commit() (Artifact, error) {
	a, err := Artifact{}, fmt.Errorf("artifact %q was ended before: %w", title(w.meta.Name), errdefs.ErrFailedPrecondition)
	w.done.Do(func() {
		if a, err = w.commit(); err != nil {
			w.drop()
			return
		}
		w.file.Close() //nolint:errcheck // it is synced and registered
	})
	return a, err
}

func (w *Writer) commit() (Artifact, error) {
	if w.failed != nil {
		return Artifact{}, w.failed
	}
	if w.meta.Size >= 0 && w.size != w.meta.Size {
		return Artifact{}, notAsAnnounced(w.meta.Name, fmt.Sprint(w.size), w.meta.Size)
	}
	if err := errors.Join(w.file.Chmod(0o400), w.file.Sync()); err != nil {
		return Artifact{}, diskError(w.meta.Name, err)
	}
	a := w.artifact()
	if err := w.store.register(w.ctx, a, w.file.Name()); err != nil {
		return Artifact{}, diskError(w.meta.Name, err)
	}
	return a, nil
}

func (w *Writer) artifact() Artifact {
	o := w.store.options
	name := SafeName(w.meta.Name, o.NameMax)
	a := Artifact{
		ID: newID(), Name: name, Title: title(w.meta.Name), MIME: mimeType(w.meta.MIME, name, w.head),
		SHA256: hex.EncodeToString(w.sum.Sum(nil)), Size: w.size,
		Run: w.meta.Run, Session: w.meta.Session, Principal: w.meta.Principal,
		CreatedAt: o.Now().UTC().Truncate(time.Microsecond), // an index keeps no more
	}
	ttl := w.meta.TTL
	if ttl == 0 {
		ttl = o.TTL
	}
	if ttl > 0 {
		a.ExpiresAt = a.CreatedAt.Add(ttl)
	}
	return a
}

// Abort drops what was written. It is idempotent, and does nothing after Commit.
func (w *Writer) Abort() { w.done.Do(w.drop) }

// drop removes the file before its lock goes with closing it.
func (w *Writer) drop() {
	os.Remove(w.file.Name()) //nolint:errcheck // the next Open clears it
	w.file.Close()           //nolint:errcheck // nobody needs it any more
}
