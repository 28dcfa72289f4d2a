package frame_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/frame"
)

// head is a frame's head as the package comment says it looks.
func head(t frame.Type, length uint32) []byte {
	return []byte{byte(t), byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}
}

func TestFramesSurviveTheWire(t *testing.T) {
	large := bytes.Repeat([]byte{0, 0xff, '\n'}, frame.MaxData/3)
	for _, f := range []frame.Frame{
		{Type: frame.Started, Payload: []byte{}},
		{Type: frame.Stdout, Payload: []byte{0}},
		{Type: frame.Stdin, Payload: large},
		{Type: frame.Job, Payload: bytes.Repeat([]byte("x"), frame.MaxControl)},
	} {
		var wire bytes.Buffer
		require.NoError(t, frame.NewWriter(&wire).Write(f.Type, f.Payload))
		got, err := frame.NewReader(iotest.HalfReader(&wire)).Next()
		require.NoError(t, err)
		require.Equal(t, f, got)
		require.Zero(t, wire.Len(), "all is read")
	}
}

func TestMessagesKeepBytes(t *testing.T) {
	var wire bytes.Buffer
	sent := frame.JobMessage{
		Argv: [][]byte{[]byte("sh"), {0xff, 0xfe}, []byte("<&>\u2028")}, Env: [][]byte{}, Cwd: []byte("/\xff"), Stdin: true, MaxEntries: 7,
	}
	require.NoError(t, frame.NewWriter(&wire).WriteMessage(frame.Job, sent))
	f, err := frame.NewReader(&wire).Next()
	require.NoError(t, err)
	var got frame.JobMessage
	require.NoError(t, f.Decode(&got))
	require.Equal(t, sent, got)
}

func TestCreditCarriesItsNumber(t *testing.T) {
	var wire bytes.Buffer
	require.NoError(t, frame.NewWriter(&wire).WriteCredit(frame.StdinWindow))
	f, err := frame.NewReader(&wire).Next()
	require.NoError(t, err)
	require.Equal(t, frame.Credit, f.Type)
	require.Equal(t, frame.StdinWindow, f.Credit())
}

func TestFramesThatCannotBeAreRefusedBothWays(t *testing.T) {
	for name, c := range map[string]struct {
		kind   frame.Type
		length int
	}{
		"type 0":             {0, 0},
		"type too high":      {frame.Collected + 1, 0},
		"type 255":           {255, 3},
		"empty data":         {frame.Stdout, 0},
		"data too long":      {frame.Data, frame.MaxData + 1},
		"empty message":      {frame.Exit, 0},
		"message too long":   {frame.Job, frame.MaxControl + 1},
		"payload of a word":  {frame.Kill, 1},
		"credit too short":   {frame.Credit, frame.CreditSize - 1},
		"credit too long":    {frame.Credit, frame.CreditSize + 1},
		"half a gigabyte":    {frame.Stderr, 1 << 29},
		"more than int32":    {frame.Stderr, 1<<32 - 1},
		"message, gigabytes": {frame.Hello, 3 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			var invalid *frame.InvalidError
			_, err := frame.NewReader(bytes.NewReader(head(c.kind, uint32(c.length)))).Next()
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, c.kind, invalid.Type)
			if c.length > frame.MaxControl+1 {
				return // it can't be made
			}
			var wire bytes.Buffer
			require.ErrorAs(t, frame.NewWriter(&wire).Write(c.kind, make([]byte, c.length)), &invalid)
			require.Zero(t, wire.Len(), "nothing is written")
		})
	}
}

func TestEndOfStream(t *testing.T) {
	whole := append(head(frame.Stdout, 4), "abcd"...)
	_, err := frame.NewReader(bytes.NewReader(nil)).Next()
	require.Equal(t, io.EOF, err, "between frames")
	for cut := 1; cut < len(whole); cut++ {
		_, err := frame.NewReader(bytes.NewReader(whole[:cut])).Next()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "after %d bytes", cut)
	}
	_, err = frame.NewReader(bytes.NewReader(append(head(frame.Job, frame.MaxControl), "{}"...))).Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestAnnouncementCostsNoMemory(t *testing.T) {
	wire := append(head(frame.Job, frame.MaxControl), "{}"...)
	per := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			frame.NewReader(bytes.NewReader(wire)).Next() //nolint:errcheck // it is cut
		}
	}).AllocedBytesPerOp()
	require.Less(t, per, int64(frame.MaxControl/4))
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":        "{",
		"unknown member": `{"graceMs":1,"x":2}`,
		"wrong type":     `{"graceMs":"1"}`,
		"two values":     `{"graceMs":1}{}`,
	} {
		t.Run(name, func(t *testing.T) {
			var m frame.StopMessage
			var invalid *frame.InvalidError
			require.ErrorAs(t, frame.Frame{Type: frame.Stop, Payload: []byte(text)}.Decode(&m), &invalid)
		})
	}
}

func TestConcurrentFramesDoNotInterleave(t *testing.T) {
	from, to := io.Pipe()
	w := frame.NewWriter(to)
	var writers sync.WaitGroup
	for i := range 8 {
		payload := bytes.Repeat([]byte{byte('a' + i)}, 1000*(i+1))
		writers.Go(func() {
			for range 50 {
				if w.Write(frame.Stdout, payload) != nil {
					return
				}
			}
		})
	}
	go func() {
		writers.Wait()
		to.Close()
	}()
	r, seen := frame.NewReader(from), 0
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.Len(t, f.Payload, 1000*int(f.Payload[0]-'a'+1))
		require.Equal(t, len(f.Payload), bytes.Count(f.Payload, f.Payload[:1]))
		seen++
	}
	require.Equal(t, 400, seen)
}

func TestSignalNames(t *testing.T) {
	for n, name := range map[int]string{1: "SIGHUP", 9: "SIGKILL", 11: "SIGSEGV", 31: "SIGSYS", 34: "SIGRTMIN+0", 64: "SIGRTMIN+30", 32: "SIG32"} {
		require.Equal(t, name, frame.SignalName(n))
		require.True(t, frame.KnownSignal(name), name)
	}
	for _, name := range []string{"", "KILL", "sigkill", "SIG0", "SIG65", "SIGRTMIN+31", "SIG", strings.Repeat("S", 1<<10)} {
		require.False(t, frame.KnownSignal(name), name)
	}
}

// FuzzReader: whatever comes, a reader ends, keeps to its limits, and what it
// took would be written the same again.
func FuzzReader(f *testing.F) {
	f.Add(append(head(frame.Stdout, 2), "hi"...))
	f.Add(append(head(frame.Exit, 2), "{}"...))
	f.Add(head(frame.Kill, 0))
	f.Add(head(frame.Job, 1<<31))
	f.Add([]byte{byte(frame.Credit), 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := frame.NewReader(bytes.NewReader(wire))
		var again bytes.Buffer
		w := frame.NewWriter(&again)
		for {
			got, err := r.Next()
			if err != nil {
				break
			}
			require.NoError(t, w.Write(got.Type, got.Payload))
		}
		require.True(t, bytes.HasPrefix(wire, again.Bytes()))
	})
}
