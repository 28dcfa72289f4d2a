#!/bin/bash
# The same from bash.
# expect: from bash: The sum of 40 and 2 is 42.
. "$MCPX_CLIENT"
echo "from bash: $(mcpx_call everything get_sum '{"a": 40, "b": 2}')"
