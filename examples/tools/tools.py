#!/usr/bin/env python3
# Calls a tool of a real MCP server, from a container that has no network.
# expect: from Python: The sum of 40 and 2 is 42.
from mcpx import tools

print("from Python:", tools.everything.get_sum(a=40, b=2))
