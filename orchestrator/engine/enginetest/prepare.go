package enginetest

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
)

func prepareChecks() []check {
	return []check{
		{"PreparedContainerWaitsAndIsRemoved", preparedWaits},
		{"PrepareWithEndedContextMakesNothing", prepareWithEndedContext},
		{"PrepareCancelledUnderWayLeavesNothing", prepareCancelledUnderWay},
		{"PrepareWithoutConnectionEndsWithItsContext", prepareWithoutConnection},
		{"PrepareTellsWhyControlFailed", prepareWithBrokenControl},
		{"PrepareWithoutControlDirLeavesNothing", prepareWithoutControlDir},
		{"PrepareRefusesNamesOfUsers", prepareRefusesNames},
	}
}

func preparedWaits(b *bench) {
	c, err := b.Engine.Prepare(b.Context(), b.spec("sh"))
	require.NoError(b, err)
	require.NotEmpty(b, c.ID())
	require.NotEmpty(b, b.Leftovers(b, b.owner), "the harness must see what there is, or it can't see what is left")
	b.remove(c)
	require.Empty(b, b.Leftovers(b, b.owner))
}

var errEnough = errors.New("enough of it")

func prepareWithEndedContext(b *bench) {
	ctx, cancel := context.WithCancelCause(b.Context())
	cancel(errEnough)
	_, err := b.Engine.Prepare(ctx, b.spec("sh"))
	require.ErrorIs(b, err, errEnough)
}

func prepareCancelledUnderWay(b *bench) {
	ctx, cancel := context.WithCancelCause(b.Context())
	spec := b.spec("sh")
	spec.Control = deaf{asked: func() { cancel(errEnough) }}
	_, err := b.Engine.Prepare(ctx, spec)
	require.ErrorIs(b, err, errEnough)
}

func prepareWithoutConnection(b *bench) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	spec := b.spec("sh")
	spec.Control = deaf{}
	_, err := b.Engine.Prepare(ctx, spec)
	require.ErrorIs(b, err, context.DeadlineExceeded)
}

func prepareWithBrokenControl(b *bench) {
	spec := b.spec("sh")
	spec.Control = broken{}
	_, err := b.Engine.Prepare(b.Context(), spec)
	require.ErrorIs(b, err, errBroken)
}

func prepareWithoutControlDir(b *bench) {
	spec := b.spec("sh")
	require.NoError(b, os.RemoveAll(spec.ControlDir))
	_, err := b.Engine.Prepare(b.Context(), spec)
	require.Error(b, err)
}

func prepareRefusesNames(b *bench) {
	spec := b.spec("sh")
	spec.User = "nobody"
	c, err := b.Engine.Prepare(b.Context(), spec)
	if !b.info.Enforces {
		require.NoError(b, err, "it has no users")
		b.remove(c)
		return
	}
	require.ErrorIs(b, err, errdefs.ErrInvalidArgument)
}
