package fake_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/enginetest"
	"mcpx/orchestrator/engine/fake"
	"mcpx/orchestrator/supervisor/inittest"
	"mcpx/orchestrator/supervisor/proctree"
)

func TestFakeConformance(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "containers")
	images := map[string]string{"sh": "test/sh", "python3": "test/python3"}
	e, err := fake.New(fake.Config{Init: inittest.Build(t), Dir: dir, Images: map[string]engine.Image{
		images["sh"]:      {Digest: "sha256:01", Init: engine.InitProtocol},
		images["python3"]: {Digest: "sha256:02", Init: engine.InitProtocol},
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.Empty(t, records(t, dir), "containers are left")
	})
	enginetest.Run(t, enginetest.Harness{
		Engine: e, Images: images, Dir: t.TempDir(), User: "65532:65532",
		Leftovers: func(t testing.TB, owner string) []string { return leftovers(t, dir, owner) },
		KillInit:  func(t testing.TB, id string) { kill(t, records(t, dir)[id]) },
	})
}

// record is what the engine writes in place of labels.
type record struct {
	Owner string           `json:"mcpx.owner"`
	Init  proctree.Process `json:"init"`
}

// records are those of all containers, by their IDs.
func records(t testing.TB, dir string) map[string]record {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string]record{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "record.json"))
		if errors.Is(err, os.ErrNotExist) {
			continue // another case is making or removing it
		}
		require.NoError(t, err)
		var r record
		require.NoError(t, json.Unmarshal(text, &r))
		all[e.Name()] = r
	}
	return all
}

// leftovers are an owner's directories; a container's processes go with them,
// which the cases see by their marks.
func leftovers(t testing.TB, dir, owner string) []string {
	var names []string
	for name, r := range records(t, dir) {
		if r.Owner == owner {
			names = append(names, name)
		}
	}
	return names
}

func kill(t testing.TB, r record) {
	below, err := proctree.Descendants(r.Init.PID)
	require.NoError(t, err)
	for _, p := range append(below, r.Init) {
		if err := p.Signal(syscall.SIGKILL); !errors.Is(err, proctree.ErrGone) {
			require.NoError(t, err)
		}
	}
}
