#!/usr/bin/env python3
# expect: reach the network: Network is unreachable
# expect: write to /etc: Read-only file system
# expect: become root: Operation not permitted
# What a script does not get, seen from inside.
import os
import socket


def attempt(what, action):
    try:
        action()
        print(f"{what}: done")
    except OSError as error:
        print(f"{what}: {error.strerror}")


attempt("reach the network", lambda: socket.create_connection(("192.0.2.1", 80), timeout=2))
attempt("write to /etc", lambda: open("/etc/mcpx", "w"))
attempt("become root", lambda: os.setuid(0))
