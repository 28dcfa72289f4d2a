package database_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts/sqlite/database"
)

var one = database.Steps{{`CREATE TABLE a (x INTEGER)`, `INSERT INTO a VALUES (1)`}}

func TestStepsAreAppliedOnceAndANewerFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "x.db")
	two := append(one, []string{`CREATE TABLE b (y INTEGER)`})
	for _, steps := range []database.Steps{one, one, two, two} {
		db, err := database.Open(path, steps)
		require.NoError(t, err)
		var n int
		require.NoError(t, db.Read.Raw("SELECT COUNT(*) FROM a").Scan(&n).Error)
		require.Equal(t, 1, n)
		require.NoError(t, db.Close())
	}
	_, err := database.Open(path, one)
	require.ErrorContains(t, err, "use a newer mcpx")
}

func TestStepThatFailsLeavesTheFileAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	_, err := database.Open(path, append(one, []string{`CREATE TABLE b (y INTEGER)`, `nonsense`}))
	require.ErrorContains(t, err, "step 2")
	db, err := database.Open(path, one)
	require.NoError(t, err)
	defer db.Close()
	require.Error(t, db.Read.Exec("SELECT * FROM b").Error)
}
