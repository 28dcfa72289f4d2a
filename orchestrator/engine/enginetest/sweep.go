package enginetest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func sweepChecks() []check {
	return []check{
		{"SweepTakesItsOwnInAnyState", sweepTakesItsOwn},
		{"SweepOfNobodyIsNothing", sweepOfNobody},
	}
}

func sweepTakesItsOwn(b *bench) {
	others := b.spec("sh")
	others.Owner = b.owner + "-other" // one name begins with the other
	survivor := b.prepare(others)

	waiting, finished, killed := b.prepare(b.spec("sh")), b.prepare(b.spec("sh")), b.prepare(b.spec("sh"))
	b.exits(b.run(finished, shell("exit 0")), 0)
	b.KillInit(b, killed.ID())
	mark := marker()
	swept := 0
	out := &until{text: "up\n", do: func() {
		var err error
		swept, err = b.Engine.Sweep(b.Context(), b.owner)
		require.NoError(b, err)
	}}
	b.within(patience, "sweep", func() {
		waiting.Run(b.Context(), shell("echo up; exec sleep 300."+mark), engine.IO{Stdout: out}) //nolint:errcheck // it is only to return
	})
	require.Equal(b, 3, swept)
	require.Empty(b, processes(b, mark))
	require.Empty(b, b.Leftovers(b, b.owner))

	require.NotEmpty(b, b.Leftovers(b, others.Owner))
	b.exits(b.run(survivor, shell("exit 0")), 0)
	b.remove(survivor)
	require.Empty(b, b.Leftovers(b, others.Owner))
}

func sweepOfNobody(b *bench) {
	n, err := b.Engine.Sweep(b.Context(), strings.Repeat("0", 20))
	require.NoError(b, err)
	require.Zero(b, n)
}
