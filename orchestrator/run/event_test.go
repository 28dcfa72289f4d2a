package run_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestEventIsOneFlatObject(t *testing.T) {
	code := 3
	for name, c := range map[string]struct {
		event run.Event
		want  string
	}{
		"start": {run.Event{Type: run.EventStart, Seq: 1, TS: noon, Payload: &run.StartFrame{RunID: "r", Runtime: "bash", Interpreter: "bash", Image: "i", Policy: "p"}},
			`{"type":"start","seq":1,"ts":"2026-12-01T12:00:00Z","runId":"r","runtime":"bash","interpreter":"bash","image":"i","policy":"p"}`},
		"stdout text": {run.Event{Type: run.EventStdout, Seq: 2, TS: noon, Payload: &run.OutputFrame{Text: "≤\n"}},
			`{"type":"stdout","seq":2,"ts":"2026-12-01T12:00:00Z","text":"≤\n"}`},
		"stderr bytes": {run.Event{Type: run.EventStderr, Seq: 3, TS: noon, Payload: &run.OutputFrame{Data: []byte{0xff}}},
			`{"type":"stderr","seq":3,"ts":"2026-12-01T12:00:00Z","data":"/w=="}`},
		"log has one time": {run.Event{Type: run.EventLog, Seq: 4, TS: noon, Payload: &run.Log{Level: "warn", Message: "m"}},
			`{"type":"log","seq":4,"ts":"2026-12-01T12:00:00Z","level":"warn","message":"m"}`},
		"end": {run.Event{Type: run.EventEnd, Seq: 9, TS: noon, Payload: &run.End{RunID: "r", State: run.Exited, ExitCode: &code}},
			`{"type":"end","seq":9,"ts":"2026-12-01T12:00:00Z","runId":"r","state":"exited","exitCode":3,"timedOut":false,"oomKilled":false,"truncated":false,"stdoutBytes":0,"stderrBytes":0,"durationMs":0,"timings":{}}`},
		"artifact": {run.Event{Type: run.EventArtifact, Seq: 5, TS: noon, Payload: &run.Artifact{ID: "a", Name: "x.png", MIME: "image/png", Size: 1, SHA256: "s", URI: "u"}},
			`{"type":"artifact","seq":5,"ts":"2026-12-01T12:00:00Z","id":"a","name":"x.png","mime":"image/png","size":1,"sha256":"s","uri":"u"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(c.event)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
			var back run.Event
			require.NoError(t, json.Unmarshal(got, &back))
			require.True(t, reflect.DeepEqual(c.event, back), "%#v", back)
		})
	}
}

func TestUnknownFrameTypeIsRefused(t *testing.T) {
	var e run.Event
	require.Error(t, json.Unmarshal([]byte(`{"type":"nope","seq":1}`), &e))
}

func TestFoldComposesTheResult(t *testing.T) {
	code := 0
	var f run.Fold
	for i, payload := range []struct {
		kind string
		body any
	}{
		{run.EventStart, &run.StartFrame{RunID: "r", Runtime: "python3", Policy: "builtin/python3"}},
		{run.EventStdout, &run.OutputFrame{Text: "a"}},
		{run.EventStderr, &run.OutputFrame{Data: []byte{0xff}}},
		{run.EventStdout, &run.OutputFrame{Text: "b"}},
		{run.EventLog, &run.Log{Level: "warn", Message: "m"}},
		{run.EventArtifact, &run.Artifact{ID: "a"}},
		{run.EventSkip, &run.Skip{Name: "p", Reason: "fifo"}},
		{run.EventResult, &run.ResultFrame{Value: json.RawMessage(`{"n":1}`)}},
		{run.EventEnd, &run.End{RunID: "r", State: run.Exited, ExitCode: &code, DurationMs: 7}},
	} {
		f.Add(run.Event{Type: payload.kind, Seq: int64(i + 1), TS: noon, Payload: payload.body})
	}
	r := f.Result()
	require.Equal(t, run.Exited, r.State)
	require.Equal(t, "ab", r.Stdout)
	require.Equal(t, "/w==", r.Stderr)
	require.Equal(t, "base64", r.StderrEncoding)
	require.Equal(t, noon, r.Logs[0].TS)
	require.Len(t, r.Artifacts, 1)
	require.Len(t, r.Skipped, 1)
	require.JSONEq(t, `{"n":1}`, string(r.Result))
	require.Equal(t, int64(7), r.DurationMs)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"emits":[]`)
	require.Contains(t, string(text), `"calls":[]`)
}
