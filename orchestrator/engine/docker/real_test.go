package docker_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/docker"
)

// What follows is about Docker alone, and wants a real daemon.

const testOwner = "docker-real-test"

func TestDockerInitThatCannotRunIsTold(t *testing.T) {
	eye := observer(t)
	bad := filepath.Join(t.TempDir(), "init")
	require.NoError(t, os.WriteFile(bad, []byte("\x7fELF of no machine"), 0o755))
	for name, c := range map[string]struct {
		path, carried string
		says          string
	}{
		"wrong format":      {bad, "", bad + " ended at once with code 1"},
		"ends at once":      {"/bin/false", "", "/bin/false ended at once"},
		"not in its image":  {"", engine.InitProtocol, "/mcpx/init"},
		"there is none":     {"", "", "has none to mount"},
		"another protocol":  {"", "0", "has none to mount"},
		"is of another use": {"/bin/true", "", "/bin/true ended at once with code 0"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := docker.New(docker.Config{InitPath: c.path})
			require.NoError(t, err)
			defer e.Close()
			spec := specOf(t, nil)
			spec.Owner, spec.Run, spec.Image, spec.ImageInit = testOwner, strings.ReplaceAll(name, " ", "-"), "mcpx/base", c.carried
			_, err = e.Prepare(t.Context(), spec)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, leftovers(t, eye, testOwner))
		})
	}
}

func TestDockerSweepTakesWhatNeverStarted(t *testing.T) {
	eye := observer(t)
	const owner = testOwner + "-created"
	for range 2 {
		create(t, eye, &container.Config{Image: "mcpx/bash", Labels: map[string]string{engine.LabelOwner: owner}})
	}
	require.Len(t, leftovers(t, eye, owner), 2)
	n, err := open(t, docker.Config{}).Sweep(t.Context(), owner)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Empty(t, leftovers(t, eye, owner))
}

func create(t *testing.T, eye *client.Client, c *container.Config) string {
	t.Helper()
	made, err := eye.ContainerCreate(t.Context(), c, nil, nil, nil, "")
	require.NoError(t, err)
	t.Cleanup(func() {
		err := eye.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, container.RemoveOptions{Force: true})
		require.True(t, err == nil || errdefs.IsNotFound(err), err)
	})
	return made.ID
}

// TestDockerVolumesOfAnImageAreBounded: a VOLUME would be a place on the
// host's disk without a limit.
func TestDockerVolumesOfAnImageAreBounded(t *testing.T) {
	eye := observer(t)
	from := create(t, eye, &container.Config{Image: "mcpx/bash"})
	made, err := eye.ContainerCommit(t.Context(), from, container.CommitOptions{Changes: []string{"VOLUME /data"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := eye.ImageRemove(context.WithoutCancel(t.Context()), made.ID, image.RemoveOptions{})
		require.NoError(t, err)
	})
	spec := specOf(t, waits)
	spec.Owner, spec.Run, spec.Image, spec.ImageInit = testOwner, "volumes", made.ID, ""
	c, err := open(t, docker.Config{}).Prepare(t.Context(), spec)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Remove(context.WithoutCancel(t.Context()))) }()
	found, err := eye.ContainerInspect(t.Context(), c.ID())
	require.NoError(t, err)
	for _, m := range found.Mounts {
		require.NotEqual(t, "volume", string(m.Type), m.Destination)
	}
	require.Contains(t, found.HostConfig.Tmpfs["/data"], "size=")
}

func TestDockerLimitItCannotSetIsTold(t *testing.T) {
	spec := specOf(t, waits)
	spec.Owner, spec.Run, spec.Image, spec.ImageInit = testOwner, "nofile", "mcpx/bash", ""
	spec.Limits.NoFile = 1 << 30
	_, err := open(t, docker.Config{}).Prepare(t.Context(), spec)
	require.ErrorContains(t, err, "rlimit")
	require.Empty(t, leftovers(t, observer(t), testOwner))
}
