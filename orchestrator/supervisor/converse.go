package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"mcpx/orchestrator/frame"
)

// converse speaks with the daemon until it hangs up, which is not an error.
func (i *supervisor) converse(ctx context.Context) error {
	conn, err := frame.Dial(ctx, i.config.SocketPath)
	if err != nil {
		return err
	}
	defer conn.Close()
	out := frame.NewWriter(conn)
	err = out.WriteMessage(frame.Hello, frame.HelloMessage{
		Protocol: frame.Protocol, Version: i.config.Version, Endpoint: i.endpoint, Problems: i.problems,
	})
	if err != nil {
		return err
	}
	in := frame.NewReader(conn)
	job, err := awaitJob(in)
	if err != nil {
		return hungUp(err)
	}
	i.session = &session{supervisor: i, conn: conn, out: out, answers: make(chan bool, 1)}
	if err := i.session.begin(job); err != nil {
		return err
	}
	return hungUp(i.session.listen(in))
}

// awaitJob may take hours: containers wait ahead of their job.
func awaitJob(in *frame.Reader) (frame.JobMessage, error) {
	var job frame.JobMessage
	f, err := in.Next()
	if err != nil {
		return job, err
	}
	if f.Type != frame.Job {
		return job, fmt.Errorf("%s frame instead of a job", f.Type)
	}
	return job, f.Decode(&job)
}

func hungUp(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("control connection: %w", err)
}
