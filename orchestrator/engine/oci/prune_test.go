package oci_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/oci"
)

// age makes everything that the store knows an image by as old as that.
func age(t *testing.T, dir string, by time.Duration) {
	files, err := filepath.Glob(filepath.Join(dir, "images", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		then := time.Now().Add(-by)
		require.NoError(t, os.Chtimes(file, then, then))
	}
}

func layersIn(t *testing.T, dir string) int {
	entries, err := os.ReadDir(filepath.Join(dir, "layers"))
	require.NoError(t, err)
	return len(entries)
}

// Images that were built anew would fill the disk. What is named by a tag, is
// of somebody's own, or in use, stays.
func TestOCIOldImagesAreForgotten(t *testing.T) {
	const month = 30 * 24 * time.Hour
	dir := filepath.Join(t.TempDir(), "store")
	mount := func() *oci.Engine {
		e, err := oci.New(oci.Config{Dir: dir, InitPath: initPath(t)})
		require.NoError(t, err)
		return e
	}
	first := mount()
	facts, err := first.EnsureImage(t.Context(), "mcpx/bash", engine.PullNever)
	require.NoError(t, err)
	spec := specOf(t, "prune")
	spec.Image = facts.Digest // nothing but its digest is known of it then
	require.Equal(t, engine.Exit{}, runIn(t, first, spec, "true").Exit)
	own, err := first.Import(t.Context(), bytes.NewReader(dockerArchive(t, nil, tarOf(t, member{name: "a"}))))
	require.NoError(t, err)
	whole := layersIn(t, dir)

	age(t, dir, month)
	require.NoError(t, mount().Close())
	require.Equal(t, whole, layersIn(t, dir), "the first engine lives, and may have it mounted")

	require.NoError(t, first.Close())
	age(t, dir, time.Hour)
	require.NoError(t, mount().Close())
	require.Equal(t, whole, layersIn(t, dir), "it was used an hour ago")

	age(t, dir, month)
	last := mount()
	require.Equal(t, 1, layersIn(t, dir))
	_, err = last.EnsureImage(t.Context(), own[0].Digest, engine.PullNever)
	require.NoError(t, err, "it came from an archive, and could not be had again")
	require.NoError(t, last.Close())

	away, err := oci.New(oci.Config{Dir: dir, DockerHost: "unix:///nonexistent/docker.sock"})
	require.NoError(t, err)
	_, err = away.EnsureImage(t.Context(), facts.Digest, engine.PullNever)
	require.ErrorIs(t, err, errdefs.ErrNotFound)
	require.NoError(t, away.Close())
}

func TestOCITaggedImagesStay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	first, err := oci.New(oci.Config{Dir: dir, InitPath: initPath(t)})
	require.NoError(t, err)
	require.Equal(t, engine.Exit{}, runIn(t, first, specOf(t, "tagged"), "true").Exit)
	require.NoError(t, first.Close())
	whole := layersIn(t, dir)
	age(t, dir, 365*24*time.Hour)
	open(t, oci.Config{Dir: dir})
	require.Equal(t, whole, layersIn(t, dir))
}
