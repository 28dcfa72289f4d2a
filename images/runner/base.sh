#!/bin/sh
# Makes the base image that every interpreter image is built on, and prints its image ID.
#
#   base.sh [--fresh] [TAG]        TAG defaults to mcpx/base
#
# In this order: the image that is there, a registry's (when one answers), the cached archive of an
# earlier call, a Debian bootstrapped from the package sources of this machine. The archive is loaded
# with a fixed date, so the same packages give the same image ID and the build cache stays valid.
# --fresh makes it anew, for security updates.
#
#   MCPX_BASE   what to pull                          (debian:<codename>-slim; "none" never pulls)
#   MCPX_CACHE  where archives are kept               (/var/cache/mcpx)
#   DOCKER      the docker command                    (docker)
set -eu

pull_seconds=60
date_epoch=1704067200
date_text=2024-01-01T00:00:00Z
docker=${DOCKER:-docker}
cache=${MCPX_CACHE:-/var/cache/mcpx}
system_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

fresh=
if [ "${1-}" = --fresh ]; then fresh=yes; shift; fi
tag=${1:-mcpx/base}

say() { echo "base: $*" >&2; }
die() { say "$*"; exit 1; }

main() {
    [ -n "$fresh" ] || ! present || finish
    codename=$(os_release VERSION_CODENAME)
    archive=$cache/base-${codename:-none}-$(arch).tar
    if pull; then finish; fi
    if [ -z "$fresh" ] && [ -s "$archive" ] && load; then finish; fi
    bootstrap
    load
    finish
}

present() { $docker image inspect "$tag" >/dev/null 2>&1; }

finish() {
    $docker image inspect --format '{{.Id}}' "$tag"
    exit 0
}

# shellcheck disable=SC1091 # the machine's own file
os_release() { (. /etc/os-release && eval "echo \"\${$1-}\"") 2>/dev/null || true; }

arch() {
    case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64 | arm64) echo arm64 ;;
    *) uname -m ;;
    esac
}

# pull gives up fast where no registry can be reached: docker says so within a second.
pull() {
    image=${MCPX_BASE:-debian:$(debian_codename)-slim}
    [ "$image" != none ] || return 1
    timeout "$pull_seconds" "$docker" pull --quiet "$image" >/dev/null 2>&1 || return 1
    $docker tag "$image" "$tag"
    say "pulled $image"
}

debian_codename() {
    if [ "$(os_release ID)" = debian ] && [ -n "$codename" ]; then echo "$codename"; else echo bookworm; fi
}

load() {
    say "loading $archive"
    before=$($docker image inspect --format '{{.Id}}' mcpx/base 2>/dev/null) || before=
    $docker load --quiet --input "$archive" >/dev/null || return 1
    [ "$tag" = mcpx/base ] || $docker tag mcpx/base "$tag"
    [ -z "$before" ] || [ "$before" = "$($docker image inspect --format '{{.Id}}' mcpx/base)" ] ||
        $docker image rm "$before" >/dev/null 2>&1 || true
}

# bootstrap needs root and apt; without them a registry or a copied archive is the only way.
bootstrap() {
    if ! command -v apt-get >/dev/null || [ -z "$codename" ]; then
        die "no registry answers and this is no Debian or Ubuntu: put an image at $tag yourself"
    fi
    [ "$(id -u)" = 0 ] || die "no registry answers, and bootstrapping a Debian needs root"
    need_mmdebstrap
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    host_sources
    say "bootstrapping Debian $codename from this machine's package sources"
    layer
    pack
}

need_mmdebstrap() {
    ! command -v mmdebstrap >/dev/null || return 0
    say "installing mmdebstrap"
    install='apt-get install -y -qq --no-install-recommends mmdebstrap'
    log=$(mktemp)
    DEBIAN_FRONTEND=noninteractive $install >"$log" 2>&1 ||
        { apt-get update -qq >"$log" 2>&1 && DEBIAN_FRONTEND=noninteractive $install >"$log" 2>&1; } ||
        { cat "$log" >&2; die "cannot install mmdebstrap"; }
    rm -f "$log"
}

