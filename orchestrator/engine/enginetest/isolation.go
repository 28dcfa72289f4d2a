package enginetest

import (
	"io"
	"os"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
)

func isolationChecks() []check {
	return []check{
		{"ScriptHasNoPrivileges", enforced(noPrivileges)},
		{"ScriptIsItsSpecsUser", enforced(specsUser)},
		{"RootAndKernelAreReadOnly", enforced(readOnly)},
		{"NothingOfTheHostIsSeen", enforced(nothingOfTheHost)},
		{"InitCannotBeReadOrEnded", enforced(initIsSafe)},
		{"ConcurrentRunsDoNotSeeEachOther", enforced(runsAreApart)},
		{"NothingPassesToTheNextRun", enforced(nothingPasses)},
	}
}

// enforced is a case that only holds for engines that isolate. One that does
// not has to show that it says so: a script of it runs as this very user, on
// the host's own files.
func enforced(hold func(*bench)) func(*bench) {
	return func(b *bench) {
		if b.info.Enforces {
			hold(b)
			return
		}
		name, err := os.Hostname()
		require.NoError(b, err)
		require.Equal(b, name+"\n", b.sh("hostname").stdout, "it isolates, and does not say so")
	}
}

// facts reads what a script printed as name=value.
func facts(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[name] = value
	}
	return all
}

func noPrivileges(b *bench) {
	r := b.sh(`while read name value; do echo "$name$value"; done < /proc/self/status | tr : =
(mount -t tmpfs none /tmp) 2> /dev/null && echo mounted=yes
(unshare -r true) 2> /dev/null && echo userns=yes
(mknod /tmp/null c 1 3) 2> /dev/null && echo device=yes
(chroot / true) 2> /dev/null && echo chroot=yes
for f in /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg /dev/kvm /dev/fuse; do [ -e $f ] && echo "dev=$f"; done
exit 0`)
	b.exits(r, 0)
	f := facts(r.stdout)
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		require.Equal(b, "0000000000000000", f[name], name)
	}
	require.Equal(b, "1", f["NoNewPrivs"])
	if b.info.Seccomp {
		require.Equal(b, "2", f["Seccomp"])
	} else {
		require.Equal(b, "0", f["Seccomp"], "Info says that there is no filter")
	}
	for _, name := range []string{"mounted", "userns", "device", "chroot", "dev"} {
		require.NotContains(b, f, name)
	}
}

func specsUser(b *bench) {
	spec := b.spec("sh")
	spec.User = "12345:23456"
	r := b.run(b.prepare(spec), shell(`id -u; id -g; id -G; : > $OUT/f; : > $TMP/f; : > /work/f; stat -c %u:%g $OUT/f`))
	b.exits(r, 0)
	require.Equal(b, "12345\n23456\n23456\n12345:23456\n", r.stdout)
}

// readOnly tries as the usual user and as root, whom no mode of a file keeps out.
func readOnly(b *bench) {
	const text = `for d in / /etc /usr /bin /var /root /home /run /run/mcpx /run/mcpx/job /mcpx /proc/sys /proc/sys/kernel /sys /sys/fs/cgroup/memory; do
  (: > $d/x.mcpx) 2> /dev/null && echo "made a file in $d"
done
(echo core > /proc/sys/kernel/core_pattern) 2> /dev/null && echo "set the core pattern"
(echo 1 > /proc/sys/kernel/sysrq) 2> /dev/null && echo "set sysrq"
(echo x > /etc/passwd) 2> /dev/null && echo "wrote passwd"
(echo x > /mcpx/init) 2> /dev/null && echo "wrote init"
(echo x > /etc/hosts) 2> /dev/null && echo "wrote hosts"
(mkdir /sys/fs/cgroup/memory/x || mkdir /sys/fs/cgroup/pids/x) 2> /dev/null && echo "made a cgroup"
(mount -o remount,rw /) 2> /dev/null && echo "remounted the root"
exit 0`
	for _, user := range []string{b.User, "0:0"} {
		spec := b.spec("sh")
		spec.User = user
		r := b.run(b.prepare(spec), shell(text))
		b.exits(r, 0)
		require.Empty(b, r.stdout, user)
	}
}

