package artifacts

import (
	"errors"
	"os"
	"syscall"
)

// Ways of taking a lock.
const (
	shared    = syscall.LOCK_SH
	exclusive = syscall.LOCK_EX
)

// lockDir takes a directory's lock, which other processes see and which the
// kernel releases when its holder dies. Releasing twice is harmless.
func lockDir(dir string, how int) (release func(), err error) {
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := flock(file, how); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { file.Close() }, nil
}

func flock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
