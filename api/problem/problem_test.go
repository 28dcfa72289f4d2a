package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

func TestEveryClassHasEveryColumn(t *testing.T) {
	for class, want := range map[error]struct {
		http, exit int
		mcp        string
	}{
		errdefs.ErrInvalidArgument:    {400, 2, "invalid_argument"},
		errdefs.ErrUnauthenticated:    {401, 125, "unauthenticated"},
		errdefs.ErrPermissionDenied:   {403, 126, "permission_denied"},
		errdefs.ErrNotFound:           {404, 125, "not_found"},
		errdefs.ErrAlreadyExists:      {409, 125, "already_exists"},
		errdefs.ErrConflict:           {409, 125, "conflict"},
		errdefs.ErrAborted:            {409, 125, "aborted"},
		errdefs.ErrFailedPrecondition: {422, 125, "failed_precondition"},
		errdefs.ErrOutOfRange:         {416, 2, "out_of_range"},
		errdefs.ErrResourceExhausted:  {429, 75, "resource_exhausted"},
		errdefs.ErrNotModified:        {304, 0, "not_modified"},
		errdefs.ErrNotImplemented:     {501, 125, "not_implemented"},
		errdefs.ErrUnavailable:        {503, 125, "unavailable"},
		errdefs.ErrDataLoss:           {500, 125, "data_loss"},
		errdefs.ErrInternal:           {500, 125, "internal"},
		errdefs.ErrUnknown:            {500, 125, "unknown"},
		context.Canceled:              {499, 130, "cancelled"},
		context.DeadlineExceeded:      {504, 124, "deadline_exceeded"},
		errors.New("no class"):        {500, 125, "unknown"},
	} {
		for name, err := range map[string]error{
			"bare":      class,
			"wrapped":   fmt.Errorf("run x in y: %w", class),
			"run error": &run.Error{Code: "some_code", Class: class},
		} {
			t.Run(fmt.Sprintf("%v/%s", class, name), func(t *testing.T) {
				row := problem.Of(err)
				require.Equal(t, want.http, row.HTTP)
				require.Equal(t, want.exit, row.Exit)
				require.Equal(t, want.mcp, row.MCP)
				require.NotEmpty(t, row.Title)
				require.NotEmpty(t, problem.New(err).Code)
			})
		}
	}
}

func TestCodeSaysMoreThanItsClass(t *testing.T) {
	for code, want := range map[string]struct {
		class      error
		http, exit int
	}{
		run.CodeTooLarge:             {errdefs.ErrOutOfRange, 413, 2},
		run.CodeScriptNotFound:       {errdefs.ErrNotFound, 404, 2},
		run.CodeCwdNotFound:          {errdefs.ErrNotFound, 404, 2},
		run.CodeNotFound:             {errdefs.ErrNotFound, 404, 125},
		run.CodeQueueFull:            {errdefs.ErrResourceExhausted, 429, 75},
		run.CodeQuotaExceeded:        {errdefs.ErrResourceExhausted, 507, 75},
		run.CodeDiskFull:             {errdefs.ErrResourceExhausted, 507, 75},
		problem.CodeMethodNotAllowed: {errdefs.ErrInvalidArgument, 405, 2},
		problem.CodeUnsupportedMedia: {errdefs.ErrInvalidArgument, 415, 2},
		run.CodeDenied:               {errdefs.ErrPermissionDenied, 403, 126},
		run.CodeEngineUnavailable:    {errdefs.ErrUnavailable, 503, 125},
	} {
		for name, class := range map[string]error{"with class": want.class, "read from a log": nil} {
			t.Run(code+"/"+name, func(t *testing.T) {
				row := problem.Of(&run.Error{Code: code, Class: class})
				require.Equal(t, want.http, row.HTTP)
				require.Equal(t, want.exit, row.Exit)
			})
		}
	}
}

// The constants of package run are read from its source, so that a new code
// can't be forgotten here.
func TestEveryCodeIsListed(t *testing.T) {
	listed := map[string]problem.Code{}
	for _, c := range problem.Codes() {
		require.NotContains(t, listed, c.Name)
		require.NotEmpty(t, c.Meaning, c.Name)
		require.Error(t, c.Class, c.Name)
		listed[c.Name] = c
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../orchestrator/run/error.go", nil, 0)
	require.NoError(t, err)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			require.Contains(t, listed, name)
			found++
		}
		return true
	})
	require.Greater(t, found, 20)
}

