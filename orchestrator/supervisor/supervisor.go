// Package supervisor is what mcpx-init does: it is the first process of a
// container, waits for a job on the control socket, runs it, and reports. No
// process of the script outlives the script, and nothing outlives the
// connection to the daemon: that is how a daemon's death cleans up.
//
// Init and script have the same uid. So init can't be ended by signals, traced
// or looked into by the script, and the memory limit takes the script first.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// Config says where things are. In a container all is at its well-known place.
type Config struct {
	// Version is what init calls itself.
	Version string
	// SocketPath is the control socket, and what the endpoint is relayed to.
	SocketPath string
	// OutboxDir is walked after the script; it need not exist.
	OutboxDir string
	// Endpoint is the loopback address to relay from, "" for no relay.
	Endpoint string
	// Cgroup is where the cgroup file systems are mounted; "" when what is seen
	// there is not the container's own.
	Cgroup string
	// Subreaper is for a host instead of a container: init is not the first
	// process and ends what is below it, and nothing else.
	Subreaper bool
}

// Run serves one connection, and returns when that has ended and no process of
// the script is left, or, as the first process of a container, whose end ends
// all others, at once. The caller has to exit then.
func Run(ctx context.Context, c Config) error {
	if c.Subreaper {
		// The kernel ends the script with the thread that started it.
		runtime.LockOSThread()
	}
	all, err := newProcesses(c.Subreaper)
	if err != nil {
		return err
	}
	i := &supervisor{config: c, all: all}
	i.protect()
	if err := i.listenForScript(ctx); err != nil {
		i.problem(err)
	}
	err = i.converse(ctx)
	return errors.Join(err, i.abandon())
}

// supervisor is one init.
type supervisor struct {
	config   Config
	all      processes
	score    *oomScore
	relay    *relay
	endpoint string
	problems []string

	session *session
}

// problem notes what a script can run without.
func (i *supervisor) problem(err error) {
	i.problems = append(i.problems, err.Error())
}

// protect keeps the script from ending or reading init.
func (i *supervisor) protect() {
	reserveThreads(spareThreads)
	score, err := openOOMScore()
	if err != nil {
		i.problem(err)
	}
	i.score = score
	if err := standFast(i.config.Subreaper); err != nil {
		i.problem(err)
	}
}

// listenForScript opens the loopback endpoint.
func (i *supervisor) listenForScript(ctx context.Context) error {
	if i.config.Endpoint == "" {
		return nil
	}
	if err := loopbackUp(); err != nil {
		i.problem(err)
	}
	r, err := listenRelay(ctx, i.config.Endpoint, i.config.SocketPath)
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	i.relay, i.endpoint = r, r.address()
	return nil
}

// abandon ends what still runs when the connection is gone.
func (i *supervisor) abandon() error {
	if !i.config.Subreaper || i.session == nil || i.session.script == nil {
		return nil // as the first process we take everything along
	}
	err := i.session.script.kill()
	<-i.session.script.gone
	return err
}
