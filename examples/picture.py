#!/usr/bin/env python3
# expect: picture.png, 480 x 320
# Draws a Julia set with nothing but the standard library, and leaves it in the outbox. What a script
# puts there outlives its container: mcpx artifacts ls
import os
import struct
import zlib

WIDTH, HEIGHT, DEPTH = 480, 320, 96
C = complex(-0.7885, 0.155)


def escape(z):
    """Yields how long z takes to leave, from 0 to 1, without steps."""
    for n in range(DEPTH):
        size = z.real * z.real + z.imag * z.imag
        if size > 64:
            return (n - (size - 64) / size) / DEPTH
        z = z * z + C
    return 1.0


def colour(t):
    """Night blue over amber to white."""
    stops = [(8, 10, 40), (30, 60, 130), (240, 160, 60), (255, 250, 230), (8, 10, 40)]
    at = min(t, 0.9999) ** 0.6 * (len(stops) - 1)
    low, share = int(at), at % 1
    return bytes(round(a + (b - a) * share) for a, b in zip(stops[low], stops[low + 1]))


def row(y):
    line = bytearray(b"\0")
    for x in range(WIDTH):
        line += colour(escape(complex((x - WIDTH / 2) / 150, (y - HEIGHT / 2) / 150)))
    return bytes(line)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png():
    # The set is the same after half a turn, so the lower half is the upper one backwards.
    top = [row(y) for y in range(HEIGHT // 2 + 1)]
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    rows = top + [turned(line) for line in reversed(top[1 : HEIGHT // 2])]
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"".join(rows), 9))
        + chunk(b"IEND", b"")
    )


def turned(line):
    pixels = [line[i : i + 3] for i in range(1, len(line), 3)]
    # Pixel x lies opposite of WIDTH - x; column 0 has no partner inside and takes its neighbour's.
    return b"\0" + pixels[1] + b"".join(reversed(pixels[1:]))


with open(os.path.join(os.environ["MCPX_OUTBOX"], "picture.png"), "wb") as file:
    file.write(png())
print(f"picture.png, {WIDTH} x {HEIGHT}")
