package rest_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/api/rest"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

func TestListingPagesAndFilters(t *testing.T) {
	d := start(t, newJobs())
	var empty rest.RunPage
	got := d.do(http.MethodGet, "/v1/runs", "")
	require.JSONEq(t, `{"runs":[]}`, got.body)
	for _, label := range []string{"a", "b", "a"} {
		d.exec(`{"source":"x","options":{"label":"` + label + `"}}`)
	}
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/runs?limit=2", "").body), &empty))
	require.Len(t, empty.Runs, 2)
	require.Equal(t, "run-3", empty.Runs[0].RunID)
	require.Equal(t, "run-2", empty.Next)
	d.do(http.MethodGet, "/v1/runs?state=running,exited&state=lost&session=s&task_handle=h&label=a&after=run-2", "")
	require.Equal(t, job.Filter{
		States: []run.State{run.Running, run.Exited, run.Lost}, Session: "s", TaskHandle: "h", Label: "a", After: "run-2",
	}, d.jobs.filters[len(d.jobs.filters)-1])
}

func TestRunHasItsResultOnceItHasEnded(t *testing.T) {
	j := newJobs()
	j.script = waitForCancel
	d := start(t, j)
	d.exec(`{"source":"x","options":{"task":{"ttl":1}}}`)
	var doc rest.RunDocument
	got := d.do(http.MethodGet, "/v1/runs/run-1", "")
	require.Equal(t, "run-1", got.header.Get("Mcpx-Run-Id"))
	require.NoError(t, json.Unmarshal([]byte(got.body), &doc))
	require.Equal(t, run.Running, doc.State)
	require.Nil(t, doc.Result)

	require.Contains(t, d.do(http.MethodPost, "/v1/runs/run-1/cancel", "").body, `"outcome":"accepted"`)
	j.running.Wait()
	require.JSONEq(t, `{"runId":"run-1","outcome":"already_finished","state":"cancelled"}`, d.do(http.MethodPost, "/v1/runs/run-1/cancel", "").body)
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/runs/run-1", "").body), &doc))
	require.Equal(t, run.Cancelled, doc.State)
	require.Equal(t, "begun\n", doc.Result.Stdout)
	require.Equal(t, run.ErrCancelled.Error(), doc.Result.Error.Message)
}

func TestRunThatIsNotThere(t *testing.T) {
	d := start(t, newJobs())
	for method, path := range map[string]string{http.MethodGet: "/v1/runs/nope", http.MethodPost: "/v1/runs/nope/cancel"} {
		p := d.do(method, path, "").problem(t)
		require.Equal(t, http.StatusNotFound, p.Status)
		require.Equal(t, run.CodeNotFound, p.Code)
	}
}
