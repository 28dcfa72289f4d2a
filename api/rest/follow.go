package rest

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// heartbeat is how long a stream is silent at most.
const heartbeat = 15 * time.Second

// reader takes a run's events in order.
type reader interface {
	event(run.Event) error
	// ping is called when nothing has happened for a heartbeat.
	ping() error
}

type next struct {
	event run.Event
	err   error
}

// follow gives a log's events to r until it ends, r fails or ctx ends. Each
// event waits for the reader, so a slow one costs no memory: the log is on disk.
func follow(ctx context.Context, watch func(context.Context) iter.Seq2[run.Event, error], r reader) error {
	ctx, cancel := context.WithCancel(ctx)
	var pump sync.WaitGroup
	defer pump.Wait()
	defer cancel()
	events := make(chan next)
	pump.Go(func() {
		defer close(events)
		for e, err := range watch(ctx) {
			select {
			case events <- next{e, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	return relay(ctx, events, r)
}

func relay(ctx context.Context, events <-chan next, r reader) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
			if err := r.ping(); err != nil {
				return err
			}
		case n, more := <-events:
			if !more {
				return context.Cause(ctx)
			}
			if n.err != nil {
				return n.err
			}
			if err := r.event(n.event); err != nil {
				return err
			}
			beat.Reset(heartbeat)
		}
	}
}

// ending wraps a reader and notes the end frame.
type ending struct {
	reader
	end *run.End
}

func (r *ending) event(e run.Event) error {
	if end, ok := e.Payload.(*run.End); ok {
		r.end = end
	}
	return r.reader.event(e)
}

// followToEnd is follow for those who promise an ending: a log that stops
// before its end frame is an error.
func followToEnd(ctx context.Context, watch func(context.Context) iter.Seq2[run.Event, error], r reader) (*run.End, error) {
	e := &ending{reader: r}
	if err := follow(ctx, watch, e); err != nil {
		return nil, err
	}
	if e.end == nil {
		return nil, &run.Error{Code: run.CodeShuttingDown, Class: errdefs.ErrUnavailable,
			Message: "the run's log stopped before its end", Hint: "GET /v1/runs/{id} tells what became of it"}
	}
	return e.end, nil
}
