package enginetest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func removeChecks() []check {
	return []check{
		{"RemoveIsIdempotent", removeTwice},
		{"RemoveMayBeCalledAtOnce", removeConcurrently},
		{"RemoveEndsRun", removeEndsRun},
		{"ContainersAreIndependent", independent},
	}
}

func removeTwice(b *bench) {
	c := b.prepare(b.spec("sh"))
	b.exits(b.run(c, shell(`echo x > "$OUT/f"`)), 0)
	require.NoError(b, c.Collect(b.Context(), &shelf{}))
	b.remove(c)
	b.remove(c)
	require.Error(b, c.Collect(b.Context(), &shelf{}), "the outbox went with its container")
}

func removeConcurrently(b *bench) {
	c := b.prepare(b.spec("sh"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { b.remove(c) })
	}
	all.Wait()
	require.Empty(b, b.Leftovers(b, b.owner))
}

func removeEndsRun(b *bench) {
	c := b.prepare(b.spec("sh"))
	mark := marker()
	var removed sync.WaitGroup
	out := &until{text: "up\n", do: func() { removed.Go(func() { b.remove(c) }) }}
	b.within(patience, "end of Run under Remove", func() {
		c.Run(b.Context(), shell(`trap '' TERM; setsid sleep 300.`+mark+` & echo up; while :; do sleep 0.2; done`), //nolint:errcheck // it is only to return
			engine.IO{Stdout: out})
		removed.Wait()
	})
	require.Empty(b, processes(b, mark))
	require.Empty(b, b.Leftovers(b, b.owner))
}

func independent(b *bench) {
	first, second := b.prepare(b.spec("sh")), b.prepare(b.spec("sh"))
	require.NotEqual(b, first.ID(), second.ID())
	b.remove(first)
	b.exits(b.run(second, shell("exit 6")), 6)
}
