"""weaken.py LIBRARY VERSION...: marks versions that an ELF64 library needs as weak, so that an older C library loads it."""

import struct
import sys

SHT_GNU_VERNEED, WEAK = 0x6FFFFFFE, 2
path, versions = sys.argv[1], set(sys.argv[2:])
with open(path, "rb") as f:
    image = bytearray(f.read())


def read(offset, layout):
    return struct.unpack_from("<" + layout, image, offset)


(start,) = read(0x28, "Q")
size, count = read(0x3A, "HH")
sections = [read(start + i * size, "IIQQQQII") for i in range(count)]
for section in sections:
    if section[1] != SHT_GNU_VERNEED:
        continue
    names = sections[section[6]][4]
    need = section[4]
    while True:
        _, entries, _, first, following = read(need, "HHIII")
        entry = need + first
        for _ in range(entries):
            _, flags, _, name, step = read(entry, "IHHII")
            if image[names + name : image.index(0, names + name)].decode() in versions:
                struct.pack_into("<H", image, entry + 4, flags | WEAK)
            entry += step
        if not following:
            break
        need += following
with open(path, "wb") as f:
    f.write(image)
