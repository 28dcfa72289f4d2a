package rest_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

const docs = "../../docs/api.md"

func TestDocsNameEveryRouteFrameAndCode(t *testing.T) {
	text, err := os.ReadFile(docs)
	require.NoError(t, err)
	page := string(text)
	d := start(t, newJobs())
	for _, r := range d.server.Engine().Routes() {
		route := regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}")
		require.Contains(t, page, r.Method+" "+route)
	}
	for _, c := range problem.Codes() {
		row := problem.Of(&run.Error{Code: c.Name, Class: c.Class})
		require.Contains(t, page, fmt.Sprintf("| `%s` | %d | %s |", c.Name, row.HTTP, c.Meaning))
	}
	for _, one := range d.openapi().Components.Schemas["Event"].OneOf {
		kind := (*one.Properties["type"].Const).(string)
		if !strings.HasPrefix(kind, "artifact.") {
			require.Contains(t, page, kind)
		}
	}
}
