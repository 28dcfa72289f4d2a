package auth

import (
	"context"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Peer is what the connection alone says of who is at its other end.
type Peer struct {
	// Unix: it came by a unix socket, whose file mode let it in.
	Unix bool
	// SameUser: the kernel says that the process has our uid.
	SameUser bool
	// Local is the address that was dialled, for TCP.
	Local net.IP
}

type peerKey struct{}

// WithPeer is for http.Server.ConnContext: it notes c's peer for Admit.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerOf(c))
}

// peerFrom yields a stranger on TCP when nothing was noted: it fails closed.
func peerFrom(ctx context.Context) Peer {
	p, _ := ctx.Value(peerKey{}).(Peer)
	return p
}

func peerOf(c net.Conn) Peer {
	switch c := c.(type) {
	case *net.UnixConn:
		uid, ok := peerUID(c)
		return Peer{Unix: true, SameUser: ok && uid == os.Geteuid()}
	case *net.TCPConn:
		if addr, ok := c.LocalAddr().(*net.TCPAddr); ok {
			return Peer{Local: addr.IP}
		}
	}
	return Peer{}
}

// peerUID is the uid at the time of connect (SO_PEERCRED). Of a process in
// another user namespace the kernel tells the mapped or the overflow uid,
// which is not ours, so nothing is shared with it by mistake.
func peerUID(c *net.UnixConn) (int, bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return 0, false
	}
	return int(cred.Uid), true
}