func TestDocumentComesBackAsTheSameError(t *testing.T) {
	sent := &run.Error{Code: run.CodeScriptNotFound, Message: "no script x", Field: "file", Hint: "mkdir",
		Searched: []string{"/a", "/b"}, Class: errdefs.ErrNotFound}
	w := httptest.NewRecorder()
	problem.Write(w, problem.New(fmt.Errorf("submit: %w", sent)))
	require.Equal(t, 404, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, strconv.Itoa(w.Body.Len()), w.Header().Get("Content-Length"))
	require.JSONEq(t, `{"type":"urn:mcpx:problem:script_not_found","title":"Not found","status":404,"detail":"no script x",
		"code":"script_not_found","field":"file","hint":"mkdir","searched":["/a","/b"]}`, w.Body.String())
	require.Equal(t, sent, problem.Parse(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()))
}

func TestEveryCodeSurvivesTheWire(t *testing.T) {
	for _, c := range problem.Codes() {
		sent := &run.Error{Code: c.Name, Message: "m", Class: c.Class}
		body, err := json.Marshal(problem.New(sent))
		require.NoError(t, err)
		got := problem.Parse(problem.Of(sent).HTTP, problem.ContentType, body)
		require.Equal(t, sent, got)
		require.Equal(t, problem.Of(sent), problem.Of(got))
	}
}

func TestAnswerOfAProxyStillHasAClass(t *testing.T) {
	for status, class := range map[int]error{
		404: errdefs.ErrNotFound, 413: errdefs.ErrOutOfRange, 429: errdefs.ErrResourceExhausted, 401: errdefs.ErrUnauthenticated,
		502: errdefs.ErrUnavailable, 418: errdefs.ErrInvalidArgument, 500: errdefs.ErrDataLoss, 302: errdefs.ErrUnknown,
	} {
		got := problem.Parse(status, "text/html", []byte("<h1>nginx</h1>"))
		require.ErrorIs(t, got, class, "%d", status)
		require.NotContains(t, got.Message, "<h1>")
	}
}

func TestOurFaultIsNotSpelledOut(t *testing.T) {
	d := problem.New(errors.New("open /var/lib/mcpx/secret: permission denied"))
	require.Equal(t, 500, d.Status)
	require.Equal(t, run.CodeInternal, d.Code)
	require.NotContains(t, d.Detail, "secret")
	require.Contains(t, problem.New(fmt.Errorf("dial docker: %w", errdefs.ErrUnavailable)).Detail, "dial docker")
}

func TestHeadersTellWhatToDo(t *testing.T) {
	for class, want := range map[error][2]string{
		errdefs.ErrResourceExhausted: {"Retry-After", "1"},
		errdefs.ErrUnavailable:       {"Retry-After", "1"},
		errdefs.ErrUnauthenticated:   {"WWW-Authenticate", `Bearer realm="mcpx"`},
		errdefs.ErrInvalidArgument:   {"Retry-After", ""},
	} {
		w := httptest.NewRecorder()
		problem.Write(w, problem.New(class))
		require.Equal(t, want[1], w.Header().Get(want[0]), "%v", class)
	}
}

func TestExitCodeOfAResult(t *testing.T) {
	three := 3
	for _, c := range []struct {
		result run.Result
		want   int
	}{
		{run.Result{State: run.Exited, ExitCode: &three}, 3},
		{run.Result{State: run.Exited}, 125},
		{run.Result{State: run.Signalled, Signal: "SIGKILL"}, 137},
		{run.Result{State: run.Signalled, Signal: "SIGTERM"}, 143},
		{run.Result{State: run.Signalled, Signal: "SIG35"}, 163},
		{run.Result{State: run.Signalled, Signal: "SIGWHAT"}, 255},
		{run.Result{State: run.TimedOut, Signal: "SIGKILL"}, 124},
		{run.Result{State: run.OOMKilled, Signal: "SIGKILL"}, 137},
		{run.Result{State: run.OutputLimit}, 153},
		{run.Result{State: run.Cancelled}, 130},
		{run.Result{State: run.Denied}, 126},
		{run.Result{State: run.Failed}, 125},
		{run.Result{State: run.Lost}, 125},
		{run.Result{}, 125},
	} {
		t.Run(string(c.result.State)+c.result.Signal, func(t *testing.T) {
			require.Equal(t, c.want, problem.ExitCode(c.result))
		})
	}
}

func TestWhatMayBeDoneIsNotToldToTryAgain(t *testing.T) {
	row := problem.Of(&run.Error{Code: run.CodeOutcomeUnknown, Class: errdefs.ErrUnavailable})
	require.Equal(t, 502, row.HTTP)
	require.False(t, row.Retry)
	w := httptest.NewRecorder()
	problem.Write(w, problem.New(&run.Error{Code: run.CodeOutcomeUnknown, Class: errdefs.ErrUnavailable}))
	require.Empty(t, w.Header().Get("Retry-After"))
	require.True(t, problem.Of(&run.Error{Code: run.CodeUpstreamUnavailable, Class: errdefs.ErrUnavailable}).Retry)
}
