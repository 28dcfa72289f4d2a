package enginetest

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func stdinChecks() []check {
	return []check{
		{"StdinIsWholeAndEnds", stdinIsWhole},
		{"NilStdinIsEmpty", nilStdin},
		{"StdinOf8MiBArrives", largeStdin},
		{"UnreadStdinKeepsNothing", unreadStdin},
		{"SilentStdinKeepsNothing", silentStdin},
		{"StdinErrorEndsTheScript", stdinError},
	}
}

func stdinIsWhole(b *bench) {
	r, err := b.try(b.Context(), b.prepare(b.spec("sh")), shell(`read x; echo "[$x]"; cat`), strings.NewReader("hi\na\nb"))
	require.NoError(b, err)
	b.exits(r, 0)
	require.Equal(b, "[hi]\na\nb", r.stdout)
}

func nilStdin(b *bench) {
	b.within(patience, "read of an empty stdin", func() {
		r := b.sh(`read x; echo "[$x]"`)
		require.Equal(b, "[]\n", r.stdout)
	})
}

func largeStdin(b *bench) {
	data := make([]byte, 8<<20+1)
	rand.Read(data)
	r, err := b.try(b.Context(), b.prepare(b.spec("sh")), shell(`sha256sum`), iotest.HalfReader(bytes.NewReader(data)))
	require.NoError(b, err)
	b.exits(r, 0)
	sum := sha256.Sum256(data)
	require.Equal(b, hex.EncodeToString(sum[:]), strings.Fields(r.stdout)[0])
}

func unreadStdin(b *bench) {
	for _, text := range []string{"echo ok", "exec <&-; echo ok", "head -c 10 > /dev/null; echo ok"} {
		b.within(patience, text, func() {
			r, err := b.try(b.Context(), b.prepare(b.spec("sh")), shell(text), bytes.NewReader(make([]byte, 8<<20)))
			require.NoError(b, err)
			b.exits(r, 0)
			require.Equal(b, "ok\n", r.stdout)
		})
	}
}

func silentStdin(b *bench) {
	never, silent := io.Pipe()
	defer silent.Close()
	b.within(patience, "end beside a silent stdin", func() {
		r, err := b.try(b.Context(), b.prepare(b.spec("sh")), shell("echo ok"), never)
		require.NoError(b, err)
		b.exits(r, 0)
	})
}

var errRead = errors.New("unreadable on purpose")

func stdinError(b *bench) {
	b.within(patience, "end after a read error", func() {
		stdin := io.MultiReader(strings.NewReader("begun\n"), iotest.ErrReader(errRead))
		_, err := b.try(b.Context(), b.prepare(b.spec("sh")), shell("cat; sleep 60"), stdin)
		require.ErrorIs(b, err, errRead)
	})
}
