#!/usr/bin/env lua
-- expect: hello from lua, 10! is 3628800
local function factorial(n)
  return n < 2 and 1 or n * factorial(n - 1)
end

print("hello from lua, 10! is " .. factorial(10))
