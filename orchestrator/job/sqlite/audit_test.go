package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	driver "gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"mcpx/orchestrator"
	"mcpx/orchestrator/job/sqlite"
	"mcpx/orchestrator/run"
)

func TestCallsAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	store, err := sqlite.Open(path)
	require.NoError(t, err)
	defer store.Close()
	yes := true
	call := orchestrator.AuditedCall{At: time.Now(), RunID: "r", Principal: "p", RequestBytes: 2, ResponseBytes: 9,
		Call: run.Call{Server: "s", Tool: "t", ArgsHash: "h", DurationMs: 3, Error: "tool_error", DestructiveHint: &yes}}
	require.NoError(t, store.RecordCall(t.Context(), call))
	require.NoError(t, store.RecordCall(t.Context(), call))

	// Auditors read the file with whatever reads SQLite.
	db, err := gorm.Open(driver.Open(path), &gorm.Config{})
	require.NoError(t, err)
	var rows []map[string]any
	require.NoError(t, db.Raw("SELECT run_id, principal, server, tool, args_hash, ok, error, destructive, response_bytes FROM calls").Scan(&rows).Error)
	require.Len(t, rows, 2)
	require.Equal(t, map[string]any{
		"run_id": "r", "principal": "p", "server": "s", "tool": "t", "args_hash": "h", "ok": int64(0),
		"error": "tool_error", "destructive": int64(1), "response_bytes": int64(9),
	}, rows[0])
	pool, err := db.DB()
	require.NoError(t, err)
	require.NoError(t, pool.Close())
}
