package supervisor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// stage says how a box is set up. The test binary itself does it, as the first
// process of new namespaces, and becomes mcpx-init then.
type stage struct {
	Root    string // an empty directory
	Control string // becomes /run/mcpx
	Outbox  string // becomes /outbox
	Cgroup  string // becomes /sys/fs/cgroup
	Init    string
	Test    string // this binary, becomes /test
	Pids    uint64 // of the uid, 0 for no limit
	NoFile  uint64 // 0 for no limit
	UID     int    // of init and script
	Caps    bool   // keep root and its capabilities
	LoDown  bool   // leave the loopback down
}

// boxUID is nobody else's on this machine, so that limits count the box alone.
const boxUID = 64321

// enter never returns on success.
func enter(text string) error {
	runtime.LockOSThread()
	var s stage
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	if err := s.build(); err != nil {
		return err
	}
	if err := s.restrict(); err != nil {
		return err
	}
	return fmt.Errorf("exec: %w", unix.Exec("/init", []string{"mcpx-init"}, []string{"SECRET=of-init"}))
}

// build makes a root of the host's programs and enters it.
func (s stage) build() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64", "/sbin", "/dev"} {
		if err := s.bind(dir, dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for from, to := range map[string]string{
		s.Control: "/run/mcpx", s.Outbox: "/outbox", s.Cgroup: "/sys/fs/cgroup", s.Init: "/init", s.Test: "/test",
	} {
		if err := s.bind(from, to); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Root, "proc"), 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", filepath.Join(s.Root, "proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if err := os.Mkdir(filepath.Join(s.Root, "tmp"), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(s.Root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	return errors.Join(unix.Chroot(s.Root), os.Chdir("/"))
}

func (s stage) bind(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	target := filepath.Join(s.Root, to)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else {
		err = os.WriteFile(target, nil, 0o755)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(from, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	return nil
}

func (s stage) restrict() error {
	if !s.LoDown {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	if !s.Caps {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	if !s.Caps && os.Getuid() != s.UID {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(s.UID), syscall.Setuid(s.UID)); err != nil {
			return fmt.Errorf("uid: %w", err)
		}
	}
	return errors.Join(limit(unix.RLIMIT_NPROC, s.Pids), limit(unix.RLIMIT_NOFILE, s.NoFile))
}

func limit(of int, n uint64) error {
	if n == 0 {
		return nil
	}
	return syscall.Setrlimit(of, &syscall.Rlimit{Cur: n, Max: n})
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// namespaces are those of a box; without root, a user namespace gives the right to the others.
func namespaces() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: boxUID, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: boxUID, HostID: os.Getgid(), Size: 1}}
		// A uid that is not root keeps these only over an exec.
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_NET_ADMIN, unix.CAP_DAC_OVERRIDE}
	}
	return a
}
