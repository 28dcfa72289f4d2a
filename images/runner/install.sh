#!/bin/sh
# Runs while an image is built: installs Debian packages, leaves no lists, caches or logs behind, and
# takes the setuid and setgid bits off every file, for no script needs to become somebody else.
set -eu
export DEBIAN_FRONTEND=noninteractive
if [ $# -gt 0 ]; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@" </dev/null
    apt-get clean
fi
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/* /tmp/* /var/tmp/*
find / -xdev -type f -perm /6000 -exec chmod a-s {} +