# host_sources takes the host's entries for its own release and leaves third parties' out, whose keys
# and packages an image has no use for: they name other suites, or have no component main.
host_sources() {
    suites="^$codename(-updates|-security|/updates)?\$"
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        awk -v suites="$suites" '
            BEGIN { RS = ""; ORS = "\n\n"; FS = "\n" }
            function names(line, pattern,    word, n, i) {
                n = split(line, word, /[ \t]+/)
                for (i = 2; i <= n; i++) if (word[i] ~ pattern) return 1
                return 0
            }
            { suite = 0; main = 0; on = 1
              for (i = 1; i <= NF; i++) {
                  if ($i ~ /^Suites:/ && names($i, suites)) suite = 1
                  if ($i ~ /^Components:/ && names($i, "^main$")) main = 1
                  if ($i ~ /^Enabled:[ \t]*no/) on = 0
              }
              if (suite && main && on) print }' "$file"
    done >"$work/host.sources"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        awk -v suites="$suites" '
            $1 == "deb" { entry = $0; sub(/\[[^]]*\]/, "")
                if ($3 ~ suites && / main( |$)/) print entry }' "$file"
    done >"$work/host.list"
    [ -s "$work/host.sources" ] || [ -s "$work/host.list" ] || die "no package source for $codename in /etc/apt"
}

# layer writes the root file system. Its directory lies in memory when that is large enough; the PATH
# is the system's because the packages' scripts must not meet a python or perl of somebody's own.
layer() {
    sources=
    for file in "$work/host.sources" "$work/host.list"; do [ ! -s "$file" ] || sources="$sources $file"; done
    include=usr-is-merged
    ! grep -q https: "$work/host.sources" "$work/host.list" || include=$include,ca-certificates
    cat >"$work/slim" <<'END'
#!/bin/sh
# Leaves out what no script reads, now and in every later installation, and spares dpkg's syncs:
# a build that a power cut ends is built again anyway.
set -eu
cat >"$1/etc/dpkg/dpkg.cfg.d/mcpx-slim" <<'CFG'
path-exclude /usr/share/doc/*
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/lintian/*
CFG
echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/mcpx-fast"
for dir in doc man info locale lintian; do rm -rf "$1/usr/share/$dir"; mkdir "$1/usr/share/$dir"; done
rm -rf "$1"/var/cache/* "$1"/var/log/*
rm -f "$1/etc/resolv.conf" "$1/etc/hostname"
END
    chmod +x "$work/slim"
    room=$(mktemp -d -p "$(roomy)")
    trap 'rm -rf "$work" "$room"' EXIT
    # shellcheck disable=SC2086 # a list of files without blanks in their names
    env PATH="$system_path" TMPDIR="$room" SOURCE_DATE_EPOCH="$date_epoch" mmdebstrap --quiet --variant=minbase --mode=root \
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include="$include" --aptopt='APT::Install-Recommends "false"' \
        --customize-hook="$work/slim" "$codename" "$work/layer.tar" $sources >"$work/log" 2>&1 ||
        { tail -n 30 "$work/log" >&2; die "mmdebstrap did not finish"; }
}

roomy() {
    free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
    if [ "${free:-0}" -gt 1048576 ]; then echo /dev/shm; else echo "${TMPDIR:-/tmp}"; fi
}

# pack wraps the layer as docker load wants it. docker import would stamp the time and give a new ID.
pack() {
    diff=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
    cat >"$work/config.json" <<END
{"architecture":"$(arch)","os":"linux","created":"$date_text",
"config":{"Env":["PATH=$system_path"],"Cmd":["/bin/sh"]},
"rootfs":{"type":"layers","diff_ids":["sha256:$diff"]},
"history":[{"created":"$date_text","created_by":"mcpx base.sh"}]}
END
    echo '[{"Config":"config.json","RepoTags":["mcpx/base:latest"],"Layers":["layer.tar"]}]' >"$work/manifest.json"
    mkdir -p "$cache"
    tar -C "$work" -cf "$archive.$$" manifest.json config.json layer.tar
    mv "$archive.$$" "$archive"
}

main
