package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"mcpx/orchestrator/run"
)

// Recover ends the runs of processes that died: their logs get an end, their
// rows the state lost; it returns how many. A log that had its end keeps it,
// and gives the row its state. Recover is idempotent, and two processes may do
// it at once.
func (m *Manager) Recover(ctx context.Context, deadOwners []string) (int, error) {
	lost := 0
	var failed []error
	for _, owner := range deadOwners {
		rows, err := m.config.Store.Unfinished(ctx, owner)
		if err != nil {
			return lost, errors.Join(append(failed, err)...)
		}
		for _, row := range rows {
			isLost, err := m.recoverRun(ctx, row)
			if err != nil {
				failed = append(failed, fmt.Errorf("run %s: %w", row.RunID, err))
			} else if isLost {
				lost++
			}
		}
	}
	return lost, errors.Join(failed...)
}

func (m *Manager) recoverRun(ctx context.Context, row Row) (lost bool, err error) {
	if err := recoverLog(m.config.LogDir, &row); err != nil {
		return false, fmt.Errorf("event log: %w", err)
	}
	err = m.config.Store.Update(ctx, row)
	if errdefs.IsFailedPrecondition(err) {
		return false, nil // another process has been here, and has seen the same log
	}
	return err == nil && row.State == run.Lost, err
}

// recoverLog gives the log an end if it has none, and the row what the log
// tells. The file's lock keeps others from doing so at the same time.
func recoverLog(dir string, row *Row) error {
	file, err := openLog(dir, row.RunID, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := lock(file); err != nil {
		return err
	}
	found, err := survey(file)
	if err != nil {
		return err
	}
	if found.end == nil {
		return found.endAsLost(file, row)
	}
	row.Error, row.LogBytes = found.problem, found.size
	row.conclude(found.end, precise(found.endedAt))
	return nil
}

// endAsLost writes what the process could no longer write.
func (f findings) endAsLost(file *os.File, row *Row) error {
	log := &eventLog{file: file, seq: f.seq, size: f.size, changed: make(chan struct{})}
	end := &run.End{RunID: row.RunID, State: run.Lost, StdoutBytes: f.stdout, StderrBytes: f.stderr}
	problem := &run.Error{Code: run.CodeLost, Message: lostMessage(row.State)}
	if err := log.cutTail(); err != nil {
		return err
	}
	if err := log.append(run.EventError, problem); err != nil {
		return err
	}
	if err := log.appendEnd(end); err != nil {
		return err
	}
	row.Error, row.LogBytes = problem, log.size
	row.conclude(end, now())
	return nil
}

func lostMessage(state run.State) string {
	if state == run.Queued {
		return "the daemon died while the run waited; it never started"
	}
	return "the daemon died while the run was under way; what the script did until then may have been done"
}

func lock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// cutTail removes what follows the last whole line.
func (l *eventLog) cutTail() error {
	if err := l.file.Truncate(l.size); err != nil {
		return err
	}
	_, err := l.file.Seek(l.size, io.SeekStart)
	return err
}

// findings are what a log tells that was not closed by its writer.
type findings struct {
	seq            int64 // of the last whole event
	size           int64 // where it ends
	stdout, stderr int64 // bytes of output that are kept
	problem        *run.Error
	end            *run.End
	endedAt        time.Time
}

// survey walks the log once, up to the first line that a dying machine left
// torn. An event of a type that this program doesn't know is a whole one.
func survey(file *os.File) (findings, error) {
	var f findings
	in := newLines(file)
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		var head struct {
			Type string `json:"type"`
			Seq  int64  `json:"seq"`
		}
		if json.Unmarshal(line, &head) != nil || head.Type == "" || head.Seq != f.seq+1 || !f.take(line, head.Type) {
			return f, nil
		}
		f.seq = head.Seq
		f.size += int64(len(line)) + 1
	}
}

// take notes what matters of an event; false when it can't be read.
func (f *findings) take(line []byte, kind string) bool {
	switch kind {
	case run.EventStdout, run.EventStderr, run.EventError, run.EventEnd:
	default:
		return true
	}
	var e run.Event
	if json.Unmarshal(line, &e) != nil {
		return false
	}
	switch p := e.Payload.(type) {
	case *run.OutputFrame:
		if kind == run.EventStdout {
			f.stdout += int64(len(p.Bytes()))
		} else {
			f.stderr += int64(len(p.Bytes()))
		}
	case *run.Error:
		f.problem = p
	case *run.End:
		f.end, f.endedAt = p, e.TS
	}
	return true
}
