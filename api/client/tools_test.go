package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/api/client"
	"mcpx/api/problem"
	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

func TestToolsOfADaemon(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		switch r.URL.Path {
		case "/v1/tools", "/v1/tools/refresh":
			fmt.Fprint(w, `{"servers":[{"name":"a","namespace":"a","tools":[]}]}`)
		case "/v1/tools/search":
			fmt.Fprint(w, `{"hits":[{"tool":{"name":"x","server":"a","namespace":"a","function":"x"},"score":3}]}`)
		case "/v1/types/a b":
			fmt.Fprint(w, "declare")
		case "/v1/call/a/x y":
			fmt.Fprint(w, `{"isError":true,"text":"t","note":"n","raw":{"isError":true}}`)
		default:
			problem.Write(w, problem.New(&run.Error{Code: run.CodeUnknownTool, Class: errdefs.ErrNotFound, Message: "no tool"}))
		}
	}))
	defer server.Close()
	c, err := client.New(server.URL, "")
	require.NoError(t, err)
	defer c.Close()
	ctx := t.Context()

	servers, err := c.Servers(ctx, "a&b")
	require.NoError(t, err)
	require.Equal(t, "a", servers[0].Name)
	hits, err := c.Search(ctx, "two words", 5)
	require.NoError(t, err)
	require.Equal(t, 3, hits[0].Score)
	text, err := c.Types(ctx, "a b", "python", "f", "g")
	require.NoError(t, err)
	require.Equal(t, "declare", text)
	result, err := c.Call(ctx, tool.Call{Server: "a", Tool: "x y", Session: "s"})
	require.NoError(t, err)
	require.Equal(t, tool.Result{Raw: json.RawMessage(`{"isError":true}`), IsError: true, Note: "n"}, result)
	_, err = c.Call(ctx, tool.Call{Server: "a", Tool: "nope", Arguments: json.RawMessage(`{"q":1}`)})
	require.True(t, errdefs.IsNotFound(err), "%v", err)
	require.NoError(t, c.Refresh(ctx, "a", "b"))
	require.Equal(t, []string{
		"GET /v1/tools?ns=a%26b ", "GET /v1/tools/search?limit=5&q=two+words ", "GET /v1/types/a%20b?fn=f&fn=g&lang=python ",
		"POST /v1/call/a/x%20y?session=s {}", `POST /v1/call/a/nope {"q":1}`, "POST /v1/tools/refresh?server=a&server=b ",
	}, asked)
}
