// Package enginetest holds engines to the contract of package engine: each
// sentence there is a case here. An engine that can't do something says so in
// its Info, and then the cases see that it has told the truth.
package enginetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

// Harness is an engine with what the cases need to know of it.
type Harness struct {
	Engine engine.Engine
	// Images are references by interpreter: "sh" has a POSIX shell and
	// coreutils, "python3" is wanted of an engine that enforces.
	Images map[string]string
	// Dir is where control directories may be made. Its path should be short.
	Dir string
	// User is who scripts run as: uid and gid.
	User string
	// Unreachable is an engine of the same kind whose daemon does not answer;
	// nil for a kind that has none.
	Unreachable engine.Engine
	// Leftovers names everything that is there of an owner: containers, and what
	// belongs to them.
	Leftovers func(t testing.TB, owner string) []string
	// KillInit kills a container's init from outside, with all below it.
	KillInit func(t testing.TB, id string)
}

// check is one sentence of the contract.
type check struct {
	name string
	hold func(b *bench)
}

// Run tests the harness's engine. The cases run in parallel, as far as
// -parallel allows, each with an owner of its own.
func Run(t *testing.T, h Harness) {
	info, err := h.Engine.Info(t.Context())
	require.NoError(t, err)
	all := slices.Concat(
		engineChecks(), imageChecks(), prepareChecks(),
		jobChecks(), exitChecks(), memoryChecks(), streamChecks(), stdinChecks(), endingChecks(), processChecks(),
		isolationChecks(), networkChecks(), limitChecks(), mountChecks(),
		outboxChecks(), removeChecks(), sweepChecks(),
	)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.hold(newBench(t, h, info))
		})
	}
}
