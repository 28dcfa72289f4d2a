package rest_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// jobs is a job manager in memory: script tells what a submitted run does.
type jobs struct {
	script func(ctx context.Context, req run.Request, emit func(kind string, payload any))

	mu      sync.Mutex
	changed chan struct{}
	runs    map[string]*attempt
	order   []string
	refuse  error
	read    int // events that readers took
	running sync.WaitGroup
	filters []job.Filter
}

type attempt struct {
	req    run.Request
	caller run.Caller
	log    []run.Event
	cancel context.CancelCauseFunc
	ctx    context.Context
	done   bool
}

func newJobs() *jobs {
	return &jobs{changed: make(chan struct{}), runs: map[string]*attempt{}, script: sayHello}
}

// sayHello is a run that succeeds.
func sayHello(_ context.Context, _ run.Request, emit func(string, any)) {
	emit(run.EventStdout, &run.OutputFrame{Text: "hello\n"})
	emit(run.EventStderr, &run.OutputFrame{Text: "aside\n"})
	finish(emit, run.Exited, 0, nil)
}

// waitForCancel is a run that goes on until it is ended.
func waitForCancel(ctx context.Context, _ run.Request, emit func(string, any)) {
	emit(run.EventStdout, &run.OutputFrame{Text: "begun\n"})
	<-ctx.Done()
	finish(emit, run.Cancelled, -1, &run.Error{Code: run.CodeCancelled, Message: context.Cause(ctx).Error()})
}

func finish(emit func(string, any), state run.State, code int, problem *run.Error) {
	end := &run.End{State: state}
	if code >= 0 {
		end.ExitCode = &code
	}
	if problem != nil {
		emit(run.EventError, problem)
	}
	emit(run.EventEnd, end)
}

func (j *jobs) Submit(ctx context.Context, req run.Request, by run.Caller) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refuse != nil {
		return "", j.refuse
	}
	id := fmt.Sprintf("run-%d", len(j.order)+1)
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	one := &attempt{req: req, caller: by, cancel: cancel, ctx: own}
	j.runs[id], j.order = one, append(j.order, id)
	j.running.Go(func() {
		j.append(one, run.EventStart, &run.StartFrame{RunID: id, Runtime: "bash", Interpreter: "bash", Image: "i", Policy: "p"})
		j.script(own, req, func(kind string, payload any) {
			if end, ok := payload.(*run.End); ok {
				end.RunID = id
			}
			j.append(one, kind, payload)
		})
	})
	return id, nil
}

func (j *jobs) append(one *attempt, kind string, payload any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one.log = append(one.log, run.Event{Type: kind, Seq: int64(len(one.log) + 1), TS: noon, Payload: payload})
	one.done = one.done || kind == run.EventEnd
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *jobs) find(id string) (*attempt, error) {
	one := j.runs[id]
	if one == nil {
		return nil, &run.Error{Code: run.CodeNotFound, Message: "no run " + id, Class: errdefs.ErrNotFound}
	}
	return one, nil
}

func (j *jobs) Watch(ctx context.Context, id string, after int64) iter.Seq2[run.Event, error] {
	return func(yield func(run.Event, error) bool) {
		for at := after; ; {
			j.mu.Lock()
			one, err := j.find(id)
			if err != nil {
				j.mu.Unlock()
				yield(run.Event{}, err)
				return
			}
			fresh := slices.Clone(one.log[min(at, int64(len(one.log))):])
			done, changed := one.done, j.changed
			j.mu.Unlock()
			for _, e := range fresh {
				at = e.Seq
				if !yield(e, nil) {
					return
				}
				j.mu.Lock()
				j.read++
				j.mu.Unlock()
			}
			if len(fresh) == 0 && done {
				return
			}
			if len(fresh) == 0 {
				select {
				case <-changed:
				case <-ctx.Done():
					yield(run.Event{}, context.Cause(ctx))
					return
				}
			}
		}
	}
}

func (j *jobs) Cancel(_ context.Context, id string, cause error) (job.Outcome, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one, err := j.find(id)
	switch {
	case err != nil:
		return "", err
	case one.done:
		return "already_finished", nil
	case one.ctx.Err() != nil:
		return "idempotent", nil
	}
	one.cancel(cause)
	return "accepted", nil
}

func (j *jobs) Get(_ context.Context, id string) (run.Summary, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one, err := j.find(id)
	if err != nil {
		return run.Summary{}, err
	}
	return one.summary(id), nil
}

func (one *attempt) summary(id string) run.Summary {
	s := run.Summary{RunID: id, State: run.Running, Principal: one.caller.Principal, Label: one.req.Options.Label, CreatedAt: noon}
	if one.done {
		r := one.result()
		s.State, s.ExitCode, s.Error = r.State, r.ExitCode, r.Error
	}
	return s
}

func (one *attempt) result() run.Result {
	var f run.Fold
	for _, e := range one.log {
		f.Add(e)
	}
	return f.Result()
}

func (j *jobs) List(_ context.Context, f job.Filter) ([]run.Summary, string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.filters = append(j.filters, f)
	var page []run.Summary
	for _, id := range slices.Backward(j.order) {
		s := j.runs[id].summary(id)
		if f.Label != "" && s.Label != f.Label || len(f.States) > 0 && !slices.Contains(f.States, s.State) {
			continue
		}
		if f.Limit > 0 && len(page) == f.Limit {
			return page, page[len(page)-1].RunID, nil
		}
		page = append(page, s)
	}
	return page, "", nil
}

func (j *jobs) Result(_ context.Context, id string) (run.Result, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one, err := j.find(id)
	if err != nil {
		return run.Result{}, err
	}
	return one.result(), nil
}

// cause waits for the end of a run's context and tells why it ended.
func (j *jobs) cause(ctx context.Context, id string) error {
	j.mu.Lock()
	one := j.runs[id]
	j.mu.Unlock()
	select {
	case <-one.ctx.Done():
		return context.Cause(one.ctx)
	case <-ctx.Done():
		return fmt.Errorf("the run goes on: %w", ctx.Err())
	}
}

func (j *jobs) submitted(id string) attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	return attempt{req: j.runs[id].req, caller: j.runs[id].caller}
}

func (j *jobs) taken() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.read
}
