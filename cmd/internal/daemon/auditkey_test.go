package daemon

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAuditKeyIsMadeOnceByAll(t *testing.T) {
	dir := t.TempDir()
	keys := make([][]byte, 20)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = auditKey(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		require.Len(t, key, auditKeyBytes)
		require.Equal(t, keys[0], key)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	info, err := entries[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(dir, "audit.key"), []byte("short"), 0o600))
	_, err = auditKey(dir)
	require.ErrorContains(t, err, "remove it")
}
