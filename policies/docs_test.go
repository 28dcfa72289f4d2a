package policies_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/policies"
)

func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/policies.md")
	require.NoError(t, err)
	return string(text)
}

func TestManualsExampleIsAPolicy(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(manual(t), -1)
	require.Len(t, blocks, 1)
	doc, err := policies.Parse("manual.yaml", []byte(blocks[0][1]))
	require.NoError(t, err)
	require.Empty(t, doc.Warnings)
	tcl, ok := doc.Rule("tcl")
	require.True(t, ok)
	require.Equal(t, 5*time.Minute, tcl.TimeoutMax)
	require.Len(t, tcl.MountsAllow, 2)
	require.Equal(t, []string{"deno", "node"}, doc.Catalog().Default)
}

func TestManualNamesEveryKeyWithItsDefault(t *testing.T) {
	text := manual(t)
	r, ok := policies.Default().Rule("perl")
	require.True(t, ok)
	for _, value := range r.Effective() {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(value.Field) + "` \\| ([^|]*) \\|").FindStringSubmatch(text)
		require.NotNil(t, row, "docs/policies.md has no row for %s", value.Field)
		if strings.HasSuffix(value.Why, " defaults") && value.Field != "env.deny" {
			require.Equal(t, plain(value.Value), plain(row[1]), value.Field)
		}
	}
}

// plain drops what markdown and YAML put around a value, and units that are
// written in another way ("1m0s").
func plain(text string) string {
	text = strings.Trim(text, "`\"[]{}")
	if d, err := time.ParseDuration(text); err == nil {
		return d.String()
	}
	return text
}
