#!/bin/sh
# Starts and stops a daemon in the background, for make run and for trying things out.
#
#   examples/daemon.sh start     one that answers is left alone, unless it is an older build of ours
#   examples/daemon.sh stop
#   examples/daemon.sh socket    prints the path of its socket
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mcpx=$here/../bin/mcpx
patience=30
[ -x "$mcpx" ] || { echo "daemon: there is no bin/mcpx: make build" >&2; exit 1; }
settings=$("$mcpx" settings)
state=$(echo "$settings" | sed -n 's|^state  *\([^ ]*\).*|\1|p')
socket=$(echo "$settings" | sed -n 's|^listen .*unix://\([^ ,]*\).*|\1|p')
pidfile=$state/daemon.pid
log=$state/daemon.log

say() { echo "daemon: $*" >&2; }
die() { say "$*"; exit 1; }

[ -n "$socket" ] || die "the setting listen names no unix socket"

answers() { curl --silent --fail --max-time 5 --output /dev/null --unix-socket "$socket" http://mcpx/healthz 2>/dev/null; }

# ours is the process that start began, if it lives and is an mcpx still.
ours() {
    pid=$(cat "$pidfile" 2>/dev/null) || return 1
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = mcpx ]
}

start() {
    command -v curl >/dev/null || die "there is no curl on PATH: install it"
    if answers; then
        if ! ours || cmp -s "/proc/$pid/exe" "$mcpx"; then return; fi
        say "the one that runs is an older build"
        stop
    fi
    mkdir -p "$state"
    setsid nohup "$mcpx" serve >>"$log" 2>&1 </dev/null &
    pid=$!
    echo "$pid" >"$pidfile"
    until_deadline answers_or_ended || die "it does not answer: see $log"
    answers || { tail -n 5 "$log" >&2; die "it ended: see $log"; }
    say "listens on $socket (log: $log)"
}

answers_or_ended() { answers || ! kill -0 "$pid" 2>/dev/null; }

stop() {
    if ! ours; then say "none that was started here is running"; return; fi
    kill "$pid"
    until_deadline ended || die "process $pid does not end: see $log"
    rm -f "$pidfile"
    say "ended"
}

ended() { ! ours; }

until_deadline() {
    deadline=$(($(date +%s) + patience))
    until "$1"; do
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}

case ${1-} in
start) start ;;
stop) stop ;;
socket) echo "$socket" ;;
*) die "start, stop or socket" ;;
esac
