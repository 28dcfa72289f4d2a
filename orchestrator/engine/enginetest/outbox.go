package enginetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func outboxChecks() []check {
	return []check{
		{"CollectYieldsFiles", collectFiles},
		{"CollectSkipsWhatIsNoFile", collectSkips},
		{"CollectLeavesWhatIsNotWanted", collectLeaves},
		{"CollectEndsWithTheSinksError", collectEnds},
		{"CollectOfNothing", collectNothing},
		{"CollectAfterAKillYieldsFiles", collectAfterKill},
		{"CollectWithoutItsContainerFails", collectWithoutContainer},
	}
}

// kept is a file that came whole.
type kept struct {
	mode fs.FileMode
	data []byte
}

// shelf is an Outbox that keeps what comes; refuse may keep a file out.
type shelf struct {
	files   map[string]kept
	skips   map[string]string
	aborted []string
	refuse  func(name string, size int64) (bool, error)
}

func (s *shelf) File(name string, mode fs.FileMode, size int64) (engine.OutboxFile, error) {
	if s.refuse != nil {
		if refused, err := s.refuse(name, size); refused || err != nil {
			return nil, err
		}
	}
	return &shelved{shelf: s, name: name, mode: mode, size: size}, nil
}

func (s *shelf) Skip(name, reason string) error {
	if s.skips == nil {
		s.skips = map[string]string{}
	}
	s.skips[name] = reason
	return nil
}

type shelved struct {
	bytes.Buffer
	shelf *shelf
	name  string
	mode  fs.FileMode
	size  int64
}

func (f *shelved) Commit() error {
	if int64(f.Len()) != f.size {
		return errors.New("commit of a file that is not whole")
	}
	if f.shelf.files == nil {
		f.shelf.files = map[string]kept{}
	}
	f.shelf.files[f.name] = kept{f.mode, f.Bytes()}
	return nil
}

func (f *shelved) Abort() { f.shelf.aborted = append(f.shelf.aborted, f.name) }

// leave runs a script and collects what it left.
func (b *bench) leave(text string, into *shelf) result {
	b.Helper()
	c := b.prepare(b.spec("sh"))
	r := b.run(c, shell(text))
	b.within(slack, "walk of an outbox", func() { require.NoError(b, c.Collect(b.Context(), into)) })
	return r
}

func collectFiles(b *bench) {
	var s shelf
	r := b.leave(`cd "$OUT"; printf 'a\nb' > a; : > empty; mkdir -p d/e; echo deep > d/e/f; printf x > 'ein Name ≤'
head -c 3000000 /dev/urandom > big; sha256sum < big; chmod 750 a; chmod 400 d/e/f; exit 5`, &s)
	b.exits(r, 5)
	require.Empty(b, s.skips)
	require.Empty(b, s.aborted)
	require.Len(b, s.files, 5)
	require.Equal(b, "a\nb", string(s.files["a"].data))
	require.Equal(b, fs.FileMode(0o750), s.files["a"].mode)
	require.Empty(b, s.files["empty"].data)
	require.Equal(b, "deep\n", string(s.files["d/e/f"].data))
	require.Equal(b, "x", string(s.files["ein Name ≤"].data))
	sum := sha256.Sum256(s.files["big"].data)
	require.Equal(b, strings.Fields(r.stdout)[0], hex.EncodeToString(sum[:]))
}

func collectSkips(b *bench) {
	var s shelf
	r := b.leave(`cd "$OUT"; echo ok > ok; ln -s /etc/passwd a; ln -s /proc/self/environ b; ln -s / d; ln -s ok c; mkfifo p; mkdir empty`, &s)
	b.exits(r, 0)
	require.Len(b, s.files, 1)
	for _, name := range []string{"a", "b", "c", "d"} {
		require.Contains(b, s.skips[name], "link", name)
	}
	require.NotEmpty(b, s.skips["p"])
	require.NotContains(b, s.skips, "ok")
}

func collectLeaves(b *bench) {
	s := shelf{refuse: func(name string, size int64) (bool, error) { return size > 1000, nil }}
	b.leave(`cd "$OUT"; head -c 2000000 /dev/zero > big; truncate -s 100G huge; echo ok > ok`, &s)
	require.Len(b, s.files, 1)
	require.Equal(b, "ok\n", string(s.files["ok"].data))
}

var errSink = errors.New("not taken on purpose")

func collectEnds(b *bench) {
	c := b.prepare(b.spec("sh"))
	b.exits(b.run(c, shell(`echo 1 > "$OUT/1"; echo 2 > "$OUT/2"`)), 0)
	calls := 0
	err := c.Collect(b.Context(), &shelf{refuse: func(string, int64) (bool, error) { calls++; return false, errSink }})
	require.ErrorIs(b, err, errSink)
	require.Equal(b, 1, calls, "an error ends the walk")
}

func collectNothing(b *bench) {
	var s shelf
	b.leave("exit 0", &s)
	spec := b.spec("sh")
	spec.Outbox = 0
	c := b.prepare(spec)
	b.exits(b.run(c, shell("exit 0")), 0)
	require.NoError(b, c.Collect(b.Context(), &s), "without an outbox there is nothing to walk")
	require.Equal(b, shelf{}, s)
}

func collectAfterKill(b *bench) {
	c := b.prepare(b.spec("sh"))
	job := shell(`trap '' TERM; echo kept > "$OUT/f"; echo up; while :; do sleep 0.2; done`)
	job.Grace = 100 * time.Millisecond
	exit, _, _ := b.stop(c, job)
	require.Equal(b, "SIGKILL", exit.Signal)
	var s shelf
	require.NoError(b, c.Collect(b.Context(), &s))
	require.Equal(b, "kept\n", string(s.files["f"].data))
}

// collectWithoutContainer also tells what Run makes of an init that is killed.
func collectWithoutContainer(b *bench) {
	c := b.prepare(b.spec("sh"))
	mark := marker()
	b.within(patience, "end of a container whose init is killed", func() {
		out := &until{text: "up\n", do: func() { b.KillInit(b, c.ID()) }}
		exit, err := c.Run(b.Context(), shell("echo up; exec sleep 300."+mark), engine.IO{Stdout: out})
		if err == nil { // the engine saw how it ended
			require.Equal(b, engine.Exit{Code: -1, Signal: "SIGKILL"}, exit)
		}
	})
	require.Error(b, c.Collect(b.Context(), &shelf{}))
	b.remove(c)
	require.Empty(b, processes(b, mark))
}
