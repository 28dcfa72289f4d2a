#!/usr/bin/env bash
# stdin: the cat and the hat and the rat
# expect: the 3
# expect: and 2
# expect: cat 1
# The most frequent words of what comes in, most frequent first:
#   mcpx run examples/word-count.bash <README.md
set -euo pipefail
tr -cs '[:alpha:]' '\n' | tr '[:upper:]' '[:lower:]' | grep . | sort | uniq -c |
    sort -k1,1nr -k2 | head -n "${1:-3}" | awk '{ print $2, $1 }'
