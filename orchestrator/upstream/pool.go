package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pool keeps the instances of one server.
type pool struct {
	server Server
	dial   func(ctx context.Context) (*link, error)
	opened func(ctx context.Context, i *instance) // the instance is ready
	life   *life

	mu        sync.Mutex
	instances []*instance
	moved     chan struct{} // closed and replaced when an instance comes free or ends
	closed    bool
	failures  int // in a row
	notBefore time.Time
	restarts  int
	lastError string
}

// instance is one living server, or one that is being started.
type instance struct {
	key   string
	ready chan struct{} // closed when link or err is set
	link  *link
	err   error
	// calls and the rest are guarded by the pool's lock.
	calls   int
	started bool
	leaving bool
	idle    *time.Timer
}

func newPool(l *life, s Server, dial func(context.Context) (*link, error), opened func(context.Context, *instance)) *pool {
	return &pool{server: s, dial: dial, opened: opened, life: l, moved: make(chan struct{})}
}

var errClosed = errors.New("mcpx is shutting down")

// acquire finds or starts an instance for the holder of key; release gives it
// back. What is waited for is bounded by ctx; a start goes on without its
// caller, for others wait for it, too.
func (p *pool) acquire(ctx context.Context, key string) (*instance, error) {
	for {
		i, wait, err := p.pick(ctx, key)
		if err != nil {
			return nil, err
		}
		if i != nil {
			return p.awaited(ctx, i)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("all %d instances are busy: %w", p.server.Max, context.Cause(ctx))
		}
	}
}

// awaited waits for the start of an instance that pick has counted us in for.
func (p *pool) awaited(ctx context.Context, i *instance) (*instance, error) {
	select {
	case <-i.ready:
	case <-ctx.Done():
		p.release(i)
		return nil, fmt.Errorf("it is still being started: %w", context.Cause(ctx))
	}
	if i.err != nil {
		return nil, i.err
	}
	return i, nil
}

// pick takes an instance that there is, or starts one; else wait tells when it
// is worth trying again.
func (p *pool) pick(ctx context.Context, key string) (i *instance, wait <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, errClosed
	}
	best := p.best(key)
	full := len(p.instances) >= p.server.Max
	switch {
	case best != nil && (best.calls == 0 || full && p.server.Sharing == Shared):
		p.take(best)
		return best, nil, nil
	case best != nil && p.server.Sharing == Shared && !best.started:
		p.take(best) // it is being started, for more than one
		return best, nil, nil
	case !full:
		if err := p.mayStart(); err != nil {
			if best != nil { // busy, and better than none
				p.take(best)
				return best, nil, nil
			}
			return nil, nil, err
		}
		i = p.start(ctx, key)
		p.take(i)
		return i, nil, nil
	case p.evict(key):
		// It is leaving; its place comes free when it is gone.
	}
	return nil, p.moved, nil
}

// best is the least busy instance of the key.
func (p *pool) best(key string) *instance {
	if key == singleKey {
		return nil
	}
	var best *instance
	for _, i := range p.instances {
		if i.key != key || i.leaving || p.server.Sharing == Exclusive && i.calls > 0 {
			continue
		}
		if best == nil || i.calls < best.calls {
			best = i
		}
	}
	return best
}

func (p *pool) take(i *instance) {
	i.calls++
	if i.idle != nil {
		i.idle.Stop()
	}
}

// evict makes an idle instance of somebody else leave.
func (p *pool) evict(key string) bool {
	for _, i := range p.instances {
		if i.key != key && i.started && !i.leaving && i.calls == 0 {
			p.leave(i)
			return true
		}
	}
	return false
}

// Delays between starts of a server that fails.
const (
	firstDelay = 250 * time.Millisecond
	lastDelay  = 30 * time.Second
)

// mayStart refuses starts while a server that failed is left alone. A caller
// is told when, and not kept waiting.
func (p *pool) mayStart() error {
	if wait := time.Until(p.notBefore); wait > 0 {
		return fmt.Errorf("it failed %d times in a row and is started again in %s at the earliest; the last error: %s",
			p.failures, max(wait.Round(10*time.Millisecond), 10*time.Millisecond), p.lastError)
	}
	return nil
}

