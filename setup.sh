#!/bin/sh
# Prepares a bare machine. Each call finds what is there first, so it may be repeated at no cost.
#
#   ./setup.sh docker    a Docker engine that answers: the one of DOCKER_HOST or the default socket,
#                        else Debian's docker.io, installed and started (needs root and apt)
#   ./setup.sh go        a Go that can build this tree
#   ./setup.sh chromium  a Chromium for the tests that drive one (likewise)
#   ./setup.sh crun      crun, with which the engine oci makes containers without Docker (likewise)
#   ./setup.sh compose   docker compose or docker-compose (likewise)
#   ./setup.sh           go and docker
set -eu

here=$(cd "$(dirname "$0")" && pwd)
log=${MCPX_DOCKERD_LOG:-/var/log/dockerd.log}
patience=60

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

main() {
    [ $# -gt 0 ] || set -- go docker
    for part in "$@"; do
        case $part in
        docker) docker_engine ;;
        go) go_tools ;;
        chromium) chromium_browser ;;
        crun) oci_runtime ;;
        compose) compose_command ;;
        *) die "unknown part '$part': docker, go, chromium, crun or compose" ;;
        esac
    done
}

docker_engine() {
    if answers; then return; fi
    [ -z "${DOCKER_HOST-}" ] || die "no docker engine answers at DOCKER_HOST=$DOCKER_HOST: start it, or unset DOCKER_HOST"
    [ "$(id -u)" = 0 ] || die "no docker engine answers: start one that this user may reach (the group docker), or run ./setup.sh docker as root"
    if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then install_docker; fi
    start_docker
}

answers() { command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; }

install_docker() {
    if ! command -v apt-get >/dev/null || ! grep -Eq '^(ID|ID_LIKE)=.*(debian|ubuntu)' /etc/os-release; then
        die "no docker engine answers and this is no Debian or Ubuntu: install Docker 20.10 or newer and start it"
    fi
    say "installing docker.io"
    packages docker.io
}

# packages asks the lists that are there first and fetches new ones only when those do not do.
packages() {
    out=$(mktemp)
    try_packages "$@" >"$out" 2>&1 || { apt-get update -qq >"$out" 2>&1 && try_packages "$@" >"$out" 2>&1; } ||
        { tail -n 20 "$out" >&2; rm -f "$out"; die "apt cannot install $*: see above"; }
    rm -f "$out"
}

try_packages() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null; }

start_docker() {
    say "starting dockerd (log: $log)"
    if [ -d /run/systemd/system ]; then
        systemctl start docker || die "systemctl start docker did not succeed: see journalctl -u docker"
        await_docker ''
        return
    fi
    stale /var/run/docker.pid dockerd
    stale /var/run/docker/containerd/containerd.pid containerd
    setsid nohup dockerd >>"$log" 2>&1 </dev/null &
    await_docker $!
}

# stale removes a pid file of an earlier life, whose number may belong to another program by now.
stale() { # file program
    [ -f "$1" ] || return 0
    if [ "$(cat "/proc/$(cat "$1")/comm" 2>/dev/null)" != "$2" ]; then rm -f "$1"; fi
}

await_docker() { # pid, when dockerd is our child
    deadline=$(($(date +%s) + patience))
    until answers; do
        if [ -n "$1" ] && ! kill -0 "$1" 2>/dev/null; then
            tail -n 5 "$log" >&2
            die "dockerd ended: see $log"
        fi
        [ "$(date +%s)" -lt "$deadline" ] || die "dockerd does not answer after $patience s: see $log"
        sleep 0.2
    done
}

go_tools() {
    want=$(awk '$1 == "go" { print $2 }' "$here/go.mod")
    command -v go >/dev/null || die "there is no go on PATH: install Go $want or newer (https://go.dev/dl)"
    have=$(cd "$here" && go env GOVERSION) || die "this Go does not do: install Go $want or newer (https://go.dev/dl)"
    oldest=$(printf '%s\n' "$want" "${have#go}" | sort -V | head -n 1)
    [ "$oldest" = "$want" ] || die "Go is ${have#go} and go.mod wants $want: install that or newer (https://go.dev/dl)"
    if command -v cc >/dev/null || command -v gcc >/dev/null; then return; fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        die "there is no C compiler, which SQLite is built with: install gcc and the C library's headers"
    fi
    say "installing gcc"
    packages gcc libc6-dev
}

chromium_browser() {
    if command -v chromium >/dev/null; then return; fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        die "there is no chromium: install the package chromium"
    fi
    say "installing chromium"
    packages chromium
}

oci_runtime() {
    if command -v crun >/dev/null; then return; fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        die "there is no crun: install it (crun 1.8 or newer)"
    fi
    say "installing crun"
    packages crun
}

compose_command() {
    if docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; then return; fi
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        die "there is no compose: install the compose plugin of docker, or docker-compose"
    fi
    say "installing docker-compose"
    packages docker-compose
}

main "$@"
