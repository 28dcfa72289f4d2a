#!/bin/sh
# Brings the daemon up under compose, runs scripts through it, takes it down, and looks for what is left.
# It uses a state directory and a project name of its own and disturbs no other daemon.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
project=mcpxcomposetest
patience=60
MCPX_STATE=${MCPX_STATE:-/var/lib/mcpx-compose-test}
export MCPX_STATE

say() { echo "compose-test: $*" >&2; }
die() { say "$*"; exit 1; }

main() {
    [ -x bin/mcpx ] || die "there is no bin/mcpx: make build"
    [ ! -e "$MCPX_STATE" ] || die "$MCPX_STATE exists: remove it, or set MCPX_STATE to another directory"
    find_compose
    trap 'down; rm -rf "$MCPX_STATE"' EXIT
    compose up --detach --build || die "the daemon did not come up"
    await_healthy
    runs=
    # shellcheck disable=SC2016 # for the bash in the container
    check '#!/bin/bash\necho bash $((6 * 7))' 'bash 42'
    check '#!/usr/bin/env python3\nprint(\"python\", 6 * 7)' 'python 42'
    down || die "compose down did not succeed"
    trap 'rm -rf "$MCPX_STATE"' EXIT
    nothing_left
    say "up, two runs, down, nothing left"
}

find_compose() {
    ./setup.sh compose
    if docker compose version >/dev/null 2>&1; then compose='docker compose'; else compose=docker-compose; fi
}

compose() {
    # shellcheck disable=SC2086 # one word or two
    $compose --project-name "$project" --file compose.yaml "$@"
}

down() { compose down --timeout 45 --remove-orphans --volumes; }

await_healthy() {
    container=$(compose ps -q mcpx)
    deadline=$(($(date +%s) + patience))
    until [ "$(health)" = healthy ]; do
        [ "$(date +%s)" -lt "$deadline" ] || { docker logs --tail 20 "$container" >&2; die "the daemon is $(health) after $patience s"; }
        sleep 0.5
    done
}

health() { docker inspect --format '{{.State.Health.Status}}' "$container"; }

check() { # source expected
    reply=$(curl --silent --show-error --max-time 60 --unix-socket "$MCPX_STATE/mcpx.sock" \
        -H 'Content-Type: application/json' http://mcpx/v1/exec -d "{\"source\": \"$1\"}")
    case $reply in
    *"\"$2\\n\""*) ;;
    *) die "expected '$2' and got: $reply" ;;
    esac
    runs="$runs $(printf '%s' "$reply" | sed -n 's/.*"runId": *"\([^"]*\)".*/\1/p')"
}

nothing_left() {
    for run in $runs; do
        left=$(docker ps --all --quiet --filter "label=mcpx.run=$run")
        [ -z "$left" ] || die "run $run left container $left"
    done
    for kind in container network volume; do
        left=$(docker "$kind" ls --quiet --filter "label=com.docker.compose.project=$project")
        [ -z "$left" ] || die "compose left a $kind: $left"
    done
    ! grep " $MCPX_STATE" /proc/self/mounts || die "a mount is left"
    left=$(find "$MCPX_STATE" -type s -o -path "$MCPX_STATE/run/*" -print)
    [ -z "$left" ] || die "left in the state directory: $left"
}

main