func nothingOfTheHost(b *bench) {
	host, err := os.Hostname()
	require.NoError(b, err)
	r := b.sh(`for f in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock; do [ -e $f ] && echo "socket=$f"; done
echo "hostname=$(hostname)"; echo "first=$(cat /proc/1/comm 2> /dev/null)"
echo "processes=$(ls -d /proc/[0-9]* | wc -l)"; echo "user=$(id -u)"
echo "kcore=$(head -c 1 /proc/kcore 2> /dev/null | wc -c)"
echo "keys=$(cat /proc/keys 2> /dev/null | wc -c)"; echo "root=$(cat /proc/self/root/etc/hostname)"
echo "job=$(ls /run/mcpx/job)"; echo "cgroups=$(cut -d: -f3 /proc/self/cgroup | sort -u)"
echo "ipc=$(readlink /proc/self/ns/ipc)"; echo "uts=$(readlink /proc/self/ns/uts)"; echo "net=$(readlink /proc/self/ns/net)"; echo "mnt=$(readlink /proc/self/ns/mnt)"`)
	b.exits(r, 0)
	f := facts(r.stdout)
	require.NotContains(b, f, "socket")
	require.NotEqual(b, host, f["hostname"])
	require.NotEqual(b, host, f["root"])
	require.Less(b, len(f["processes"]), 2, "more processes than a container has")
	require.Equal(b, "0", f["kcore"])
	require.Equal(b, "0", f["keys"])
	require.Equal(b, "main", f["job"])
	require.Equal(b, "/", f["cgroups"], "paths of the host's cgroups are seen")
	for _, kind := range []string{"ipc", "uts", "net", "mnt"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		require.NoError(b, err)
		require.NotEqual(b, ours, f[kind])
	}
	require.Equal(b, b.User, f["user"]+":"+f["user"])
}

func initIsSafe(b *bench) {
	r := b.sh(`for f in environ maps mem stack root/etc/passwd fd/0 cwd/x; do (head -c 1 /proc/1/$f > /dev/null) 2> /dev/null && echo "read $f"; done
(ls /proc/1/fd > /dev/null) 2> /dev/null && echo "listed fds"
for s in KILL STOP TERM INT HUP QUIT SEGV ABRT USR1 USR2 PIPE TSTP; do kill -$s 1 2> /dev/null; done
(echo -1000 > /proc/self/oom_score_adj) 2> /dev/null && echo "took cover from the memory limit"
sleep 0.2; exit 9`)
	b.exits(r, 9)
	require.Empty(b, r.stdout)
}

// runsAreApart has one run look for the other, which waits meanwhile.
func runsAreApart(b *bench) {
	mark := marker()
	watched, watcher := b.prepare(b.spec("sh")), b.prepare(b.spec("python3"))
	var seen result
	up := &until{text: "up\n"}
	var once sync.Once
	ended := make(chan struct{})
	up.do = func() {
		once.Do(func() {
			defer close(ended)
			seen = b.run(watcher, python(`
import os, glob
mark = "`+mark+`"
for name in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        line = open(name).read()
    except OSError:
        continue
    if mark in line and "job" not in line:
        print("process", line)
for root in ("/tmp", "/work", "/dev/shm", "/outbox", "/run/mcpx", "/dev/mqueue"):
    for at, dirs, files in os.walk(root):
        for name in files:
            if "mark" in name:
                print("file", at, name)
for line in open("/proc/net/unix"):
    if mark in line:
        print("socket", line)
print("looked")
`))
		})
	}
	b.within(patience, "two runs", func() {
		job := shell(`: > /tmp/mark; : > /work/mark; : > /dev/shm/mark; : > $OUT/mark; (exec sleep 300.` + mark + `) & echo up; read x; exit 2`)
		r, err := watched.Run(b.Context(), job, engine.IO{Stdout: up, Stdin: waiting{ended}})
		require.NoError(b, err)
		require.Equal(b, engine.Exit{Code: 2}, r)
	})
	b.exits(seen, 0)
	require.Equal(b, "looked\n", seen.stdout)
}

// waiting is a reader that ends when a channel is closed.
type waiting struct{ until chan struct{} }

func (w waiting) Read([]byte) (int, error) {
	<-w.until
	return 0, io.EOF
}

func nothingPasses(b *bench) {
	b.exits(b.sh(`echo x > /tmp/left; echo x > /work/left; echo x > /dev/shm/left; echo x > $OUT/left`), 0)
	r := b.sh(`ls -A /tmp /work /dev/shm $OUT | grep left`)
	b.exits(r, 1)
	require.Empty(b, r.stdout)
}
