#!/bin/sh
# Installs the servers of package-lock.json into the directory $1, once.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ -e "$1/node_modules/.complete" ] && exit 0
mkdir -p "$1"
cp "$here/package.json" "$here/package-lock.json" "$1/"
cd "$1"
npm ci --ignore-scripts --no-audit --no-fund
touch node_modules/.complete
