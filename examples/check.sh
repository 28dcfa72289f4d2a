#!/bin/sh
# Runs examples and compares what they print with what their "expect:" lines promise.
#
#   examples/check.sh [--local] [FILE...]     all of them without FILE
#
# --local leaves a running daemon and the usual state directory alone.
# MCPX names the program (bin/mcpx). A "stdin:" line is what an example reads.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mcpx=${MCPX:-$here/../bin/mcpx}

main() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [ "${1-}" = --local ]; then
        shift
        export MCPX_EXEC_WHERE=local MCPX_STATE="$work/state"
    fi
    [ -x "$mcpx" ] || { echo "check: there is no $mcpx: make build" >&2; exit 1; }
    # shellcheck disable=SC2046 # our own files, without blanks in their names
    [ $# -gt 0 ] || set -- $(examples)
    failed=0
    for file in "$@"; do one "$file" || failed=$((failed + 1)); done
    [ "$failed" = 0 ] || { echo "check: $failed of $# examples differ" >&2; exit 1; }
}

# examples are the files that promise something.
examples() { grep -l '^[#/-]* expect: ' "$here"/*.*; }

one() {
    promised expect "$1" >"$work/want"
    promised stdin "$1" >"$work/in"
    code=0
    "$mcpx" run "$1" <"$work/in" >"$work/got" 2>"$work/err" || code=$?
    if [ "$code" = 0 ] && cmp -s "$work/want" "$work/got"; then
        printf '%-16s %s\n' "$(basename "$1")" "$(tail -n 1 "$work/got")"
        return
    fi
    echo "$(basename "$1"): exit code $code; expected and got:"
    diff "$work/want" "$work/got" || true
    cat "$work/err"
    return 1
}

promised() { sed -n "s|^[#/-]* $1: ||p" "$2"; }

main "$@"
