#!/usr/bin/env bun
// expect: hello from bun, levels low=0 high=1
enum Level {
  low,
  high,
}

console.log(`hello from bun, levels low=${Level.low} high=${Level.high}`);
