package job

import (
	"context"
	"time"

	"mcpx/orchestrator/run"
)

// Row is what is kept of a run beside its log.
type Row struct {
	run.Summary
	Owner    string // the life of the process that has it
	LogBytes int64  // set at its end
}

// conclude takes over what the end event tells.
func (r *Row) conclude(end *run.End, at time.Time) {
	r.State, r.ExitCode, r.Signal, r.DurationMs = end.State, end.ExitCode, end.Signal, end.DurationMs
	r.EndedAt = &at
	// The start event comes before the container is prepared; only the end
	// knows when, and whether, the script's process came to be.
	switch {
	case end.Timings.Started != nil:
		started := precise(r.CreatedAt.Add(time.Duration(*end.Timings.Started * float64(time.Millisecond))))
		r.StartedAt = &started
	case end.Timings != (run.Timings{}):
		r.StartedAt = nil
	}
}

// now is as precise as stores keep moments, so that one moment looks the same
// before and after it was stored.
func now() time.Time { return precise(time.Now()) }

func precise(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// Store keeps rows. A row whose state is terminal never changes again.
type Store interface {
	// Insert adds a row; errdefs.ErrAlreadyExists when its id is taken.
	Insert(context.Context, Row) error
	// Update writes state, moments and ending; errdefs.ErrFailedPrecondition
	// when the row is terminal already, or there is none.
	Update(context.Context, Row) error
	// Get yields one row; errdefs.ErrNotFound when there is none.
	Get(ctx context.Context, id string) (Row, error)
	// List yields a page, the newest id first; next is "" on the last one.
	List(context.Context, Filter) (rows []Row, next string, err error)
	// Unfinished yields the rows of an owner that are not terminal.
	Unfinished(ctx context.Context, owner string) ([]Row, error)
	// Oldest yields at most limit terminal rows, the first that ended first.
	Oldest(ctx context.Context, limit int) ([]Row, error)
	// Total is how many terminal rows there are and how large their logs.
	Total(context.Context) (count, logBytes int64, err error)
	// Delete removes a row; errdefs.ErrNotFound when there is none.
	Delete(ctx context.Context, id string) error
}

// Filter selects rows; what is empty selects all.
type Filter struct {
	States     []run.State
	Session    string
	TaskHandle string
	Label      string
	Principal  string
	After      string // id: only older ones
	Limit      int    // 0: DefaultLimit
}

// Limits of a page.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// PageSize is how many rows a page that is asked for by f has at most.
func (f Filter) PageSize() int {
	if f.Limit <= 0 {
		return DefaultLimit
	}
	return min(f.Limit, MaxLimit)
}
