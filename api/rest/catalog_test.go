package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/rest"
	"mcpx/images"
	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/policies"
)

// shelf is an engine that has some images.
type shelf struct {
	images map[string]engine.Image
	err    error
}

func (s shelf) EnsureImage(_ context.Context, ref string, pull engine.PullPolicy) (engine.Image, error) {
	image, ok := s.images[ref]
	switch {
	case s.err != nil:
		return engine.Image{}, s.err
	case pull != engine.PullNever:
		return engine.Image{}, fmt.Errorf("a listing pulls %s", ref)
	case !ok:
		return engine.Image{}, errdefs.ErrNotFound
	}
	return image, nil
}

func inlineScript(req run.Request) (images.Facts, error) {
	if req.Source == "" {
		return images.Facts{}, &run.Error{Code: run.CodeScriptNotFound, Message: "no such script", Field: "file", Class: errdefs.ErrNotFound}
	}
	return images.Facts{Text: []byte(req.Source)}, nil
}

func TestImagesTellWhatIsHere(t *testing.T) {
	bash, ok := policies.Default().Rule("bash")
	require.True(t, ok)
	d := start(t, newJobs(), func(c *rest.Config) {
		c.Images = shelf{images: map[string]engine.Image{bash.Image: {Digest: "sha256:1", Size: 7, Init: "1"}}}
	})
	var list rest.ImageList
	require.NoError(t, json.Unmarshal([]byte(d.do(http.MethodGet, "/v1/images", "").body), &list))
	present, named := 0, 0
	for _, image := range list.Images {
		named += len(image.Interpreters)
		if image.Present {
			present++
			require.Equal(t, bash.Image, image.Image)
			require.Contains(t, image.Interpreters, "bash")
			require.EqualValues(t, 7, image.Size)
		}
	}
	require.Equal(t, 1, present)
	require.Equal(t, len(policies.Default().Rules()), named)
}

func TestImagesOfAnEngineThatIsAwayAre503(t *testing.T) {
	d := start(t, newJobs(), func(c *rest.Config) { c.Images = shelf{err: fmt.Errorf("dial docker: %w", errdefs.ErrUnavailable)} })
	require.Equal(t, http.StatusServiceUnavailable, d.do(http.MethodGet, "/v1/images", "").problem(t).Status)
}

func TestPoliciesTellWhereEachValueComesFrom(t *testing.T) {
	var doc rest.PolicyDocument
	require.NoError(t, json.Unmarshal([]byte(start(t, newJobs()).do(http.MethodGet, "/v1/policies", "").body), &doc))
	require.Len(t, doc.Rules, len(policies.Default().Rules()))
	for _, rule := range doc.Rules {
		require.NotEmpty(t, rule.Name)
		require.NotEmpty(t, rule.Image)
		require.Greater(t, len(rule.Settings), 5)
	}
}

func TestExplainRunsNothing(t *testing.T) {
	d := start(t, newJobs())
	ask := func(body string) answer {
		return d.do(http.MethodPost, "/v1/policies/explain", body, "Content-Type", "application/json")
	}
	got := ask(`{"source":"#!/usr/bin/env python3\n","options":{"runtime":"bash","timeout":"2s"}}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	var e policies.Explanation
	require.NoError(t, json.Unmarshal([]byte(got.body), &e))
	require.Equal(t, "python3", e.Interpreter)
	require.NotEmpty(t, e.Why)
	require.NotEmpty(t, e.Warnings, "the shebang overrides runtime")
	for body, want := range map[string]string{
		`{"sauce":1}`: run.CodeInvalidBody, `{"source":"#!/usr/bin/env nosuchlang\n"}`: run.CodeUnknownInterpreter,
		`{"file":"x"}`: run.CodeScriptNotFound, `{"source":"x","options":{"timeout":"2"}}`: run.CodeInvalidOption,
	} {
		require.Equal(t, want, ask(body).problem(t).Code, body)
	}
	require.Empty(t, d.jobs.ids())
}
