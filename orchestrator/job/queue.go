package job

import (
	"slices"

	"mcpx/orchestrator/run"
)

// queue holds the runs that wait for a slot: who came first goes first. It is
// guarded by Manager.mu.
type queue struct{ waiting []*live }

func (q *queue) size() int { return len(q.waiting) }

// push yields the run's place; 1 is next.
func (q *queue) push(l *live) int {
	q.waiting = append(q.waiting, l)
	return len(q.waiting)
}

// pop yields who is next, nil when nobody waits.
func (q *queue) pop() *live {
	if len(q.waiting) == 0 {
		return nil
	}
	next := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return next
}

func (q *queue) remove(l *live) bool {
	i := slices.Index(q.waiting, l)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

func (q *queue) clear() []*live {
	all := q.waiting
	q.waiting = nil
	return all
}

// places are the runs in the order in which they will go, as of now.
func (q *queue) places() []*live { return slices.Clone(q.waiting) }

// queueMoved has the waiting told of their new places.
func (m *Manager) queueMoved() {
	select {
	case m.moved <- struct{}{}:
	default: // it is due already, and will tell the newest
	}
}

// tellPlaces writes to the logs of the waiting, so that nobody who takes or
// leaves a place waits for that. Moves that come quickly are told as one.
func (m *Manager) tellPlaces() {
	for {
		select {
		case <-m.stop:
			return
		case <-m.moved:
		}
		m.mu.Lock()
		places := m.queue.places()
		m.mu.Unlock()
		for i, l := range places {
			l.announce(i + 1)
		}
	}
}

// near is up to which place each step is told; further back only when the way
// has become half as long, so that a long queue costs few events.
const near = 8

// announce tells l its place, if that is news.
func (l *live) announce(place int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ahead := l.announced == 0 || place < l.announced // places only get better; a late word is no news
	news := l.announced == 0 || place <= near || place <= l.announced/2
	if l.begun || l.ended || !ahead || !news {
		return
	}
	// A log that can't be written shows when the run begins or ends.
	if l.log.append(run.EventQueued, &run.QueuedFrame{Position: place}) == nil {
		l.announced = place
	}
}
