// Package sqlite keeps the rows of runs in a SQLite file, which several
// processes may share.
package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"gorm.io/gorm"

	"mcpx/artifacts/sqlite/database"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// Store implements job.Store.
type Store struct{ db *database.DB }

var _ job.Store = (*Store)(nil)

// record is a row of the table runs.
type record struct {
	ID         string `gorm:"primaryKey"`
	State      string
	Owner      string
	Principal  string
	Session    string
	TaskHandle string
	Label      string
	Runtime    string
	Image      string
	Policy     string
	ExitCode   *int
	Signal     string
	Error      []byte // run.Error as JSON
	CreatedAt  int64  // microseconds since 1970, as all moments here
	StartedAt  *int64
	EndedAt    *int64
	DurationMs int64
	LogBytes   int64
}

func (record) TableName() string { return "runs" }

// Open opens the file, makes it if it is missing, and brings its tables up to date.
func Open(path string) (*Store, error) {
	db, err := database.Open(path, steps)
	if err != nil {
		return nil, fmt.Errorf("runs: %w", err)
	}
	return &Store{db}, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Insert adds a row; errdefs.ErrAlreadyExists when the id is taken.
func (s *Store) Insert(ctx context.Context, row job.Row) error {
	r, err := toRecord(row)
	if err != nil {
		return err
	}
	err = s.db.Write.WithContext(ctx).Create(&r).Error
	if errors.Is(err, gorm.ErrDuplicatedKey) {
		return fmt.Errorf("run %s: %w", row.RunID, errdefs.ErrAlreadyExists)
	}
	return err
}

// terminal are the states that never change.
var terminal = []string{
	string(run.Exited), string(run.Signalled), string(run.TimedOut), string(run.OOMKilled), string(run.OutputLimit),
	string(run.Cancelled), string(run.Denied), string(run.Failed), string(run.Lost),
}

// Update writes a row that is not terminal.
func (s *Store) Update(ctx context.Context, row job.Row) error {
	r, err := toRecord(row)
	if err != nil {
		return err
	}
	result := s.db.Write.WithContext(ctx).Model(&record{}).Where("id = ? AND state NOT IN ?", r.ID, terminal).
		Select("state", "exit_code", "signal", "error", "started_at", "ended_at", "duration_ms", "log_bytes").Updates(&r)
	if result.Error != nil {
		return result.Error
	}
	if result.RowsAffected == 0 {
		return fmt.Errorf("run %s has ended, or is not known: %w", row.RunID, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Get yields one row; errdefs.ErrNotFound when there is none.
func (s *Store) Get(ctx context.Context, id string) (job.Row, error) {
	var r record
	err := s.db.Read.WithContext(ctx).Where("id = ?", id).Take(&r).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return job.Row{}, &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no run %q", id)}
	}
	if err != nil {
		return job.Row{}, err
	}
	return r.row()
}

// List yields a page, the newest first.
func (s *Store) List(ctx context.Context, f job.Filter) ([]job.Row, string, error) {
	limit := f.PageSize()
	q := s.db.Read.WithContext(ctx).Order("id DESC").Limit(limit + 1)
	for _, is := range []struct{ column, value string }{
		{"principal", f.Principal}, {"session", f.Session}, {"task_handle", f.TaskHandle}, {"label", f.Label},
	} {
		if is.value != "" {
			q = q.Where(is.column+" = ?", is.value)
		}
	}
	if len(f.States) > 0 {
		q = q.Where("state IN ?", f.States)
	}
	if f.After != "" {
		q = q.Where("id < ?", f.After)
	}
	rows, err := find(q)
	if err != nil || len(rows) <= limit {
		return rows, "", err
	}
	return rows[:limit], rows[limit-1].RunID, nil
}

// Unfinished yields an owner's rows that are not terminal.
func (s *Store) Unfinished(ctx context.Context, owner string) ([]job.Row, error) {
	return find(s.db.Read.WithContext(ctx).Where("owner = ? AND state NOT IN ?", owner, terminal).Order("id"))
}

// Oldest yields terminal rows, the first that ended first.
func (s *Store) Oldest(ctx context.Context, limit int) ([]job.Row, error) {
	return find(s.db.Read.WithContext(ctx).Where("state IN ?", terminal).Where("ended_at IS NOT NULL").
		Order("ended_at").Order("id").Limit(limit))
}

// Total counts terminal rows and their logs' bytes.
func (s *Store) Total(ctx context.Context) (count, logBytes int64, err error) {
	var sum struct{ Count, Bytes int64 }
	err = s.db.Read.WithContext(ctx).Model(&record{}).Where("state IN ?", terminal).Where("ended_at IS NOT NULL").
		Select("COUNT(*) AS count, COALESCE(SUM(log_bytes), 0) AS bytes").Scan(&sum).Error
	return sum.Count, sum.Bytes, err
}

// Delete removes a row; errdefs.ErrNotFound when there is none.
func (s *Store) Delete(ctx context.Context, id string) error {
	result := s.db.Write.WithContext(ctx).Where("id = ?", id).Delete(&record{})
	if result.Error == nil && result.RowsAffected == 0 {
		return fmt.Errorf("run %s: %w", id, errdefs.ErrNotFound)
	}
	return result.Error
}

func find(q *gorm.DB) ([]job.Row, error) {
	var records []record
	if err := q.Find(&records).Error; err != nil {
		return nil, err
	}
	rows := make([]job.Row, len(records))
	for i, r := range records {
		row, err := r.row()
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	return rows, nil
}

func toRecord(row job.Row) (record, error) {
	r := record{
		ID: row.RunID, State: string(row.State), Owner: row.Owner, Principal: row.Principal, Session: row.Session,
		TaskHandle: row.TaskHandle, Label: row.Label, Runtime: row.Runtime, Image: row.Image, Policy: row.Policy,
		ExitCode: row.ExitCode, Signal: row.Signal, CreatedAt: row.CreatedAt.UnixMicro(),
		StartedAt: micros(row.StartedAt), EndedAt: micros(row.EndedAt), DurationMs: row.DurationMs, LogBytes: row.LogBytes,
	}
	if row.Error == nil {
		return r, nil
	}
	var err error
	r.Error, err = json.Marshal(row.Error)
	return r, err
}

func (r record) row() (job.Row, error) {
	row := job.Row{Owner: r.Owner, LogBytes: r.LogBytes, Summary: run.Summary{
		RunID: r.ID, State: run.State(r.State), Principal: r.Principal, Session: r.Session, TaskHandle: r.TaskHandle,
		Label: r.Label, Runtime: r.Runtime, Image: r.Image, Policy: r.Policy, ExitCode: r.ExitCode, Signal: r.Signal,
		CreatedAt: time.UnixMicro(r.CreatedAt).UTC(), StartedAt: moment(r.StartedAt), EndedAt: moment(r.EndedAt),
		DurationMs: r.DurationMs,
	}}
	if len(r.Error) == 0 {
		return row, nil
	}
	row.Error = &run.Error{}
	return row, json.Unmarshal(r.Error, row.Error)
}

func micros(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

func moment(us *int64) *time.Time {
	if us == nil {
		return nil
	}
	t := time.UnixMicro(*us).UTC()
	return &t
}
