package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Options bound a store; zero means the default.
type Options struct {
	MaxBytes int64         // of one artifact
	Quota    int64         // of all distinct content; below 0: no limit
	TTL      time.Duration // of an artifact that says none; below 0: kept until it is deleted
	NameMax  int           // bytes of a name
	Now      func() time.Time
	Log      *slog.Logger // nil: silent
}

// Defaults of Options.
const (
	DefaultMaxBytes = 64 << 20
	DefaultQuota    = 1 << 30
	DefaultTTL      = 24 * time.Hour
)

// withDefaults fills in what is not said.
func (o Options) withDefaults() Options {
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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store keeps contents below one directory. Several processes may share it; it
// is safe for concurrent use.
//
// A blob appears by renaming a whole file, and is registered, while its folder's
// lock is shared; it goes, if it has no registration, while that lock is
// exclusive. So no blob vanishes under a registration, and a reader keeps what
// it has open. The index counts a blob before it appears and until it is gone:
// one that a dying process left is found by the next GC without a search.
type Store struct {
	blobs     string
	temporary string
	index     Index
	options   Options
}

// Open makes the directories and clears what dead writers left.
func Open(dir string, index Index, o Options) (*Store, error) {
	s := &Store{blobs: filepath.Join(dir, "blobs"), temporary: filepath.Join(dir, "tmp"), index: index, options: o.withDefaults()}
	if err := s.makeFolders(); err != nil {
		return nil, fmt.Errorf("artifact store: %w", err)
	}
	cleared, err := s.clearTemporary()
	if err != nil {
		return nil, fmt.Errorf("artifact store: %w", err)
	}
	if cleared > 0 {
		s.options.Log.Warn("removed what dead writers left of artifacts", "files", cleared)
	}
	return s, nil
}

// makeFolders makes all folders of blobs at once, so that no commit has to make
// sure that its own outlives a power cut.
func (s *Store) makeFolders() error {
	for _, dir := range []string{s.blobs, s.temporary} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for i := range 256 {
		if err := os.Mkdir(filepath.Join(s.blobs, fmt.Sprintf("%02x", i)), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return errors.Join(syncDir(s.blobs), syncDir(filepath.Dir(s.blobs)))
}

// clearTemporary removes the files of writers that died: a living one holds
// its file's lock.
func (s *Store) clearTemporary() (removed int, err error) {
	release, err := lockDir(s.temporary, exclusive)
	if err != nil {
		return 0, err
	}
	defer release()
	names, err := filepath.Glob(filepath.Join(s.temporary, "*"))
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		gone, err := removeUnlocked(name)
		if err != nil {
			return removed, err
		}
		if gone {
			removed++
		}
	}
	return removed, nil
}

// removeUnlocked removes a file whose lock nobody holds.
func removeUnlocked(name string) (gone bool, err error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	switch err := flock(file, exclusive|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, os.Remove(name)
}

func (s *Store) blobPath(d Digest) string { return filepath.Join(s.blobs, d.path()) }

// lock takes the lock of a content's folder.
func (s *Store) lock(d Digest, how int) (release func(), err error) {
	return lockDir(filepath.Join(s.blobs, d.folder()), how)
}

// register makes a whole file the content of a. On error the file may still be there.
func (s *Store) register(ctx context.Context, a Artifact, temporary string) error {
	d := Digest(a.SHA256)
	release, err := s.reserve(ctx, d, a)
	if err != nil {
		return err
	}
	defer release()
	if err = s.place(temporary, d); err == nil {
		err = s.index.Insert(ctx, a)
	}
	if err == nil {
		return nil
	}
	release()
	_, _, left := s.collect(context.WithoutCancel(ctx), d)
	return errors.Join(err, left)
}

// reserve has a content counted, with its folder's lock held. When the quota is
// used up, what could go anyway goes first.
func (s *Store) reserve(ctx context.Context, d Digest, a Artifact) (release func(), err error) {
	release, err = s.tryReserve(ctx, d, a)
	if errors.Is(err, ErrQuota) {
		if _, err := s.GC(ctx); err != nil {
			return nil, err
		}
		release, err = s.tryReserve(ctx, d, a)
	}
	if errors.Is(err, ErrQuota) {
		return nil, overQuota(a, s.options.Quota)
	}
	return release, err
}

func (s *Store) tryReserve(ctx context.Context, d Digest, a Artifact) (func(), error) {
	release, err := s.lock(d, shared)
	if err != nil {
		return nil, err
	}
	if err := s.index.Reserve(ctx, d, a.Size, s.options.Quota); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// place renames a whole file to its blob's path. The same content may be there
// already; then the same bytes take its place, which mends a damaged one.
func (s *Store) place(temporary string, d Digest) error {
	path := s.blobPath(d)
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
