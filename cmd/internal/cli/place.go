package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/pflag"

	"mcpx/api/client"
	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/run"
)

// place are the flags that say where a command works: in this process, or in a
// daemon.
type place struct {
	local  bool
	remote string
}

// configured stands for --remote without an endpoint.
const configured = "configured"

func (p *place) bind(f *pflag.FlagSet) {
	f.BoolVar(&p.local, "local", false, "work in this process, on this machine")
	f.StringVar(&p.remote, "remote", "", "work in the daemon at ENDPOINT (default: the configured one, else the usual socket)")
	f.Lookup("remote").NoOptDefVal = configured
}

// endpoint is the daemon that is to do the work, "" for this process. Automatic
// means a daemon only if one is configured.
func (p place) endpoint(a *app, c daemon.Config) (string, error) {
	where := c.Where
	switch {
	case p.local && p.remote != "":
		return "", wrong("--local and --remote contradict each other", "leave one out")
	case p.local:
		where = daemon.WhereLocal
	case p.remote == configured:
		where = daemon.WhereRemote
	case p.remote != "":
		return p.remote, nil
	}
	switch where {
	case daemon.WhereLocal:
		return "", refuseFarEndpoint(c)
	case daemon.WhereRemote:
		if c.Endpoint == "" {
			return daemon.DefaultEndpoint(a.process), nil
		}
	}
	return c.Endpoint, nil
}

// refuseFarEndpoint: with a daemon elsewhere, a local run would work, and leave
// its artifacts and its record where nobody looks for them.
func refuseFarEndpoint(c daemon.Config) error {
	if c.Endpoint == "" || strings.HasPrefix(c.Endpoint, "unix://") {
		return nil
	}
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument,
		Message: fmt.Sprintf("a local run, while the daemon at %s is configured, would leave its record and artifacts on this machine", c.Endpoint),
		Hint:    "leave --local out, or unset daemon.endpoint (MCPX_DAEMON_ENDPOINT)"}
}

// client makes a client of the daemon at endpoint.
func (a *app) client(c daemon.Config, endpoint string) (*client.Client, error) {
	token, err := readToken(c.EndpointTokenFile)
	if err != nil {
		return nil, err
	}
	return client.New(endpoint, token)
}

// readToken is the first line of a token file, "" without a file.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", wrong("token file: "+err.Error(), "name one that can be read with --endpoint-token-file")
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Scan()
	token := strings.TrimSpace(lines.Text())
	if err := lines.Err(); err != nil || token == "" {
		return "", wrong(fmt.Sprintf("token file %s: no token in its first line", path), "put the daemon's token there")
	}
	return token, nil
}
