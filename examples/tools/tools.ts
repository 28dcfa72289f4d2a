// The same from TypeScript. A snippet needs no import: the server is a global, and await may stand anywhere.
// expect: from TypeScript: The sum of 40 and 2 is 42.
const sum: string = await everything.get_sum({ a: 40, b: 2 });
console.log("from TypeScript:", sum);
