package docker_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/docker"
	"mcpx/orchestrator/engine/enginetest"
	"mcpx/orchestrator/supervisor/inittest"
)

// images are stock ones, by interpreter.
func images() map[string]string {
	return map[string]string{"sh": "mcpx/bash", "python3": "mcpx/python3"}
}

func TestDockerConformance(t *testing.T) {
	enginetest.Run(t, harness(t))
}

func harness(t *testing.T) enginetest.Harness {
	eye := observer(t)
	return enginetest.Harness{
		Engine: open(t, docker.Config{}), Images: images(), Dir: shortDir(t), User: "65532:65532",
		Unreachable: open(t, docker.Config{Host: "unix:///nonexistent/docker.sock"}),
		Leftovers:   func(t testing.TB, owner string) []string { return leftovers(t, eye, owner) },
		KillInit: func(t testing.TB, id string) {
			require.NoError(t, eye.ContainerKill(context.WithoutCancel(t.Context()), id, "SIGKILL"))
		},
	}
}

// open makes an engine with the init of this tree.
func open(t *testing.T, c docker.Config) *docker.Engine {
	t.Helper()
	c.InitPath = inittest.Build(t)
	e, err := docker.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// observer looks at the daemon without the engine's help.
func observer(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(docker.DefaultHost), client.WithAPIVersionNegotiation())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.NewVersionError(t.Context(), "1.41", "looking"), "negotiated at once, for the client is not safe later")
	return c
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "mcpx")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(dir), "control directories are left") })
	return dir
}

func leftovers(t testing.TB, eye *client.Client, owner string) []string {
	found, err := eye.ContainerList(context.WithoutCancel(t.Context()), container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", engine.LabelOwner+"="+owner)),
	})
	require.NoError(t, err)
	var names []string
	for _, c := range found {
		names = append(names, strings.Join(c.Names, " ")+" "+c.State)
	}
	return names
}
