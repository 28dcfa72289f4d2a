package daemon_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/cmd/internal/daemon"
)

func ids(owners []*daemon.Owner) []string {
	var all []string
	for _, o := range owners {
		all = append(all, o.ID)
	}
	return all
}

func TestOnlyTheDeadAreFound(t *testing.T) {
	state := t.TempDir()
	living, dead, err := daemon.Acquire(state)
	require.NoError(t, err)
	require.Empty(t, dead)
	killed, dead, err := daemon.Acquire(state)
	require.NoError(t, err)
	require.Empty(t, dead, "the first one lives")
	require.NoError(t, os.MkdirAll(filepath.Join(killed.RunDir(), "1"), 0o755))
	require.NoError(t, killed.Leave()) // as the kernel does when a process dies

	third, dead, err := daemon.Acquire(state)
	require.NoError(t, err)
	require.Equal(t, []string{killed.ID}, ids(dead))
	fourth, nobody, err := daemon.Acquire(state)
	require.NoError(t, err)
	require.Empty(t, nobody, "the third one holds the dead one")

	require.NoError(t, dead[0].Bury())
	require.NoDirExists(t, killed.RunDir())
	for _, o := range []*daemon.Owner{living, third, fourth} {
		require.NoError(t, o.Bury())
	}
	left, err := filepath.Glob(filepath.Join(state, "*", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(state, "owners", ".lock")}, left)
}

func TestTheDeadStayFoundUntilBuried(t *testing.T) {
	state := t.TempDir()
	killed, _, err := daemon.Acquire(state)
	require.NoError(t, err)
	require.NoError(t, killed.Leave())
	for range 3 {
		own, dead, err := daemon.Acquire(state)
		require.NoError(t, err)
		require.Equal(t, []string{killed.ID}, ids(dead))
		require.NoError(t, dead[0].Leave()) // the sweep did not work
		require.NoError(t, own.Bury())
	}
}

// A life that is just beginning must not look dead.
func TestOwnersThatStartTogetherDoNotSweepEachOther(t *testing.T) {
	state := t.TempDir()
	var wg sync.WaitGroup
	owners := make([]*daemon.Owner, 16)
	for i := range owners {
		wg.Go(func() {
			own, dead, err := daemon.Acquire(state)
			if err != nil || len(dead) > 0 {
				t.Errorf("owner %d: %v, dead: %v", i, err, ids(dead))
			}
			owners[i] = own
		})
	}
	wg.Wait()
	for _, o := range owners {
		require.NoError(t, o.Bury())
	}
}
