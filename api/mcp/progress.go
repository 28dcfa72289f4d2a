package mcp

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mcpx/orchestrator/run"
)

// How often a client hears of a call under way.
const (
	progressLeast = 250 * time.Millisecond // between two notifications
	progressMost  = 5 * time.Second        // of silence: clients extend their timeouts by them
)

// progress tells a client that its call goes on, if it asked to be told. The
// measure is the seconds that have passed: they rise, whatever happens. A nil
// progress tells nothing.
type progress struct {
	ctx   context.Context // the call's own, by which the SDK finds its stream
	tell  *sdk.ServerSession
	token any
	begun time.Time
	stop  chan struct{}
	beat  sync.WaitGroup

	mu    sync.Mutex
	last  time.Time
	value float64
	what  string
	held  bool // what is not told yet
}

func newProgress(ctx context.Context, req *sdk.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	p := &progress{ctx: ctx, tell: req.Session, token: token, begun: time.Now(), last: time.Now(), stop: make(chan struct{}), what: "at work"}
	p.beat.Go(p.heartbeat)
	return p
}

// heartbeat tells what was held back, and that the call goes on when nothing
// has happened for long.
func (p *progress) heartbeat() {
	tick := time.NewTicker(progressLeast)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.send("")
		case <-p.stop:
			return
		}
	}
}

// end sends nothing more.
func (p *progress) end() {
	if p == nil {
		return
	}
	close(p.stop)
	p.beat.Wait()
}

// send notifies if it is time to. A client that can't be told is told of by ctx.
func (p *progress) send(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if what != "" {
		p.what, p.held = what, true
	}
	now := time.Now()
	pause := progressMost
	if p.held {
		pause = progressLeast
	}
	if now.Sub(p.last) < pause || p.ctx.Err() != nil {
		return
	}
	p.last, p.held = now, false
	p.value = max(p.value+0.001, float64(now.Sub(p.begun).Milliseconds())/1000)
	p.tell.NotifyProgress(p.ctx, &sdk.ProgressNotificationParams{ //nolint:errcheck // see above
		ProgressToken: p.token, Progress: p.value, Message: fmt.Sprintf("%s (%s)", p.what, now.Sub(p.begun).Round(time.Second)),
	})
}

// event tells of a run's event.
func (p *progress) event(e run.Event) {
	if p == nil {
		return
	}
	if what := whatHappened(e); what != "" {
		p.send(what)
	}
}

// upstream tells what another server says of its progress.
func (p *progress) upstream(done, total float64, message string) {
	if p == nil {
		return
	}
	what := fmt.Sprintf("%g", done)
	if total > 0 {
		what += fmt.Sprintf(" of %g", total)
	}
	p.send(strings.TrimSpace(what + " " + message))
}

func whatHappened(e run.Event) string {
	switch body := e.Payload.(type) {
	case *run.QueuedFrame:
		return fmt.Sprintf("waiting for a place, %d in line", body.Position)
	case *run.StartFrame:
		return "preparing " + body.Runtime
	case *run.OutputFrame:
		return lastLine(string(body.Bytes()))
	case *run.Log:
		return lastLine(body.Message)
	case *run.Call:
		return body.Server + "." + body.Tool
	case *run.Artifact:
		return "artifact " + body.Name
	}
	return ""
}

const maxProgressText = 200

func lastLine(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "�"))
	s = s[strings.LastIndexByte(s, '\n')+1:]
	return clip(s, maxProgressText)
}

// clip keeps the first bytes of s, whole runes only.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
