#!/usr/bin/env -S deno run -A
// expect: hello from TypeScript, area of a 3 by 4 rectangle: 12
interface Rectangle {
  width: number;
  height: number;
}

const area = ({ width, height }: Rectangle): number => width * height;
const field: Rectangle = { width: 3, height: 4 };
console.log(`hello from TypeScript, area of a ${field.width} by ${field.height} rectangle: ${area(field)}`);
