#!/bin/sh
# Runs the scripts of this directory with a real MCP server from npm, and compares what they print with what
# they promise. Without npm it says so, for everything else works without.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
server=@modelcontextprotocol/server-everything@2026.8.31
if [ "$(id -u)" = 0 ]; then cache=/var/cache/mcpx; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/mcpx; fi
at=${MCPX_CACHE:-$cache}/servers

if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    echo "tools: there is no npm, which brings the MCP server of these examples; they are left out"
    exit 0
fi
if [ ! -e "$at/$server.done" ]; then
    mkdir -p "$at"
    npm install --prefix "$at" --ignore-scripts --no-audit --no-fund --silent "$server"
    mkdir -p "$(dirname "$at/$server.done")"
    : >"$at/$server.done"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/servers.json" <<END
{"mcpServers": {"everything": {"command": "node", "args": ["$at/node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"]}}}
END
MCPX_MCP_CONFIG="$work/servers.json" "$here/../check.sh" "$@" "$here"/tools.*
