package enginetest

import (
	"bytes"
	"crypto/rand"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func processChecks() []check {
	return []check{
		{"BackgroundProcessesDoNotHoldRun", backgroundDoesNotHold},
		{"OrphansAreReaped", orphansAreReaped},
	}
}

// marker is a number that stands in the command lines of one case only.
func marker() string {
	n, err := rand.Int(rand.Reader, big.NewInt(1e15))
	if err != nil {
		panic(err) // the system's random numbers do not fail
	}
	return "9" + n.String()
}

// processes finds the command lines on this machine that hold mark; what runs
// in containers of this machine is seen too.
func processes(t testing.TB, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, name := range files {
		line, err := os.ReadFile(name)
		if err == nil && bytes.Contains(line, []byte(mark)) { // an error: it has ended
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

func backgroundDoesNotHold(b *bench) {
	for _, background := range []string{
		"sleep 300.%m &",
		"setsid sleep 300.%m &",
		"setsid sleep 300.%m > /dev/null 2>&1 < /dev/null &",
		"(sleep 300.%m &) &",
		"nohup sleep 300.%m 2>&1 &",
	} {
		mark := marker()
		r := b.sh(strings.ReplaceAll(background, "%m", mark) + "\necho done")
		b.exits(r, 0)
		require.Equal(b, "done\n", strings.ReplaceAll(r.stdout, "nohup: ignoring input\n", ""))
		require.Less(b, r.took, slack, background)
		require.Empty(b, processes(b, mark), "it runs on: %s", background)
	}
}

// orphansAreReaped makes more of them than there may be processes.
func orphansAreReaped(b *bench) {
	spec := b.spec("sh")
	spec.Limits.Pids = 40
	r := b.run(b.prepare(spec), shell(`i=0; while [ $i -lt 120 ]; do (true &); i=$((i+1)); done; echo ok`))
	b.exits(r, 0)
	require.Equal(b, "ok\n", r.stdout)
	require.Less(b, r.took, time.Minute)
}
