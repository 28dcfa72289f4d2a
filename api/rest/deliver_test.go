package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

// leaving is a daemon whose runs leave these files.
func leaving(t *testing.T, files map[string]string) *daemon {
	var kept []run.Artifact
	j := newJobs()
	j.script = func(_ context.Context, _ run.Request, emit func(string, any)) {
		for i := range kept {
			emit(run.EventArtifact, &kept[i])
		}
		emit(run.EventResult, &run.ResultFrame{Value: json.RawMessage("null")})
		finish(emit, run.Exited, 0, nil)
	}
	d := start(t, j, withStore(t, artifacts.Options{}))
	for name, content := range files {
		kept = append(kept, d.upload("?name="+name, content).Artifact)
	}
	return d
}

func TestInlineArtifactsComeInTheAnswer(t *testing.T) {
	large := strings.Repeat("x", 2<<20)
	d := leaving(t, map[string]string{"a.txt": "hello", "empty": "", "large": large})
	got := d.exec(`{"source":"x","options":{"artifacts":{"delivery":"inline"}}}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	var r run.Result
	require.NoError(t, json.Unmarshal([]byte(got.body), &r))
	require.Len(t, r.Artifacts, 3)
	for _, a := range r.Artifacts {
		switch a.Name {
		case "a.txt":
			require.Equal(t, "hello", string(*a.Data))
		case "empty":
			require.NotNil(t, a.Data)
			require.Empty(t, *a.Data)
		case "large":
			require.Nil(t, a.Data, "what is too large is not cut, it stays a reference")
		}
	}
	require.Len(t, r.Logs, 1)
	require.Equal(t, "artifact_not_inlined", r.Logs[0].Code)

	got = d.exec(`{"source":"x","options":{"artifacts":{"delivery":"inline","maxBytes":4}}}`)
	r = run.Result{}
	require.NoError(t, json.Unmarshal([]byte(got.body), &r))
	require.Len(t, r.Logs, 2)
	require.NotContains(t, d.exec(`{"source":"x"}`).body, `"data"`)
}

func TestStreamedBodiesComeStrictlyAfterTheEnd(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 40<<10) // 640 KiB: three chunks
	d := leaving(t, map[string]string{"a.bin": content, "empty": ""})
	got := d.exec(`{"source":"x","options":{"output":"stream","artifacts":{"delivery":"stream"}}}`, "Accept", "application/x-ndjson")
	bodies, ended, over := map[string]string{}, map[string]bool{}, false
	lines := bufio.NewScanner(strings.NewReader(got.body))
	lines.Buffer(nil, 4<<20)
	for seq := int64(1); lines.Scan(); seq++ {
		var e run.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		require.Equal(t, seq, e.Seq)
		switch p := e.Payload.(type) {
		case *run.End:
			over = true
		case *run.ChunkFrame:
			require.True(t, over, "a body before the end")
			bodies[p.ID] += string(p.Data)
			ended[p.ID] = ended[p.ID] || e.Type == run.EventChunkEnd
		}
	}
	require.Len(t, ended, 2)
	var whole []string
	for id, done := range ended {
		require.True(t, done)
		whole = append(whole, bodies[id])
	}
	require.ElementsMatch(t, []string{content, ""}, whole)
}

func TestDeliveryThatCannotBeIsRefused(t *testing.T) {
	d := leaving(t, nil)
	for options, field := range map[string]string{
		`{"artifacts":{"delivery":"stream"}}`: "options.artifacts.delivery",
		`{"artifacts":{"maxBytes":-1}}`:       "options.artifacts.maxBytes",
	} {
		p := d.exec(`{"source":"x","options":` + options + `}`).problem(t)
		require.Equal(t, http.StatusBadRequest, p.Status)
		require.Equal(t, field, p.Field)
	}
}
