#!/bin/sh
# What make run does once everything is built: a daemon, the examples on the command line, one script
# over HTTP. Every output is compared with what the example promises.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
socket=$(examples/daemon.sh socket)

title() { printf '\n%s\n' "$*"; }

title "A daemon"
examples/daemon.sh start

title "Scripts on the command line: bin/mcpx run examples/…, each in a fresh container of its own"
examples/check.sh

title "Tools of a real MCP server, called from containers without network"
examples/tools/run.sh

title "A picture, by way of the daemon: bin/mcpx run --remote=unix://$socket examples/picture.py"
bin/mcpx run --remote="unix://$socket" examples/picture.py
bin/mcpx artifacts ls | head -n 2

title "A script over HTTP"
# shellcheck disable=SC2016 # for the bash in the container
body='{"source": "#!/bin/bash\necho hello over HTTP, from bash $BASH_VERSION"}'
printf '%s\n' "curl --unix-socket $socket -H 'Content-Type: application/json' http://mcpx/v1/exec -d '$body'"
curl --silent --show-error --fail-with-body --unix-socket "$socket" \
    -H 'Content-Type: application/json' http://mcpx/v1/exec -d "$body"

cat <<END

To try next:
  bin/mcpx exec '#!/usr/bin/env python3
import platform; print(platform.platform())'
  echo 'console.log(6 * 7)' >/tmp/six.ts && bin/mcpx run /tmp/six.ts
  bin/mcpx run examples/word-count.bash <README.md
  bin/mcpx runs ls
  make stop
END
