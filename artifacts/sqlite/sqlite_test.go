package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/artifacts/indextest"
	"mcpx/artifacts/sqlite"
	"mcpx/artifacts/sqlite/database"
)

func open(t testing.TB, dir string) *sqlite.Index {
	t.Helper()
	x, err := sqlite.Open(filepath.Join(dir, "index.db"))
	require.NoError(t, err)
	t.Cleanup(func() { x.Close() })
	return x
}

func TestIndex(t *testing.T) {
	indextest.Run(t, func(t testing.TB, dir string) artifacts.Index { return open(t, dir) })
}

// A file as the first version left it is brought up to date with all it holds.
func TestFileOfTheFirstVersionIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/version1.sql")
	require.NoError(t, err)
	statements := strings.Split(strings.TrimSuffix(string(text), ";\n"), ";\n")
	old, err := database.Open(filepath.Join(dir, "index.db"), database.Steps{statements})
	require.NoError(t, err)
	require.NoError(t, old.Close())

	x := open(t, dir)
	page, _, err := x.List(t.Context(), time.Now(), artifacts.Filter{Run: "r"})
	require.NoError(t, err)
	require.Len(t, page, 2)
	require.Equal(t, "n.txt", page[0].Title)
	require.Equal(t, time.Date(2025, 12, 1, 12, 0, 0, 0, time.UTC), page[0].CreatedAt)
	for i, a := range page {
		_, last, err := x.Delete(t.Context(), a.ID)
		require.NoError(t, err)
		require.Equal(t, i == 1, last)
	}
	garbage, err := x.Garbage(t.Context(), 9)
	require.NoError(t, err)
	require.Equal(t, []artifacts.Digest{artifacts.Digest(page[0].SHA256)}, garbage)
}

// raw opens the file beside the index, whose steps were applied already.
func raw(t testing.TB, path string) *database.DB {
	t.Helper()
	db, err := database.Open(path, make(database.Steps, 2))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// fill writes n rows past the index, of which each thousandth is a run of its own.
func fill(t testing.TB, path string, n int) {
	t.Helper()
	db := raw(t, path)
	require.NoError(t, db.Write.Exec(`
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO artifacts (id, digest, name, title, mime, size, run, session, principal, created_at, expires_at)
		SELECT printf('%032x', i), printf('%064x', i), 'n', '', 'text/plain', 1024,
			'run' || (i / 1000), 'session' || (i / 1000), 'local', i, 0 FROM n`, n).Error)
}

// Each way of listing finds its page by an index, also when SQLite knows the
// values by parameters only: a page costs as much among a million rows.
func TestListingsUseAnIndex(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	db := raw(t, filepath.Join(dir, "index.db"))
	for where, index := range map[string]string{
		"run = ? AND (expires_at = 0 OR expires_at > 1)":                          "artifacts_run",
		"run = ? AND +session = 's' AND +principal = 'p' AND seq < 9":             "artifacts_run",
		"session = ? AND +principal = 'p' AND (expires_at = 0 OR expires_at > 1)": "artifacts_session",
		"principal = ? AND (expires_at = 0 OR expires_at > 1) AND seq < 9":        "artifacts_principal",
	} {
		var plan []struct{ Detail string }
		require.NoError(t, db.Read.Raw("EXPLAIN QUERY PLAN SELECT * FROM artifacts WHERE "+where+" ORDER BY seq DESC LIMIT 3", "x").Scan(&plan).Error)
		require.Len(t, plan, 1, "no sorting: %v", plan)
		require.Contains(t, plan[0].Detail, "INDEX "+index+" ", where)
	}
}

func BenchmarkListOfAMillion(b *testing.B) {
	dir := b.TempDir()
	x := open(b, dir)
	fill(b, filepath.Join(dir, "index.db"), 1_000_000)
	for _, f := range []artifacts.Filter{
		{}, {Principal: "local"}, {Run: "run3"}, {Run: "run3", Principal: "local"}, {Session: "session990"},
		{Principal: "local", After: "500000"}, {Principal: "nobody"},
	} {
		b.Run(strings.ReplaceAll(fmt.Sprintf("%+v", f), " ", ","), func(b *testing.B) {
			for b.Loop() {
				_, _, err := x.List(b.Context(), time.Now(), f)
				require.NoError(b, err)
			}
		})
	}
}
