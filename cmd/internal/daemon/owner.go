package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Owner is one life of one process on a state directory. Whatever it makes
// carries its ID. While it lives it holds the lock of its file, which the
// kernel frees however the process ends; so a free lock means a dead owner, and
// its containers, control directories and unfinished runs can be swept.
type Owner struct {
	ID   string
	dirs ownerDirs
	lock *os.File
}

// ownerDirs are the places in a state directory that owners share.
type ownerDirs struct{ state string }

func (d ownerDirs) locks() string           { return filepath.Join(d.state, "owners") }
func (d ownerDirs) lock(id string) string   { return filepath.Join(d.locks(), id+lockSuffix) }
func (d ownerDirs) runDir(id string) string { return filepath.Join(d.state, "run", id) }

const lockSuffix = ".lock"

// Acquire begins a life on the state directory, and takes hold of those that
// have ended without a clean-up. Each of the dead is to be given to Bury, or to
// Leave for somebody later.
func Acquire(state string) (*Owner, []*Owner, error) {
	dirs := ownerDirs{state}
	if err := os.MkdirAll(dirs.locks(), 0o700); err != nil {
		return nil, nil, fmt.Errorf("directory for owners: %w", err)
	}
	unlock, err := dirs.guard()
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	dead, err := dirs.dead()
	if err != nil {
		return nil, nil, errors.Join(err, leaveAll(dead))
	}
	id := strings.ToLower(rand.Text()[:16])
	file, err := os.OpenFile(dirs.lock(id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("lock of owner: %w", err), leaveAll(dead))
	}
	if _, err := tryLock(file); err != nil {
		return nil, nil, errors.Join(err, file.Close(), leaveAll(dead))
	}
	return &Owner{ID: id, dirs: dirs, lock: file}, dead, nil
}

// Dead takes hold of the owners that have ended, as Acquire does.
func (o *Owner) Dead() ([]*Owner, error) {
	unlock, err := o.dirs.guard()
	if err != nil {
		return nil, err
	}
	defer unlock()
	dead, err := o.dirs.dead()
	if err != nil {
		return nil, errors.Join(err, leaveAll(dead))
	}
	return dead, nil
}

// RunDir holds the control directories of this owner's runs.
func (o *Owner) RunDir() string { return o.dirs.runDir(o.ID) }

// Bury removes what is on disk of an owner of whom nothing else is left.
func (o *Owner) Bury() error {
	unlock, err := o.dirs.guard()
	if err != nil {
		return errors.Join(err, o.Leave())
	}
	defer unlock()
	if err := os.RemoveAll(o.RunDir()); err != nil {
		return errors.Join(fmt.Errorf("control directories of owner %s: %w", o.ID, err), o.Leave())
	}
	if err := os.Remove(o.dirs.lock(o.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("lock of owner %s: %w", o.ID, err), o.Leave())
	}
	return o.Leave()
}

// Leave frees the lock; the next Acquire finds a dead owner.
func (o *Owner) Leave() error { return o.lock.Close() }

func leaveAll(owners []*Owner) error {
	var failed []error
	for _, o := range owners {
		failed = append(failed, o.Leave())
	}
	return errors.Join(failed...)
}

// dead locks every file whose owner is gone. The lock is kept, so that two
// processes that start at the same time do not sweep the same owner.
func (d ownerDirs) dead() ([]*Owner, error) {
	entries, err := os.ReadDir(d.locks())
	if err != nil {
		return nil, fmt.Errorf("list of owners: %w", err)
	}
	var dead []*Owner
	for _, entry := range entries {
		id, isLock := strings.CutSuffix(entry.Name(), lockSuffix)
		if !isLock || id == "" || !entry.Type().IsRegular() {
			continue
		}
		file, err := os.OpenFile(d.lock(id), os.O_RDWR, 0)
		if err != nil {
			return dead, fmt.Errorf("lock of owner %s: %w", id, err)
		}
		free, err := tryLock(file)
		if err != nil || !free {
			if err := errors.Join(err, file.Close()); err != nil {
				return dead, err
			}
			continue
		}
		dead = append(dead, &Owner{ID: id, dirs: d, lock: file})
	}
	return dead, nil
}

// guard serialises changes of the list: an owner's file must never be seen
// between its creation and its locking.
func (d ownerDirs) guard() (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(d.locks(), lockSuffix), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("list of owners: %w", err)
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock of the list of owners: %w", err), file.Close())
	}
	return func() { file.Close() }, nil //nolint:errcheck // nothing was written
}

func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, nil
	}
	return false, fmt.Errorf("lock %s: %w", file.Name(), err)
}
