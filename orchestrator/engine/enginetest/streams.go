package enginetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func streamChecks() []check {
	return []check{
		{"OutputIsExact", outputIsExact},
		{"OutputOf8MiBIsWhole", largeOutput},
		{"StreamsKeepTheirOrder", streamsKeepOrder},
		{"NilWritersDropOutput", nilWriters},
		{"SlowWriterSlowsTheScript", slowWriter},
		{"WriteErrorEndsTheScript", writeError},
	}
}

func outputIsExact(b *bench) {
	r := b.sh(`printf 'a\nb'; printf '\377\0e' >&2`)
	b.exits(r, 0)
	require.Equal(b, "a\nb", r.stdout)
	require.Equal(b, "\xff\x00e", r.stderr)
}

func largeOutput(b *bench) {
	r := b.sh(`f=$TMP/f; head -c 8388608 /dev/urandom > $f; cat $f; sha256sum < $f >&2; rm $f`)
	b.exits(r, 0)
	require.Len(b, r.stdout, 8<<20)
	sum := sha256.Sum256([]byte(r.stdout))
	require.Equal(b, strings.Fields(r.stderr)[0], hex.EncodeToString(sum[:]))
}

func streamsKeepOrder(b *bench) {
	r := b.sh(`i=0; while [ $i -lt 3000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done`)
	b.exits(r, 0)
	var out, err bytes.Buffer
	for i := range 3000 {
		fmt.Fprintln(&out, i)
		fmt.Fprintf(&err, "e%d\n", i)
	}
	require.Equal(b, out.String(), r.stdout)
	require.Equal(b, err.String(), r.stderr)
}

func nilWriters(b *bench) {
	exit, err := b.prepare(b.spec("sh")).Run(b.Context(), shell(`head -c 1000000 /dev/zero | tee /dev/stderr; exit 4`), engine.IO{})
	require.NoError(b, err)
	require.Equal(b, engine.Exit{Code: 4}, exit)
}

// gate lets nothing through for a while, at first.
type gate struct {
	hold time.Duration
	n    int
}

func (g *gate) Write(p []byte) (int, error) {
	if g.n == 0 {
		<-time.After(g.hold)
	}
	g.n += len(p)
	return len(p), nil
}

// slowWriter has the script take the time: it can't end writing before the
// gate opens, unless somebody takes 16 MiB for it.
func slowWriter(b *bench) {
	const hold = time.Second
	g := gate{hold: hold}
	var elapsed bytes.Buffer
	exit, err := b.prepare(b.spec("sh")).Run(b.Context(), shell(
		`s=$(date +%s%N); head -c 16777216 /dev/zero; e=$(date +%s%N); echo $(((e-s)/1000000)) >&2`),
		engine.IO{Stdout: &g, Stderr: &elapsed})
	require.NoError(b, err)
	require.Equal(b, engine.Exit{}, exit)
	require.Equal(b, 16<<20, g.n)
	ms, err := strconv.Atoi(strings.TrimSpace(elapsed.String()))
	require.NoError(b, err)
	require.Greater(b, ms, int(hold.Milliseconds())*8/10)
}

// full takes a little and then fails.
type full struct{ room int }

var errFull = errors.New("no room, on purpose")

func (f *full) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func writeError(b *bench) {
	c := b.prepare(b.spec("sh"))
	b.within(patience, "end after a write error", func() {
		exit, err := c.Run(b.Context(), shell("echo kept > $OUT/f; yes"), engine.IO{Stdout: &full{room: 1 << 20}})
		require.ErrorIs(b, err, errFull)
		require.NotEmpty(b, exit.Signal, "the exit is told beside the error")
	})
	require.NoError(b, c.Collect(b.Context(), &shelf{}))
}
