package enginetest

import (
	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

// noImage is a reference that no registry has.
const noImage = "mcpx-test.invalid/none:1"

func imageChecks() []check {
	return []check{
		{"EnsureImageTellsFacts", ensureImageTellsFacts},
		{"DigestRunsAsReferenceDoes", digestRuns},
		{"ImagesOwnInitIsUsed", imagesOwnInit},
		{"MissingImageIsNotFound", missingImage},
		{"PrepareOfMissingImageMakesNothing", prepareOfMissingImage},
	}
}

func ensureImageTellsFacts(b *bench) {
	first, err := b.Engine.EnsureImage(b.Context(), b.Images["sh"], engine.PullNever)
	require.NoError(b, err)
	require.NotEmpty(b, first.Digest)
	again, err := b.Engine.EnsureImage(b.Context(), b.Images["sh"], engine.PullMissing)
	require.NoError(b, err)
	require.Equal(b, first, again, "an image that is here is not pulled")
	if b.info.Enforces {
		require.Positive(b, first.Size)
		require.Contains(b, first.Env, "LANG=C.UTF-8")
	}
}

func digestRuns(b *bench) {
	image, err := b.Engine.EnsureImage(b.Context(), b.Images["sh"], engine.PullNever)
	require.NoError(b, err)
	spec := b.spec("sh")
	spec.Image = image.Digest
	b.exits(b.run(b.prepare(spec), shell("exit 3")), 3)
}

func imagesOwnInit(b *bench) {
	image, err := b.Engine.EnsureImage(b.Context(), b.Images["sh"], engine.PullNever)
	require.NoError(b, err)
	spec := b.spec("sh")
	spec.ImageInit = image.Init
	b.exits(b.run(b.prepare(spec), shell("exit 3")), 3)
}

func missingImage(b *bench) {
	for _, pull := range []engine.PullPolicy{engine.PullNever, engine.PullMissing} {
		_, err := b.Engine.EnsureImage(b.Context(), noImage, pull)
		require.ErrorIs(b, err, errdefs.ErrNotFound, pull)
		require.ErrorContains(b, err, noImage)
	}
}

func prepareOfMissingImage(b *bench) {
	spec := b.spec("sh")
	spec.Image = noImage
	_, err := b.Engine.Prepare(b.Context(), spec)
	require.ErrorIs(b, err, errdefs.ErrNotFound)
}
