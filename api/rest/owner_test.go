package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

// What belongs to somebody else does not exist; the machine's own user sees all.
func TestForeignRunsAndArtifactsAreNotFound(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	d.exec(`{"source":"x"}`) // run-1, the local user's
	mine := d.do(http.MethodPost, "/v1/artifacts?name=a", "secret")
	require.Equal(t, http.StatusCreated, mine.status, mine.body)
	artifact := mine.header.Get("Location")

	byToken := func(method, path, body string) answer {
		return d.read(d.overTCP(t.Context(), method, path, strings.NewReader(body), "Authorization", "Bearer "+token, "Content-Type", "application/json"))
	}
	for path, method := range map[string]string{
		"/v1/runs/run-1": http.MethodGet, "/v1/runs/run-1/frames": http.MethodGet, "/v1/runs/run-1/cancel": http.MethodPost, artifact: http.MethodGet,
	} {
		require.Equal(t, http.StatusNotFound, byToken(method, path, "").status, path)
		require.Equal(t, http.StatusOK, d.do(method, path, "").status, path)
	}
	require.Equal(t, http.StatusNotFound, byToken(http.MethodDelete, artifact, "").status)
	require.NotContains(t, byToken(http.MethodGet, "/v1/artifacts", "").body, strings.TrimPrefix(artifact, "/v1/artifacts/"))
	require.Equal(t, http.StatusOK, d.do(http.MethodGet, artifact, "").status, "it is still there")

	require.Equal(t, http.StatusOK, byToken(http.MethodPost, "/v1/exec", `{"source":"x"}`).status)
	require.Equal(t, http.StatusOK, byToken(http.MethodGet, "/v1/runs/run-2", "").status, "one's own")
	byToken(http.MethodGet, "/v1/runs", "")
	require.Equal(t, "token", d.jobs.filters[len(d.jobs.filters)-1].Principal)
}
