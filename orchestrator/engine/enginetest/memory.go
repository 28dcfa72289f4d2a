package enginetest

import (
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func memoryChecks() []check {
	return []check{
		{"MemoryLimitEndsTheScript", memoryEndsScript},
		{"MemoryLimitEndsAChildOnly", memoryEndsChild},
		{"MemoryLimitEndsManyProcesses", memoryEndsMany},
	}
}

// hog, as a shell's words, takes 400 MB: more than the limit, and no more than
// that if there is none after all. It is to be the last command.
const hog = `mkfifo $TMP/p; head -c 400000000 /dev/zero > $TMP/p & exec tail -c 400000000 $TMP/p > /dev/null`

// hogs is the same for a child of the script.
const hogs = `head -c 400000000 /dev/zero | tail -c 400000000 > /dev/null`

// memoryUnlimited wants the limit not to bite where Info says so.
func memoryUnlimited(b *bench) {
	spec := b.spec("sh")
	spec.Limits.MemoryBytes = 16 << 20
	r := b.run(b.prepare(spec), shell("head -c 64M /dev/zero | tail -c 64M | wc -c"))
	b.exits(r, 0)
	require.Equal(b, "67108864\n", r.stdout)
}

func memoryEndsScript(b *bench) {
	if !b.info.MemoryLimit {
		memoryUnlimited(b)
		return
	}
	killed := engine.Exit{Code: -1, Signal: "SIGKILL", OOMKilled: true}
	require.Equal(b, killed, b.sh("echo up; "+hog).Exit)
	python := b.run(b.prepare(b.spec("python3")), python("b = bytearray(10**9)\nprint(len(b))"))
	if python.Exit != killed { // it may be told that there is no such memory
		b.exits(python, 1)
		require.Contains(b, python.stderr, "MemoryError")
	}
}

func memoryEndsChild(b *bench) {
	if !b.info.MemoryLimit {
		memoryUnlimited(b)
		return
	}
	c := b.prepare(b.spec("sh"))
	r := b.run(c, shell("echo kept > $OUT/f; "+hogs+"; exit 7"))
	require.Equal(b, engine.Exit{Code: 7, OOMKilled: true}, r.Exit)
	var s shelf
	require.NoError(b, c.Collect(b.Context(), &s))
	require.Equal(b, "kept\n", string(s.files["f"].data))
}

// memoryEndsMany is the case in which init is in the most danger.
func memoryEndsMany(b *bench) {
	if !b.info.MemoryLimit {
		memoryUnlimited(b)
		return
	}
	r := b.sh("for i in 1 2 3 4 5 6 7 8; do " + hogs + " & done; wait; exit 7")
	require.Equal(b, engine.Exit{Code: 7, OOMKilled: true}, r.Exit)
}
