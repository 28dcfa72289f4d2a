package enginetest

import (
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func limitChecks() []check {
	return []check{
		{"TmpfsIsWritableExecutableAndLimited", enforced(tmpfsIsLimited)},
		{"OutboxIsLimited", enforced(outboxIsLimited)},
		{"ShmIsLimited", enforced(shmIsLimited)},
		{"NoFileIsLimited", enforced(noFileIsLimited)},
		{"PidsLimitBites", pidsLimitBites},
		{"ForkBombHarmsNobody", forkBomb},
		{"CPULimitBites", cpuLimitBites},
		{"ZeroLimitsAreDefaults", enforced(zeroLimits)},
	}
}

// fills tries to write 64 MiB in a directory, and reports what there was room for.
func fills(dir string) string {
	return `(head -c 67108864 /dev/zero > ` + dir + `/x) 2>&1; stat -c %s ` + dir + `/x; rm ` + dir + `/x; : > ` + dir + `/y && echo again`
}

// bounded wants what fills printed: the words of ENOSPC, and a size up to limit.
func (b *bench) bounded(r result, limit int) {
	b.Helper()
	b.exits(r, 0)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(b, lines, 3, r.stdout)
	require.Contains(b, lines[0], "No space left on device")
	size, err := strconv.Atoi(lines[1])
	require.NoError(b, err)
	require.LessOrEqual(b, size, limit)
	require.GreaterOrEqual(b, size, limit/2)
	require.Equal(b, "again", lines[2], "there is room again")
}

func tmpfsIsLimited(b *bench) {
	spec := b.spec("sh")
	spec.Tmpfs = append(spec.Tmpfs,
		engine.Tmpfs{Target: "/home/someone/deep/dir", Bytes: 1 << 20},
		engine.Tmpfs{Target: "/opt", Bytes: 1 << 20, Mode: 0o700}) // there in the image, and root's
	c := b.prepare(spec)
	r := b.run(c, shell(`for d in /home/someone/deep/dir /opt /work; do
  cp /bin/true $d/t && $d/t && echo ran; `+fills("$d")+`
done; grep -E ' (/tmp|/work|/opt|/home/someone/deep/dir) ' /proc/mounts >&2`))
	b.exits(r, 0)
	require.Equal(b, 3, strings.Count(r.stdout, "ran\n"))
	require.Equal(b, 3, strings.Count(r.stdout, "No space left on device"))
	require.Equal(b, 3, strings.Count(r.stdout, "again\n"))
	for line := range strings.Lines(r.stderr) {
		require.Contains(b, line, "nosuid")
		require.Contains(b, line, "nodev")
	}
}

func outboxIsLimited(b *bench) {
	c := b.prepare(b.spec("sh"))
	b.bounded(b.run(c, shell(fills("$OUT"))), 4<<20)
}

func shmIsLimited(b *bench) {
	b.bounded(b.sh(fills("/dev/shm")), 1<<20)
}

func noFileIsLimited(b *bench) {
	r := b.sh("ulimit -n; ulimit -Hn")
	b.exits(r, 0)
	require.Equal(b, "512\n512\n", r.stdout)
}

// spawns starts 100 processes and prints how many could be.
const spawns = `
import os, signal
pids = []
try:
    for i in range(100):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        pids.append(pid)
except OSError as e:
    print("refused", e.errno)
print(len(pids))
for pid in pids:
    os.kill(pid, signal.SIGKILL)
`

func pidsLimitBites(b *bench) {
	b.Helper()
	spec := b.spec("python3")
	spec.Limits.Pids = 40
	r := b.run(b.prepare(spec), python(spawns))
	b.exits(r, 0)
	if !b.info.PidsLimit {
		require.Equal(b, "100\n", r.stdout, "Info says that there is no limit")
		return
	}
	lines := strings.Fields(r.stdout)
	require.Equal(b, []string{"refused", "11"}, lines[:2], r.stdout)
	n, err := strconv.Atoi(lines[2])
	require.NoError(b, err)
	require.InDelta(b, 40, n, 6, "init's own come on top of what the script is granted")
}

// forkBomb runs one only where it has been seen that something holds it.
func forkBomb(b *bench) {
	pidsLimitBites(b)
	if !b.info.PidsLimit {
		return
	}
	mark := marker()
	job := shell(`: ` + mark + `; bomb() { bomb | bomb & }; echo up; bomb; while :; do sleep 1; done`)
	job.Grace = 200 * time.Millisecond
	c := b.prepare(b.spec("sh"))
	_, _, took := b.stop(c, job)
	require.Less(b, took, slack)
	b.exits(b.sh("exit 3"), 3)
	require.NoError(b, c.Collect(b.Context(), &shelf{}))
}

// spins works for a second of wall clock and prints the share of a core it got.
const spins = `
import time
wall, cpu = time.monotonic(), time.process_time()
while time.monotonic() - wall < 1.5:
    pass
print((time.process_time() - cpu) / (time.monotonic() - wall))
`

func cpuLimitBites(b *bench) {
	spec := b.spec("python3")
	spec.Limits.CPUs = 0.25
	r := b.run(b.prepare(spec), python(spins))
	b.exits(r, 0)
	share, err := strconv.ParseFloat(strings.TrimSpace(r.stdout), 64)
	require.NoError(b, err)
	if !b.info.CPULimit {
		require.Positive(b, share) // how much it gets, others on the machine decide
		return
	}
	require.Less(b, share, 0.45)
}

// zeroLimits wants every limit there although the spec names none.
func zeroLimits(b *bench) {
	spec := b.spec("python3")
	spec.Limits = engine.Limits{}
	spec.Tmpfs = []engine.Tmpfs{{Target: "/tmp"}}
	r := b.run(b.prepare(spec), python(`
import os, resource
print(resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 65536)
for d in ("/tmp", "/dev/shm"):
    s = os.statvfs(d)
    print(s.f_blocks * s.f_frsize <= 256 << 20)
def read(*names):
    for name in names:
        try:
            return open("/sys/fs/cgroup/" + name).read().strip()
        except OSError:
            pass
memory = read("memory/memory.limit_in_bytes", "memory.max")
pids = read("pids/pids.max", "pids.max")
print(memory != "max" and int(memory) <= 4 << 30)
print(pids != "max" and int(pids) <= 4096)
`))
	b.exits(r, 0)
	require.Equal(b, strings.Repeat("True\n", 5), r.stdout)
}
