package orchestrator

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
)

// recorder keeps what an output emits.
type recorder struct {
	mu     sync.Mutex
	kinds  []string
	frames []run.OutputFrame
	fail   error
}

func (r *recorder) emit(kind string, payload any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.kinds = append(r.kinds, kind)
	r.frames = append(r.frames, *payload.(*run.OutputFrame))
	return nil
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.frames)
}

func (r *recorder) joined(kind string) string {
	var all strings.Builder
	for i, f := range r.frames {
		if r.kinds[i] == kind {
			all.Write(f.Bytes())
		}
	}
	return all.String()
}

func recorded(keep, limit int64) (*output, *recorder, *int) {
	r := &recorder{}
	limited := 0
	return newOutput(keep, limit, r.emit, func() {}, func() { limited++ }), r, &limited
}

func TestRuneSplitByThePipeStaysWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, r, _ := recorded(1<<20, 1<<20)
		o.stdout.Write([]byte("\xe2"))
		time.Sleep(time.Second) // of the bubble's clock
		o.stdout.Write([]byte("\x89\xa4"))
		require.NoError(t, o.close())
		require.Equal(t, "≤", r.joined(run.EventStdout))
		require.Len(t, r.frames, 1)
		require.Equal(t, "≤", r.frames[0].Text)
	})
}

func TestUnfinishedRuneAtTheEndIsNotLost(t *testing.T) {
	o, r, _ := recorded(1<<20, 1<<20)
	o.stdout.Write([]byte("a\xe2\x89"))
	require.NoError(t, o.close())
	require.Equal(t, "a\xe2\x89", r.joined(run.EventStdout))
}

func TestBusyStreamIsCoalescedAndAnIdleOneIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, r, _ := recorded(1<<20, 1<<20)
		o.stdout.Write([]byte("first"))
		require.Equal(t, 1, r.count(), "the first byte waits for nothing")
		for range 1000 {
			o.stdout.Write([]byte("x"))
		}
		require.Equal(t, 1, r.count())
		time.Sleep(frameInterval)
		synctest.Wait()
		require.Equal(t, 2, r.count())
		require.NoError(t, o.close())
		require.Equal(t, "first"+strings.Repeat("x", 1000), r.joined(run.EventStdout))
	})
}

func TestStreamsKeepTheirOrder(t *testing.T) {
	o, r, _ := recorded(1<<20, 1<<20)
	o.stdout.Write([]byte("1"))
	o.stdout.Write([]byte("2"))
	o.stderr.Write([]byte("3"))
	o.stdout.Write([]byte("4"))
	require.NoError(t, o.close())
	var order string
	for _, f := range r.frames {
		order += f.Text
	}
	require.Equal(t, "1234", order)
}

func TestDroppedOutputIsCountedAndTheLimitEndsTheRunOnce(t *testing.T) {
	o, r, limited := recorded(10, 100)
	for range 30 {
		n, err := o.stdout.Write([]byte("0123456789"))
		require.NoError(t, err)
		require.Equal(t, 10, n)
	}
	require.NoError(t, o.close())
	require.Equal(t, "0123456789", r.joined(run.EventStdout))
	require.Equal(t, int64(290), o.dropped())
	require.Equal(t, 1, *limited)
}

func TestLimitIsNotHitByExactlyTheLimit(t *testing.T) {
	o, _, limited := recorded(10, 100)
	o.stdout.Write(make([]byte, 100))
	require.Zero(t, *limited)
	o.stderr.Write([]byte("x"))
	require.Equal(t, 1, *limited)
}

func TestFailedRecordingFailsTheWriter(t *testing.T) {
	o, r, _ := recorded(1<<20, 1<<20)
	r.fail = errors.New("disk full")
	_, err := o.stdout.Write([]byte("x"))
	require.ErrorIs(t, err, r.fail)
	require.ErrorIs(t, o.close(), r.fail)
	require.ErrorIs(t, o.failure(), r.fail)
}

func TestResultIsStdoutWhenTheWholeOfItIsJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1}` + "\n":       `{"a":1}`,
		"  [1, 2]  ":           `[1, 2]`,
		`"x"`:                  `"x"`,
		"42\n":                 "42",
		"true":                 "true",
		"":                     "null",
		"hello":                "null",
		`{"a":1} trailing`:     "null",
		"{\"a\":1}\n{\"b\":2}": "null",
		"nil":                  "null",
	} {
		o, _, _ := recorded(1<<20, 1<<20)
		for i := range len(text) { // byte by byte: the sniffer must not care
			o.stdout.Write([]byte{text[i]})
		}
		require.NoError(t, o.close())
		require.Equal(t, want, string(o.result()), "%q", text)
	}
}

func TestCutStdoutIsNoResult(t *testing.T) {
	o, _, _ := recorded(2, 100)
	o.stdout.Write([]byte("12"))
	o.stdout.Write([]byte("34"))
	require.NoError(t, o.close())
	require.Equal(t, "null", string(o.result()))
}

func FuzzOutputKeepsEveryByte(f *testing.F) {
	f.Add([]byte("a\xe2\x89\xa4b"), []byte("\xff\xfe"), 3)
	f.Fuzz(func(t *testing.T, stdout, stderr []byte, step int) {
		if step < 1 {
			step = 1
		}
		o, r, _ := recorded(1<<30, 1<<30)
		for i := 0; i < max(len(stdout), len(stderr)); i += step {
			o.stdout.Write(stdout[min(i, len(stdout)):min(i+step, len(stdout))])
			o.stderr.Write(stderr[min(i, len(stderr)):min(i+step, len(stderr))])
		}
		require.NoError(t, o.close())
		require.Equal(t, string(stdout), r.joined(run.EventStdout))
		require.Equal(t, string(stderr), r.joined(run.EventStderr))
		for _, frame := range r.frames {
			require.LessOrEqual(t, len(frame.Bytes()), frameBytes)
			require.True(t, utf8.ValidString(frame.Text))
		}
		require.True(t, json.Valid(o.result()))
		if utf8.Valid(stdout) {
			for i, frame := range r.frames {
				require.False(t, r.kinds[i] == run.EventStdout && frame.Data != nil, "valid text was cut")
			}
		}
	})
}
