package docker_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/docker"
	"mcpx/orchestrator/frame"
)

// acted is a Control whose init is played by a function. A nil one never connects.
type acted func(in *frame.Reader, out *frame.Writer)

func (play acted) Accept(ctx context.Context) (net.Conn, error) {
	if play == nil {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		out := frame.NewWriter(theirs)
		if out.WriteMessage(frame.Hello, frame.HelloMessage{Protocol: frame.Protocol}) == nil {
			play(frame.NewReader(theirs), out)
		}
	}()
	return ours, nil
}

// vanishes takes the job, starts the script and is gone.
func vanishes(in *frame.Reader, out *frame.Writer) {
	in.Next()                     //nolint:errcheck // the engine sees what is wrong
	out.Write(frame.Started, nil) //nolint:errcheck // as above
}

// reports takes the job and reports what message says.
func reports(message frame.ExitMessage) acted {
	return func(in *frame.Reader, out *frame.Writer) {
		vanishes(in, out)
		out.WriteMessage(frame.Exit, message) //nolint:errcheck // as above
		in.Next()                             //nolint:errcheck // waits for the end
	}
}

// waits takes no job.
func waits(in *frame.Reader, _ *frame.Writer) { in.Next() } //nolint:errcheck // it waits for the end

func specOf(t *testing.T, control acted) engine.Spec {
	return engine.Spec{
		Owner: "o", Run: "r", Image: "i", ImageInit: "1", User: "65532:65532", Network: engine.NetworkNone,
		ControlDir: t.TempDir(), Control: control,
	}
}

// prepared is a container of d whose init is played.
func prepared(t *testing.T, d *daemon, play acted) engine.Container {
	t.Helper()
	c, err := d.engine(docker.Config{}).Prepare(t.Context(), specOf(t, play))
	require.NoError(t, err)
	t.Cleanup(func() {
		d.on("DELETE", "/containers/c1", answer{status: 204})
		require.NoError(t, c.Remove(context.WithoutCancel(t.Context())))
	})
	return c
}

func runTrue(t *testing.T, c engine.Container) (engine.Exit, error) {
	return c.Run(t.Context(), engine.Job{Argv: strings.Fields("true"), Cwd: "/"}, engine.IO{})
}
