#!/usr/bin/env node
// expect: hello from node, squares 1 4 9 16
console.log("hello from node, squares", [1, 2, 3, 4].map((n) => n * n).join(" "));
