// Command mcpx-init is the first process of every container that mcpx makes.
// See package supervisor.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
	"mcpx/orchestrator/supervisor"
	"mcpx/orchestrator/supervisor/endpoint"
)

const usage = `usage: mcpx-init                               first process of a container
       mcpx-init host SOCKET OUTBOX [ENDPOINT] the same for processes of this host, in tests
       mcpx-init version
       mcpx-init call|emit|result|log|artifact|tools …  for scripts; each tells more with -h
`

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	config := supervisor.Config{
		Version:    version(),
		SocketPath: engine.SocketPath,
		OutboxDir:  engine.OutboxDir,
		Endpoint:   "127.0.0.1:" + strconv.Itoa(engine.EndpointPort),
		Cgroup:     "/sys/fs/cgroup",
	}
	switch {
	case len(args) == 0:
	case args[0] == "version" && len(args) == 1:
		fmt.Fprintf(stdout, "mcpx-init %s, protocol %s\n", config.Version, frame.Protocol)
		return 0
	case endpoint.Knows(args[0]):
		return forScript(args, stdout, stderr)
	case args[0] == "host" && (len(args) == 3 || len(args) == 4):
		config = onHost(config.Version, args[1:])
	default:
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	beSmall()
	if err := supervisor.Run(context.Background(), config); err != nil {
		fmt.Fprintf(stderr, "mcpx-init: %v\n", err)
		return exitFailure
	}
	return 0
}

func onHost(version string, args []string) supervisor.Config {
	c := supervisor.Config{Version: version, SocketPath: args[0], OutboxDir: args[1], Subreaper: true}
	if len(args) == 3 {
		c.Endpoint = args[2]
	}
	return c
}

// forScript speaks to the run's socket on behalf of a script.
func forScript(args []string, stdout, stderr io.Writer) int {
	socket := os.Getenv("MCPX_SOCKET")
	if socket == "" {
		socket = engine.SocketPath
	}
	return endpoint.Command{Socket: socket, Stdin: os.Stdin, Stdout: stdout, Stderr: stderr}.Run(context.Background(), args)
}

// beSmall leaves the container's memory and processors to the script: init
// only copies, with buffers that it keeps.
func beSmall() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(25)
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "devel"
}
