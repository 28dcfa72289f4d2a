package oci_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine/oci"
)

// FuzzOCIImport takes anything for an archive. What is not one leaves the store
// as it was, and what is one leaves nothing beside it.
func FuzzOCIImport(f *testing.F) {
	t := &testing.T{}
	layer := tarOf(t, member{name: "a", data: []byte("a")}, member{name: ".wh.b"}, member{name: "../c"})
	f.Add(dockerArchive(t, []string{"x:1"}, layer))
	f.Add(layout(t, "x", layer, layer))
	f.Add(tarOf(t, member{name: "manifest.json", data: []byte(`[{"Config":"manifest.json","Layers":["manifest.json"]}]`)}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, archive []byte) {
		above := t.TempDir()
		dir := filepath.Join(above, "store")
		e, err := oci.New(oci.Config{Dir: dir, DockerHost: "unix:///nonexistent/docker.sock"})
		require.NoError(t, err)
		images, err := e.Import(t.Context(), bytes.NewReader(archive))
		left, globErr := filepath.Glob(filepath.Join(dir, "images", "*.json"))
		require.NoError(t, globErr)
		if err != nil && len(left) > 1 {
			t.Errorf("%v, and %d images are there", err, len(left))
		}
		if err == nil && len(left) > len(images) {
			t.Errorf("%d images of %d", len(left), len(images))
		}
		beside, err := os.ReadDir(above)
		require.NoError(t, err)
		require.Len(t, beside, 1)
		require.NoError(t, e.Close())
	})
}
