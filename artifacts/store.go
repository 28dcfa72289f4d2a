package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Options bound a store; zero means the default.
type Options struct {
	MaxBytes int64         // of one artifact
	Quota    int64         // of all distinct content
	TTL      time.Duration // of an artifact that says none
	NameMax  int           // bytes of a name
	Now      func() time.Time
}

// Defaults of Options.
const (
	DefaultMaxBytes = 64 << 20
	DefaultQuota    = 1 << 30
	DefaultTTL      = 24 * time.Hour
)

// Codes of a store that can take no more.
const (
	CodeQuotaExceeded = "quota_exceeded"
	CodeDiskFull      = "disk_full"
)

// Store keeps contents below one directory. Several processes may share it; it
// is safe for concurrent use.
//
// A blob appears by renaming a whole file, under the shared lock together with
// its registration; it goes under the exclusive lock together with its last
// one. So no blob vanishes between the two, and a reader keeps what it has open.
type Store struct {
	dir     string
	index   Index
	options Options
}

// Open makes the directories and clears what dead writers left.
func Open(dir string, index Index, o Options) (*Store, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Quota == 0 {
		o.Quota = DefaultQuota
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.NameMax == 0 {
		o.NameMax = DefaultNameMax
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{dir: dir, index: index, options: o}
	for _, sub := range []string{"blobs", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("artifact store: %w", err)
		}
	}
	if err := s.clearTemporary(); err != nil {
		return nil, fmt.Errorf("artifact store: %w", err)
	}
	return s, nil
}

// lock takes the store's file lock; how is syscall.LOCK_SH or LOCK_EX.
func (s *Store) lock(how int) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file, how); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil // closing unlocks; twice is harmless
}

func flock(file *os.File, how int) error {
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// clearTemporary removes the files of writers that died: a living one holds
// its file's lock.
func (s *Store) clearTemporary() error {
	release, err := s.lock(syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	names, err := filepath.Glob(filepath.Join(s.dir, "tmp", "*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if flock(file, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err = os.Remove(name)
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Meta is what is told of an artifact beside its content.
type Meta struct {
	Name      string
	MIME      string        // "": found from content and name
	Size      int64         // announced; below 0: not known
	TTL       time.Duration // 0: the store's
	Run       string
	Session   string
	Principal string
}

// Create begins an artifact. Whoever gets a Writer ends it by Commit or Abort.
func (s *Store) Create(ctx context.Context, m Meta) (*Writer, error) {
	if m.Size > s.options.MaxBytes {
		return nil, s.tooLarge(m.Name)
	}
	release, err := s.lock(syscall.LOCK_SH) // so that nobody clears it before it is locked
	if err != nil {
		return nil, fmt.Errorf("artifact %q: %w", m.Name, err)
	}
	defer release()
	file, err := os.CreateTemp(filepath.Join(s.dir, "tmp"), "")
	if err != nil {
		return nil, diskError(m.Name, err)
	}
	if err := flock(file, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return &Writer{ctx: ctx, store: s, meta: m, file: file, sum: sha256.New()}, nil
}

func (s *Store) tooLarge(name string) error {
	return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange,
		Message: fmt.Sprintf("artifact %q is larger than %d bytes", title(name), s.options.MaxBytes)}
}

// diskError tells a full disk from other faults.
func diskError(name string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &run.Error{Code: CodeDiskFull, Class: errdefs.ErrResourceExhausted,
			Message: fmt.Sprintf("no space left for artifact %q", title(name))}
	}
	return fmt.Errorf("artifact %q: %w", title(name), err)
}

// Writer takes one artifact's content. It is not safe for concurrent use.
type Writer struct {
	ctx   context.Context // of Create: the commit belongs to it too
	store *Store
	meta  Meta
	file  *os.File
	sum   hash.Hash
	head  []byte // for finding the MIME type
	size  int64
	done  sync.Once
}

var _ io.Writer = (*Writer)(nil)

// Write hashes while it writes. More than the store's MaxBytes is an error,
// never a cut.
func (w *Writer) Write(p []byte) (int, error) {
	if w.size+int64(len(p)) > w.store.options.MaxBytes {
		return 0, w.store.tooLarge(w.meta.Name)
	}
	n, err := w.file.Write(p)
	w.sum.Write(p[:n])
	w.size += int64(n)
	if room := sniffBytes - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, n)]...)
	}
	if err != nil {
		return n, diskError(w.meta.Name, err)
	}
	return n, nil
}

// Commit makes the content durable and registers it. It ends the Writer,
// whatever it returns.
func (w *Writer) Commit() (Artifact, error) {
	a, err := Artifact{}, fmt.Errorf("artifact %q was ended before: %w", title(w.meta.Name), errdefs.ErrFailedPrecondition)
	w.done.Do(func() {
		if a, err = w.commit(); err != nil {
			os.Remove(w.file.Name()) //nolint:errcheck // it may be a blob by now
		}
		err = errors.Join(err, w.file.Close())
	})
	return a, err
}

func (w *Writer) commit() (Artifact, error) {
	if w.meta.Size >= 0 && w.size != w.meta.Size {
		return Artifact{}, &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument,
			Message: fmt.Sprintf("artifact %q has %d bytes, announced were %d", title(w.meta.Name), w.size, w.meta.Size)}
	}
	if err := errors.Join(w.file.Chmod(0o400), w.file.Sync()); err != nil {
		return Artifact{}, diskError(w.meta.Name, err)
	}
	a := w.artifact()
	release, err := w.store.lock(syscall.LOCK_SH)
	if err != nil {
		return Artifact{}, err
	}
	defer release()
	if err := w.store.place(w.file.Name(), a.SHA256); err != nil {
		return Artifact{}, diskError(w.meta.Name, err)
	}
	err = w.store.index.Insert(w.ctx, a, w.store.options.Quota)
	if err == nil {
		return a, nil
	}
	release()
	return Artifact{}, errors.Join(err, w.store.removeUnregistered(w.ctx, a.SHA256))
}

func (w *Writer) artifact() Artifact {
	now := w.store.options.Now().UTC()
	ttl := w.meta.TTL
	if ttl == 0 {
		ttl = w.store.options.TTL
	}
	name := SafeName(w.meta.Name, w.store.options.NameMax)
	return Artifact{
		ID: newID(), Name: name, Title: title(w.meta.Name), MIME: mimeType(w.meta.MIME, name, w.head),
		SHA256: hex.EncodeToString(w.sum.Sum(nil)), Size: w.size,
		Run: w.meta.Run, Session: w.meta.Session, Principal: w.meta.Principal,
		CreatedAt: now, ExpiresAt: now.Add(ttl),
	}
}

// place renames a whole file to its blob's path. The same content may be there
// already; then the same bytes take its place.
func (s *Store) place(temporary, digest string) error {
	path := s.blobPath(digest)
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err == nil {
		if err := syncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func (s *Store) blobPath(digest string) string {
	return filepath.Join(s.dir, "blobs", digest[:2], digest[2:])
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Abort drops what was written. It is idempotent, and does nothing after Commit.
func (w *Writer) Abort() {
	w.done.Do(func() {
		os.Remove(w.file.Name()) //nolint:errcheck // the next Open clears it
		w.file.Close()           //nolint:errcheck // nobody needs it any more
	})
}