func (p *pool) failed(err error) {
	p.failures++
	p.lastError = err.Error()
	if p.failures > 1 { // the first time it may be worth trying again at once
		p.notBefore = time.Now().Add(min(firstDelay<<min(p.failures-2, 10), lastDelay))
	}
}

func (p *pool) start(ctx context.Context, key string) *instance {
	i := &instance{key: key, ready: make(chan struct{})}
	p.instances = append(p.instances, i)
	if p.failures > 0 {
		p.restarts++
	}
	p.life.work.Go(func() { p.live(ctx, i) })
	return i
}

// live is an instance's life, from its start to its end.
func (p *pool) live(ctx context.Context, i *instance) {
	l, err := p.begin(ctx, i)
	if err != nil {
		return
	}
	died := make(chan error, 1)
	p.life.work.Go(func() { died <- l.session.Wait() })
	select {
	case err = <-died:
		l.end()
	case <-l.gone():
		l.end()
		err = <-died
	}
	p.finish(i, err)
}

// begin starts the server; the lock is not held, so others go on.
func (p *pool) begin(ctx context.Context, i *instance) (*link, error) {
	ctx, leave := p.life.outlive(ctx)
	defer leave()
	ctx, cancel := context.WithTimeoutCause(ctx, p.server.StartTimeout, errNoAnswer)
	defer cancel()
	l, err := p.dial(ctx)
	if err == nil {
		i.link = l
		p.opened(ctx, i)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer close(i.ready)
	if err != nil {
		i.err = err
		p.failed(err)
		p.remove(i)
		return nil, err
	}
	i.started = true
	if i.leaving || p.closed {
		p.leave(i)
	} else if i.calls == 0 {
		p.rest(i)
	}
	p.move()
	return l, nil
}

// finish takes an instance that ended out. One that ended by itself counts as
// a failure.
func (p *pool) finish(i *instance, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.idle != nil {
		i.idle.Stop()
	}
	if !i.leaving {
		if err == nil {
			err = errors.New("the server closed the connection")
		}
		if i.link.process != nil {
			err = fmt.Errorf("the process ended (%s)", i.link.process.status())
		}
		p.failed(err)
	}
	i.leaving = true
	p.remove(i)
}

func (p *pool) remove(i *instance) {
	p.instances = slices.DeleteFunc(p.instances, func(other *instance) bool { return other == i })
	p.move()
}

// move wakes those who wait for a place.
func (p *pool) move() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// worked says that an instance answered, so that failures are not in a row.
func (p *pool) worked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = 0
}

func (p *pool) release(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.calls--
	if i.calls == 0 && i.started && !i.leaving {
		if i.key == singleKey {
			p.leave(i)
		} else {
			p.rest(i)
		}
	}
	p.move()
}

// rest ends an instance that nobody calls for long.
func (p *pool) rest(i *instance) {
	if i.idle != nil {
		i.idle.Stop()
	}
	i.idle = time.AfterFunc(p.server.IdleTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i.calls == 0 && !i.leaving && p.staying() > p.server.Min {
			p.leave(i)
		}
	})
}

func (p *pool) staying() int {
	n := 0
	for _, i := range p.instances {
		if !i.leaving {
			n++
		}
	}
	return n
}

// leave makes an instance end; live does the rest. One that is still being
// started leaves when it is.
func (p *pool) leave(i *instance) {
	i.leaving = true
	if !i.started {
		return
	}
	p.life.work.Go(i.link.end)
}

// kill ends an instance that does not answer any more, calls or not.
func (p *pool) kill(i *instance, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.leaving || !i.started {
		return
	}
	p.failed(why)
	p.leave(i)
}

// endKey ends the instances whose holder is gone.
func (p *pool) endKey(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.instances {
		if i.key == key && !i.leaving {
			p.leave(i)
		}
	}
}

// endIdle ends the instances of a key that nobody uses.
func (p *pool) endIdle(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.instances {
		if i.key == key && i.calls == 0 && i.started && !i.leaving {
			p.leave(i)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, i := range p.instances {
		if !i.leaving {
			p.leave(i)
		}
	}
	p.move()
}

// warm starts the instances that are to be there always.
func (p *pool) warm(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range max(p.server.Min-len(p.instances), 0) {
		if !p.closed && p.mayStart() == nil {
			p.start(ctx, "")
		}
	}
}
