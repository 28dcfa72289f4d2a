package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// maxSocketPath is what fits a sockaddr_un (108 bytes with the NUL).
const maxSocketPath = 107

// Listen opens every address, or none: unix:///path or host:port.
func Listen(addresses []string) ([]net.Listener, error) {
	if len(addresses) == 0 {
		return nil, badListen("", "there is no address to listen on")
	}
	var all []net.Listener
	for _, address := range addresses {
		l, err := listenOn(address)
		if err != nil {
			return nil, errors.Join(err, CloseAll(all))
		}
		all = append(all, l)
	}
	return all, nil
}

// CloseAll closes the listeners.
func CloseAll(all []net.Listener) error {
	var failed []error
	for _, l := range all {
		failed = append(failed, l.Close())
	}
	return errors.Join(failed...)
}

// Addresses are the endpoints that clients use for the listeners.
func Addresses(all []net.Listener) []string {
	var list []string
	for _, l := range all {
		scheme := "http"
		if l.Addr().Network() == "unix" {
			scheme = "unix"
		}
		list = append(list, scheme+"://"+l.Addr().String())
	}
	return list
}

func listenOn(address string) (net.Listener, error) {
	if path, isUnix := strings.CutPrefix(address, "unix://"); isUnix {
		return listenUnix(address, path)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, badListen(address, err.Error())
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return l, nil
}

// listenUnix makes a socket that only this user can connect to.
func listenUnix(address, path string) (net.Listener, error) {
	switch {
	case !filepath.IsAbs(path):
		return nil, badListen(address, "the path is not absolute")
	case len(path) > maxSocketPath:
		return nil, badListen(address, fmt.Sprintf("the path has %d bytes, a socket's may have %d", len(path), maxSocketPath))
	}
	if err := makeSocketDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	return bindPrivately(address, path)
}

// makeSocketDir makes a directory that others may look into when we are root,
// and nobody else otherwise. One that exists is left as it is.
func makeSocketDir(dir string) error {
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o755
	}
	return os.MkdirAll(dir, mode)
}

// clearStale removes a socket that nobody answers on. Anything else that stands
// there stays.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return badListen("unix://"+path, "something that is no socket stands there")
	}
	if Answers(path) {
		return &run.Error{Code: run.CodeConflict, Class: errdefs.ErrAlreadyExists, Field: "listen",
			Message: "a daemon answers at unix://" + path + " already", Hint: "end it, or give --listen another address"}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stale socket %s: %w", path, err)
	}
	return nil
}

// Answers tells whether somebody takes connections on the socket at path.
func Answers(path string) bool {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return false
	}
	conn.Close() //nolint:errcheck // nothing was said
	return true
}

// bindPrivately binds in a directory that only we can enter and moves the
// socket to its place when its mode is right. Binding in place would leave a
// moment in which others can connect, and the umask belongs to all goroutines.
func bindPrivately(address, path string) (net.Listener, error) {
	private, err := os.MkdirTemp(filepath.Dir(path), ".mcpx-")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer os.RemoveAll(private) //nolint:errcheck // it is empty
	dir, err := os.Open(private)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	defer dir.Close()
	// By the descriptor, because the path is longer than the one asked for.
	short := fmt.Sprintf("/proc/self/fd/%d/s", dir.Fd())
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	l.SetUnlinkOnClose(false) // by the name it was bound to, which is void by then
	made := filepath.Join(private, "s")
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", address, err), l.Close())
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", address, err), l.Close())
	}
	return &unixListener{UnixListener: l, path: path, made: info}, nil
}

// unixListener knows the path that its socket has, and removes it at the end
// unless another one stands there by then.
type unixListener struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

func (l *unixListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		os.Remove(l.path) //nolint:errcheck // a stale socket is replaced by the next daemon
	}
	return l.UnixListener.Close()
}

func badListen(address, why string) error {
	message := why
	if address != "" {
		message = fmt.Sprintf("cannot listen on %q: %s", address, why)
	}
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "listen",
		Message: message, Hint: "write unix:///path/of/socket or host:port"}
}
