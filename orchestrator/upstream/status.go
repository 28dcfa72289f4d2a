package upstream

import (
	"slices"
	"strings"
)

// State is where a server is in its life.
type State string

// States.
const (
	Idle     State = "idle" // it is started when it is needed
	Starting State = "starting"
	Running  State = "running"
	Failed   State = "failed" // the last start or instance failed
	Disabled State = "disabled"
)

// Status is what is known of one server's life. It holds no secret.
type Status struct {
	Server    string     `json:"server"`
	State     State      `json:"state"`
	Instances []Instance `json:"instances"`
	Restarts  int        `json:"restarts"` // starts after a failure
	LastError string     `json:"lastError,omitempty"`
	Stderr    string     `json:"stderr,omitempty"` // its end
	Changes   []Change   `json:"changes,omitempty"`
}

// Instance is one living server.
type Instance struct {
	PID   int    `json:"pid,omitempty"` // none over HTTP
	For   string `json:"for,omitempty"` // whose it is when it is not shared by all
	Calls int    `json:"calls"`         // under way
}

// Status tells of all servers, in the configuration's order.
func (m *Manager) Status() []Status {
	out := make([]Status, 0, len(m.servers))
	for _, s := range m.servers {
		out = append(out, s.status())
	}
	return out
}

func (s *server) status() Status {
	out := s.pool.status()
	out.Server = s.config.Name
	out.Stderr = s.tail.String()
	out.LastError = s.redact.text(out.LastError)
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Changes = slices.Clone(s.record.History)
	switch {
	case s.config.Disabled:
		out.State = Disabled
	case s.config.Problem != "":
		out.State, out.LastError = Failed, s.config.Problem
	}
	return out
}

func (p *pool) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Status{State: Idle, Instances: []Instance{}, Restarts: p.restarts, LastError: p.lastError}
	if p.failures > 0 {
		out.State = Failed
	}
	for _, i := range p.instances {
		if i.leaving {
			continue
		}
		if !i.started {
			if out.State != Running {
				out.State = Starting
			}
			continue
		}
		out.State = Running
		out.Instances = append(out.Instances, Instance{PID: i.link.pid(), For: holder(i.key), Calls: i.calls})
	}
	return out
}

// holder makes a key readable.
func holder(key string) string {
	return strings.TrimSpace(strings.ReplaceAll(key, "\x00", " "))
}
