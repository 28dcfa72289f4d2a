package supervisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"mcpx/orchestrator/frame"
)

// maxRelayed bounds the connections at one time, for each costs init
// descriptors and memory; more have to wait.
const maxRelayed = 64

// relay makes the run's socket reachable by plain HTTP on the loopback.
type relay struct {
	listener net.Listener
	socket   string
	cancel   context.CancelFunc
	places   chan struct{}
	running  sync.WaitGroup
}

func listenRelay(ctx context.Context, address, socket string) (*relay, error) {
	ctx, cancel := context.WithCancel(ctx)
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	listener, err := c.Listen(ctx, "tcp4", address)
	if err != nil {
		cancel()
		return nil, err
	}
	r := &relay{listener: listener, socket: socket, cancel: cancel, places: make(chan struct{}, maxRelayed)}
	r.running.Go(func() { r.serve(ctx) })
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

// close ends the relay and its connections.
func (r *relay) close() {
	r.cancel()
	r.listener.Close() //nolint:errcheck // accept ends with it
	r.running.Wait()
}

func (r *relay) serve(ctx context.Context) {
	for r.place(ctx) {
		conn, err := r.listener.Accept()
		if err != nil {
			<-r.places
			pause(ctx) // out of descriptors, say: the script may let go of some
			continue
		}
		r.running.Go(func() {
			defer func() { <-r.places }()
			r.connect(ctx, conn)
		})
	}
}

// place waits for a place; false when the relay ends.
func (r *relay) place(ctx context.Context) bool {
	select {
	case r.places <- struct{}{}:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func pause(ctx context.Context) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}

// connect passes bytes both ways until both are through.
func (r *relay) connect(ctx context.Context, from net.Conn) {
	defer from.Close()
	to, err := frame.DialSocket(ctx, r.socket)
	if err != nil {
		return // the script sees a closed connection
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() {
		from.Close()
		to.Close()
	})()
	var back sync.WaitGroup
	back.Go(func() { pass(from, to) })
	pass(to, from)
	back.Wait()
}

// pass copies one way and hands the end on. One that breaks breaks both ways.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		half.CloseWrite() //nolint:errcheck // the other way tells
	}
}

// loopbackUp brings the loopback interface up where nobody has: that is so in
// a bare network namespace. Without the capability the engine has to.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	flags := request.Uint16()
	if flags&unix.IFF_UP != 0 {
		return nil
	}
	request.SetUint16(flags | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("loopback is down: %w", err)
	}
	return nil
}
