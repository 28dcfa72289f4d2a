package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// space is a mount namespace that this process holds. Its mounts are seen
// nowhere else, and end with the last who is in it.
type space struct{ file *os.File }

// hybrid is where hosts that use cgroups of version 1 keep those of version 2.
const hybrid = "/sys/fs/cgroup/unified"

// mntName is the directory below Config.Dir that holds memory of the space's own.
const mntName = "mnt"

func newSpace(dir string) (*space, error) {
	s := &space{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := furnish(filepath.Join(dir, mntName)); err != nil {
			return err
		}
		var err error
		s.file, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if errors.Is(err, unix.EPERM) {
		return nil, noPrivilege("root may not here, as in a container: " + err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("mount namespace of the engine: %w", err)
	}
	return s, nil
}

func furnish(mnt string) error {
	// What the host mounts later is still to be seen, not the other way round.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounts away from the host: %w", err)
	}
	// crun 1.8 refuses to work where both versions are.
	err := unix.Unmount(hybrid, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", hybrid, err)
	}
	if err := unix.Mount("mcpx", mnt, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700"); err != nil {
		return fmt.Errorf("mount %s: %w", mnt, err)
	}
	return nil
}

// run does something on a thread inside of the space. The thread ends with it,
// so that do may change more of what a thread has.
func (s *space) run(do func() error) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // setns wants it so
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter the engine's mount namespace: %w", err)
		}
		return do()
	})
}

func (s *space) close() error { return s.file.Close() }

// onThread does something on a thread that ends afterwards. The main thread
// does not serve: it stands for the process in /proc, and lives on.
func onThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			done <- do()
			return // still locked: this ends the thread
		}
		err := onThread(do) // on another, for this one is taken
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
