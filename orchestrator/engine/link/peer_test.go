package link_test

import (
	"encoding/json"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the other end of a Link: an init that does what a test wants.
type peer struct {
	t    testing.TB
	conn net.Conn
	in   *frame.Reader
	out  *frame.Writer
	done chan struct{}
}

const hello = `{"protocol":"1","version":"test","endpoint":"127.0.0.1:7717"}`

// connect greets a Link and lets play play init's part; the test ends when it has.
func connect(t testing.TB, c link.Config, play func(*peer)) *link.Link {
	ours, theirs := net.Pipe()
	p := &peer{t: t, conn: theirs, in: frame.NewReader(theirs), out: frame.NewWriter(theirs), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer theirs.Close()
		p.raw(frame.Hello, hello)
		play(p)
	}()
	l, err := link.New(t.Context(), ours, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		l.Close()
		<-p.done
	})
	return l
}

func (p *peer) raw(t frame.Type, payload string) {
	p.out.Write(t, []byte(payload)) //nolint:errcheck // a Link may have enough
}

// wire sends bytes that need not be frames.
func (p *peer) wire(b ...byte) { p.conn.Write(b) } //nolint:errcheck // as above

// expect reads a frame of type t and yields its payload.
func (p *peer) expect(t frame.Type) []byte {
	f, err := p.in.Next()
	if err != nil || f.Type != t {
		p.t.Errorf("init wants a %s frame, gets %s, %v", t, f.Type, err)
	}
	return append([]byte{}, f.Payload...)
}

// job takes the job and starts it.
func (p *peer) job() frame.JobMessage {
	var m frame.JobMessage
	if err := json.Unmarshal(p.expect(frame.Job), &m); err != nil {
		p.t.Error(err)
	}
	p.raw(frame.Started, "")
	return m
}

// drain takes whatever comes until the connection ends.
func (p *peer) drain() { io.Copy(io.Discard, p.conn) } //nolint:errcheck

func (p *peer) exit(text string) { p.raw(frame.Exit, text) }

const exitZero = `{"code":0,"oomKills":0}`

// ranJob plays an init whose script has ended, up to the walk.
func (p *peer) ranJob() {
	p.job()
	p.exit(exitZero)
	p.expect(frame.Collect)
}

func shJob() engine.Job { return engine.Job{Argv: []string{"sh"}, Env: []string{"A=b"}, Cwd: "/"} }
