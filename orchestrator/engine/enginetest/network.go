package enginetest

import (
	"strings"

	"github.com/stretchr/testify/require"
)

func networkChecks() []check {
	return []check{
		{"NetworkNoneReachesNothing", enforced(reachesNothing)},
		{"LoopbackWorks", loopbackWorks},
	}
}

// reachesNothing tries addresses of every kind that leads out of a container
// which is less closed than it seems.
func reachesNothing(b *bench) {
	r := b.run(b.prepare(b.spec("python3")), python(`
import socket, os
def attempt(what, family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(2)
    try:
        s.connect(address)
        print("connected to", what)
    except OSError:
        pass
for host in ("1.1.1.1", "169.254.169.254", "172.17.0.1", "10.0.0.1", "192.168.0.1"):
    for port in (53, 80, 443):
        attempt(host, socket.AF_INET, (host, port))
for host in ("::ffff:169.254.169.254", "2606:4700:4700::1111", "fe80::1"):
    attempt(host, socket.AF_INET6, (host, 80))
for name in ("example.com", "host.docker.internal", "metadata.google.internal"):
    try:
        print("resolved", name, socket.gethostbyname(name))
    except OSError:
        pass
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    udp.sendto(b"x", ("1.1.1.1", 53))
    print("sent a datagram")
except OSError:
    pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    print("opened a raw socket")
except OSError:
    pass
for line in open("/proc/net/unix"):
    if "@" in line:
        print("abstract socket", line)
print(*sorted(name for _, name in socket.if_nameindex()))
`))
	b.exits(r, 0)
	require.Equal(b, "lo\n", r.stdout)
}

func loopbackWorks(b *bench) {
	r := b.run(b.prepare(b.spec("python3")), python(`
import socket
for host in ("127.0.0.1", "localhost"):
    server = socket.create_server((host, 0))
    client = socket.create_connection((host, server.getsockname()[1]), 5)
    client.sendall(b"x")
    conn, _ = server.accept()
    print(conn.recv(1).decode())
`))
	b.exits(r, 0)
	require.Equal(b, strings.Repeat("x\n", 2), r.stdout)
}
