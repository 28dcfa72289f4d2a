package enginetest

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func engineChecks() []check {
	return []check{
		{"InfoTellsFacts", infoTellsFacts},
		{"EngineThatDoesNotAnswerIsUnavailable", unreachableIsUnavailable},
	}
}

func infoTellsFacts(b *bench) {
	require.NotEmpty(b, b.Engine.Name())
	require.NotEmpty(b, b.info.Version)
	require.NotEmpty(b, b.info.Arch)
	require.Equal(b, "linux", b.info.OS)
	if b.info.Enforces {
		require.NotEmpty(b, b.info.Runtimes)
		return
	}
	for name, claim := range map[string]bool{
		"memory": b.info.MemoryLimit, "pids": b.info.PidsLimit, "cpu": b.info.CPULimit, "seccomp": b.info.Seccomp,
	} {
		require.False(b, claim, "an engine that enforces nothing claims to limit %s", name)
	}
}

func unreachableIsUnavailable(b *bench) {
	if b.Unreachable == nil {
		require.False(b, b.info.Enforces, "what enforces is a daemon, or a runtime that may be missing")
		return
	}
	for what, try := range map[string]func(context.Context) error{
		"Info": func(ctx context.Context) error { _, err := b.Unreachable.Info(ctx); return err },
		"EnsureImage": func(ctx context.Context) error {
			_, err := b.Unreachable.EnsureImage(ctx, b.Images["sh"], engine.PullMissing)
			return err
		},
		"Prepare": func(ctx context.Context) error { _, err := b.Unreachable.Prepare(ctx, b.spec("sh")); return err },
		"Sweep":   func(ctx context.Context) error { _, err := b.Unreachable.Sweep(ctx, b.owner); return err },
	} {
		require.ErrorIs(b, try(b.Context()), errdefs.ErrUnavailable, what)
	}
}
