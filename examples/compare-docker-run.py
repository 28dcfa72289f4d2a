#!/usr/bin/env python3
"""Times mcpx beside `docker run --rm`, on the same image and script, in turns.

    examples/compare-docker-run.py [--socket PATH] [--rounds N] [INTERPRETER...]

Needs a daemon (`mcpx serve`, or `make run`). For each interpreter it prints the
median milliseconds from the request to the first output byte and to the end,
both ways, their ratio, and where mcpx's time goes (its own phases). Quote the
ratios: absolute times are this machine's, and of this minute.
"""
import argparse, http.client, json, os, socket, statistics, subprocess, time

SCRIPTS = {
    "bash": ("#!/bin/bash\necho hi\n", ["bash", "-c", "echo hi"]),
    "python3": ("#!/usr/bin/env python3\nprint('hi')\n", ["python3", "-c", "print('hi')"]),
    "node": ("#!/usr/bin/env node\nconsole.log('hi')\n", ["node", "-e", "console.log('hi')"]),
    "deno": ("#!/usr/bin/env -S deno run -A\nconsole.log('hi')\n", ["deno", "eval", "console.log('hi')"]),
}
PHASES = ["queued", "prepared", "started", "firstOutput", "ended", "collected", "removed"]


class Connection(http.client.HTTPConnection):
    """An HTTP connection over a unix socket."""

    def __init__(self, path):
        super().__init__("mcpx")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def by_docker(image, argv):
    begin = time.perf_counter()
    p = subprocess.Popen(
        ["docker", "run", "--rm", "--network", "none", "--entrypoint", argv[0], image, *argv[1:]],
        stdout=subprocess.PIPE)
    first = p.stdout.read(1) and time.perf_counter() - begin
    p.stdout.read()
    if p.wait() != 0:
        raise SystemExit(f"docker run {image} exited with {p.returncode}")
    return first * 1000, (time.perf_counter() - begin) * 1000


def by_mcpx(path, source):
    body = json.dumps({"source": source, "options": {"output": "stream"}})
    begin = time.perf_counter()
    c = Connection(path)
    c.request("POST", "/v1/exec", body,
              {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    reply = c.getresponse()
    first, end = None, None
    for line in reply:
        frame = json.loads(line)
        if frame["type"] == "stdout" and first is None:
            first = time.perf_counter() - begin
        if frame["type"] == "end":
            end = frame
    if reply.status != 200 or end is None or end["exitCode"] != 0:
        raise SystemExit(f"mcpx: status {reply.status}, {end}")
    return first * 1000, (time.perf_counter() - begin) * 1000, end["timings"]


def compare(name, path, rounds):
    source, argv = SCRIPTS[name]
    docker, mcpx, phases = [], [], []
    for n in range(rounds + 1):
        d, m = by_docker(f"mcpx/{name}", argv), by_mcpx(path, source)
        if n > 0:  # the first round warms caches
            docker.append(d)
            mcpx.append(m[:2])
            phases.append(m[2])
    median = lambda rows, i: statistics.median(r[i] for r in rows)
    for i, what in enumerate(["first byte", "end"]):
        d, m = median(docker, i), median(mcpx, i)
        print(f"{name:8} {what:10}  docker run {d:7.0f} ms   mcpx {m:7.0f} ms   ratio {m / d:.2f}")
    before = 0.0
    parts = []
    for phase in PHASES:
        at = statistics.median(p.get(phase, 0.0) for p in phases)
        parts.append(f"{phase} +{at - before:.0f}")
        before = at
    print(f"{'':8} phases      {'  '.join(parts)}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--socket", default="/run/mcpx/mcpx.sock")
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("interpreters", nargs="*", default=["bash", "python3", "deno"])
    a = p.parse_args()
    print(f"{a.rounds} rounds in turns, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in a.interpreters or ["bash", "python3", "deno"]:
        compare(name, a.socket, a.rounds)


if __name__ == "__main__":
    main()
