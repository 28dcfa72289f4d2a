#!/usr/bin/env bash
# expect: hello from bash, 3 words: one two three
words=(one two three)
echo "hello from bash, ${#words[@]} words: ${words[*]}"
