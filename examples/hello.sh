#!/bin/sh
# expect: hello from sh, as uid 65532
echo "hello from sh, as uid $(id -u)"
