package supervisor_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lockThread keeps the thread on whose death cmd's process is killed.
func lockThread(cmd *exec.Cmd) {
	if cmd.SysProcAttr != nil {
		runtime.LockOSThread() // the goroutine's end ends the thread, and waits for cmd before
	}
}

// scripts are what a shell can't do; they run inside of a box.
func scripts() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"noise":    func([]string) error { return noise(os.Stdout, 1) },
		"attack":   func([]string) error { return attack() },
		"peep":     func([]string) error { return peep() },
		"state":    func([]string) error { return state() },
		"orphans":  func([]string) error { return orphans() },
		"child":    func([]string) error { return nil },
		"call":     call,
		"smuggle":  func([]string) error { return smuggle() },
		"outbox":   func([]string) error { return fillOutbox() },
		"sink":     func([]string) error { _, err := io.Copy(io.Discard, os.Stdin); return err },
		"loopback": func([]string) error { return loopback() },
	}
}

const noiseSize = 8 << 20

// noise writes reproducible bytes of every value.
func noise(w io.Writer, seed uint64) error {
	_, err := io.CopyN(w, rand.NewChaCha8([32]byte{byte(seed)}), noiseSize)
	return err
}

// attack sends init every signal in every way there is.
func attack() error {
	var info [128]byte
	for sig := 1; sig <= 64; sig++ {
		*(*int32)(unsafe.Pointer(&info[0])) = int32(sig)
		*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE: as if it were no process's doing
		for range 3 {
			unix.Kill(1, syscall.Signal(sig))                                                                      //nolint:errcheck
			unix.Tgkill(1, 1, syscall.Signal(sig))                                                                 //nolint:errcheck
			unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(sig), uintptr(unsafe.Pointer(&info)))             //nolint:errcheck
			unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, 1, 1, uintptr(sig), uintptr(unsafe.Pointer(&info)), 0, 0) //nolint:errcheck
		}
	}
	fmt.Println("init stands")
	return nil
}

// peep tries to look into init, and tells what it could open.
func peep() error {
	for _, name := range []string{"environ", "mem", "maps", "fd", "auxv", "cwd", "root", "exe", "stack"} {
		path := filepath.Join("/proc/1", name)
		if _, err := os.Readlink(path); err == nil {
			fmt.Println("link", name)
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if _, err := f.Read(make([]byte, 1)); err == nil || f.Fd() > 0 && name == "fd" {
			fmt.Println("file", name)
		}
		f.Close()
	}
	if err := unix.PtraceSeize(1); err == nil {
		fmt.Println("ptrace")
	}
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		if _, err := unix.PidfdGetfd(fd, 3, 0); err == nil {
			fmt.Println("descriptor")
		}
	}
	fmt.Println("done")
	return nil
}

// state tells how this process came up.
func state() error {
	sid, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	fmt.Println("leads its session:", sid == os.Getpid())
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	open := 0
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "socket:") {
			open++
		}
	}
	fmt.Println("pipes and sockets:", open)
	for fd := range 3 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		fmt.Println("blocks:", flags&unix.O_NONBLOCK == 0)
	}
	for _, pid := range []string{"self", "1"} {
		score, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		if err != nil {
			return err
		}
		fmt.Println("score:", strings.TrimSpace(string(score)))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "SigBlk:") || strings.HasPrefix(line, "SigIgn:") {
			fmt.Print(line)
		}
	}
	return nil
}

// orphans leaves children to init and waits until it has reaped all of them.
func orphans() error {
	for range 40 {
		// The shell is gone before its child is.
		if err := exec.Command("/bin/sh", "-c", "(/test script child &)").Run(); err != nil {
			return err
		}
	}
	for began := time.Now(); time.Since(began) < patience; {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			return err
		}
		if len(stats) == 2 { // init and this
			fmt.Println("reaped")
			return nil
		}
		runtime.Gosched()
	}
	return errors.New("orphans are left")
}

// call speaks HTTP/1.0 through init's relay, and ends its side first.
func call(args []string) error {
	conn, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	body := strings.Repeat("0123456789", 100_000)
	fmt.Fprintf(conn, "POST /echo HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	fmt.Println(strings.HasPrefix(string(answer), "HTTP/1.0 200"), strings.HasSuffix(string(answer), "\r\n\r\n"+body))
	return nil
}

// smuggle sends its stdout to a socket whose owner, outside, never takes it.
func smuggle() error {
	fmt.Println("before")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "/run/mcpx/deaf.sock"}); err != nil {
		return err
	}
	return unix.Sendmsg(fd, []byte("x"), unix.UnixRights(1, 2), nil, 0)
}

// loopback tells whether the interface is up.
func loopback() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, err = net.DialTimeout("tcp", l.Addr().String(), patience)
	fmt.Println("loopback:", err)
	return nil
}
