package link_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/link"
	"mcpx/orchestrator/frame"
)

// sink keeps what a walk tells; errors are those of the method named.
type sink struct {
	told                   []string
	file, skip, write, end error
	unwanted               bool
}

func (s *sink) say(format string, args ...any) { s.told = append(s.told, fmt.Sprintf(format, args...)) }

func (s *sink) File(name string, mode fs.FileMode, size int64) (engine.OutboxFile, error) {
	s.say("file %s %o %d", name, mode, size)
	if s.unwanted {
		return nil, s.file
	}
	return sinkFile{s}, s.file
}

func (s *sink) Skip(name, reason string) error {
	s.say("skip %s %s", name, reason)
	return s.skip
}

type sinkFile struct{ *sink }

func (f sinkFile) Write(p []byte) (int, error) {
	f.say("write %s", p)
	return len(p), f.write
}
func (f sinkFile) Commit() error { f.say("commit"); return f.end }
func (f sinkFile) Abort()        { f.say("abort") }

func (p *peer) offer(name string, mode uint32, size int64) {
	p.out.WriteMessage(frame.File, frame.FileMessage{Name: []byte(name), Mode: mode, Size: size}) //nolint:errcheck // the Link may have enough
}

func (p *peer) skip(name, reason string) {
	p.out.WriteMessage(frame.Skip, frame.SkipMessage{Name: []byte(name), Reason: reason}) //nolint:errcheck // as above
}

// collect runs a walk that play plays.
func collect(t *testing.T, s *sink, play func(*peer)) error {
	l := connect(t, link.Config{MaxEntries: 3}, func(p *peer) {
		p.ranJob()
		play(p)
	})
	_, err := l.Run(t.Context(), shJob(), engine.IO{})
	require.NoError(t, err)
	return l.Collect(t.Context(), s)
}

func TestCollectTellsEveryEntry(t *testing.T) {
	s := &sink{}
	err := collect(t, s, func(p *peer) {
		p.offer("a/b\xff", 0o644, 5)
		p.expect(frame.Take)
		p.raw(frame.Data, "he")
		p.raw(frame.Data, "llo")
		p.raw(frame.FileEnd, "")
		p.skip("pipe", "is a named pipe")
		p.offer("empty", 0, 0)
		p.expect(frame.Take)
		p.raw(frame.FileEnd, "")
		p.skip("more", "too many")
		p.raw(frame.Collected, "")
	})
	require.NoError(t, err)
	require.Equal(t, []string{
		"file a/b\xff 644 5", "write he", "write llo", "commit", "skip pipe is a named pipe",
		"file empty 0 0", "commit", "skip more too many",
	}, s.told)
}

func TestCollectLeavesUnwantedFiles(t *testing.T) {
	s := &sink{unwanted: true}
	err := collect(t, s, func(p *peer) {
		p.offer("huge", 0o600, 1<<50)
		p.expect(frame.Leave)
		p.raw(frame.Collected, "")
	})
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("file huge 600 %d", int64(1)<<50)}, s.told)
}

func TestCollectGoesOnAfterAFileThatInitCannotRead(t *testing.T) {
	s := &sink{}
	err := collect(t, s, func(p *peer) {
		p.offer("a", 0, 5)
		p.expect(frame.Take)
		p.raw(frame.Data, "he")
		p.raw(frame.FileAbort, `{"reason":"i/o error"}`)
		p.skip("b", "x")
		p.raw(frame.Collected, "")
	})
	require.NoError(t, err)
	require.Equal(t, []string{"file a 0 5", "write he", "abort", "skip b x"}, s.told)
}

func TestHostileWalkIsRefused(t *testing.T) {
	taken := func(send func(*peer)) func(*peer) {
		return func(p *peer) {
			p.offer("a", 0, 5)
			p.expect(frame.Take)
			send(p)
		}
	}
	cases := map[string]func(*peer){
		"gone":               func(*peer) {},
		"gone in a file":     taken(func(p *peer) { p.raw(frame.Data, "he") }),
		"more bytes":         taken(func(p *peer) { p.raw(frame.Data, "hello!") }),
		"more bytes, parts":  taken(func(p *peer) { p.raw(frame.Data, "hello"); p.raw(frame.Data, "!") }),
		"fewer bytes":        taken(func(p *peer) { p.raw(frame.Data, "hell"); p.raw(frame.FileEnd, "") }),
		"file in a file":     taken(func(p *peer) { p.offer("b", 0, 0) }),
		"end in a file":      taken(func(p *peer) { p.raw(frame.Collected, "") }),
		"data without file":  func(p *peer) { p.raw(frame.Data, "x") },
		"output":             func(p *peer) { p.raw(frame.Stdout, "x") },
		"second exit":        func(p *peer) { p.exit(exitZero) },
		"negative size":      func(p *peer) { p.offer("a", 0, -1) },
		"setuid":             func(p *peer) { p.offer("a", 0o4755, 0) },
		"no JSON":            func(p *peer) { p.raw(frame.File, "x") },
		"skip is no JSON":    func(p *peer) { p.raw(frame.Skip, "x") },
		"skip with no word":  func(p *peer) { p.skip("a", "") },
		"skip with too many": func(p *peer) { p.skip("a", strings.Repeat("x", 5000)) },
		"entries without end": func(p *peer) {
			for range 5 {
				p.skip("a", "x")
			}
		},
	}
	for _, name := range []string{
		"", "/", "/etc/passwd", "..", "../x", "a/../x", "a/..", "a//b", "a/", "./a", ".", "a/./b", "a\x00b",
		strings.Repeat("n", 4097), strings.Repeat("d/", 32) + "f",
	} {
		cases[fmt.Sprintf("file %.20q", name)] = func(p *peer) { p.offer(name, 0, 0) }
		cases[fmt.Sprintf("skip %.20q", name)] = func(p *peer) { p.skip(name, "x") }
	}
	for name, play := range cases {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			err := collect(t, s, play)
			require.True(t, errdefs.IsUnavailable(err), "%v", err)
			require.NotContains(t, s.told, "commit")
			if strings.HasPrefix(strings.Join(s.told, "\n"), "file") {
				require.Equal(t, "abort", s.told[len(s.told)-1])
			}
		})
	}
}

func TestSinkEndsTheWalk(t *testing.T) {
	full := errors.New("the disk is full")
	for name, s := range map[string]*sink{"file": {file: full}, "skip": {skip: full}, "write": {write: full}, "commit": {end: full}} {
		t.Run(name, func(t *testing.T) {
			err := collect(t, s, func(p *peer) {
				p.skip("a", "x")
				p.offer("b", 0, 1)
				p.in.Next() //nolint:errcheck // take, or the end
				p.raw(frame.Data, "x")
				p.raw(frame.FileEnd, "")
				p.drain()
			})
			require.ErrorIs(t, err, full)
			require.Equal(t, name == "write", s.told[len(s.told)-1] == "abort", "%q", s.told)
		})
	}
}

func TestCollectEndsWithItsContext(t *testing.T) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := connect(t, link.Config{}, func(p *peer) {
		p.ranJob()
		cancel(why)
		p.drain()
	})
	_, err := l.Run(t.Context(), shJob(), engine.IO{})
	require.NoError(t, err)
	require.ErrorIs(t, l.Collect(ctx, &sink{}), why)
}
