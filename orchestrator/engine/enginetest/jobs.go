package enginetest

import (
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func jobChecks() []check {
	return []check{
		{"ArgvIsExact", argvIsExact},
		{"EnvIsTheWholeEnvironment", envIsWhole},
		{"CwdIsWhereTheScriptStarts", cwdIsStart},
		{"FilesArePlacedWithTheirModes", filesArePlaced},
		{"FilesAreReadOnly", filesAreReadOnly},
		{"FilesStayBelowTheJobDir", filesStayBelow},
		{"TooLargeEnvironmentIsAStartError", tooLargeEnv},
	}
}

func argvIsExact(b *bench) {
	args := []string{"", "a b", "new\nline", `q"'\`, "$HOME", "--", "≤", "*"}
	job := shell(`for a; do printf '<%s>' "$a"; done`)
	job.Argv = append(job.Argv, args...)
	r := b.run(b.prepare(b.spec("sh")), job)
	b.exits(r, 0)
	require.Equal(b, "<"+strings.Join(args, "><")+">", r.stdout)
}

func envIsWhole(b *bench) {
	env := []string{pathEnv, "A=1", "EMPTY=", "TEXT=two\nlines = $A", "Ü=≤"}
	job := engine.Job{Argv: []string{"env", "-0"}, Env: env, Cwd: "/"}
	r := b.run(b.prepare(b.spec("sh")), job)
	b.exits(r, 0)
	got := strings.Split(strings.TrimSuffix(r.stdout, "\x00"), "\x00")
	slices.Sort(got)
	slices.Sort(env)
	require.Equal(b, env, got)
}

func cwdIsStart(b *bench) {
	job := shell(`[ "$(pwd -P)" = "$(cd "$WORK" && pwd -P)" ] && : > here && cat "$WORK/here"`)
	job.Cwd, job.Env = "/work", append(job.Env, "WORK=/work")
	r := b.run(b.prepare(b.spec("sh")), job)
	b.exits(r, 0)
}

func filesArePlaced(b *bench) {
	binary := "\x00\xff\r\n" + strings.Repeat("x", 300_000)
	job := shell(`d=$(dirname "$0")
cat "$d/lib/data"
[ -x "$d/lib/tool" ] && [ ! -x "$d/plain" ] && "$d/lib/tool" >&2 && cat "$d/empty"`)
	job.Files = append(job.Files,
		engine.File{Path: "lib/data", Mode: 0o444, Data: []byte(binary)},
		engine.File{Path: "lib/tool", Mode: 0o555, Data: []byte("#!/bin/sh\necho tool\n")},
		engine.File{Path: "plain", Mode: 0o644, Data: []byte("p")},
		engine.File{Path: "empty", Mode: 0o444})
	r := b.run(b.prepare(b.spec("sh")), job)
	b.exits(r, 0)
	require.True(b, binary == r.stdout, "%d bytes came of %d", len(r.stdout), len(binary))
	require.Equal(b, "tool\n", r.stderr)
}

func filesAreReadOnly(b *bench) {
	if !b.info.Enforces {
		return // nothing is promised of a host's own files; Info's case has seen that it says so
	}
	r := b.sh(`d=$(dirname "$0")
(echo x >> "$0") && echo appended; rm -f "$0" && echo removed; chmod 777 "$0" && echo changed
(: > "$d/new") && echo made; (: > "$d/../new") && echo made above; exit 0`)
	b.exits(r, 0)
	require.Empty(b, r.stdout)
}

func filesStayBelow(b *bench) {
	for _, path := range []string{"../out", "/abs", "", "a/../../b", "main"} {
		job := shell("true")
		job.Files = append(job.Files, engine.File{Path: path, Mode: 0o444})
		_, err := b.try(b.Context(), b.prepare(b.spec("sh")), job, nil)
		require.ErrorIs(b, err, errdefs.ErrInvalidArgument, path)
	}
}

func tooLargeEnv(b *bench) {
	job := shell("true")
	job.Env = append(job.Env, "BIG="+strings.Repeat("x", 200_000))
	r := b.run(b.prepare(b.spec("sh")), job)
	require.NotEmpty(b, r.StartError)
	require.Equal(b, -1, r.Code)
}
