"""The rules in unbounded integers, from the standards and the table of errors in docs/python-exchange.md."""

import itertools
import math

from capi import c_order

MAX64, MIN64 = (1 << 63) - 1, -(1 << 63)

# (code, bits) of DLPack and the array API names.
NAMES = {
    (6, 8): "bool", (0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64",
    (1, 8): "uint8", (1, 16): "uint16", (1, 32): "uint32", (1, 64): "uint64",
    (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
    (5, 32): "complex32", (5, 64): "complex64", (5, 128): "complex128", (4, 16): "bfloat16",
    (7, 8): "float8_e3m4", (8, 8): "float8_e4m3", (9, 8): "float8_e4m3b11fnuz", (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz", (12, 8): "float8_e5m2", (13, 8): "float8_e5m2fnuz", (14, 8): "float8_e8m0fnu",
    (15, 6): "float6_e2m3fn", (16, 6): "float6_e3m2fn", (17, 4): "float4_e2m1fn",
    (0, 1): "int1", (0, 2): "int2", (0, 4): "int4", (1, 1): "uint1", (1, 2): "uint2", (1, 4): "uint4",
}
BITS = {name: bits for (_, bits), name in NAMES.items()}
# Type strings of a dictionary, without the byte order.
TYPESTRS = {"b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64", "u1": "uint8", "u2": "uint16",
            "u4": "uint32", "u8": "uint64", "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64",
            "c16": "complex128"}


class Refused(Exception):
    """kinds: the exceptions, each of which is right."""

    def __init__(self, *kinds):
        super().__init__(kinds)
        self.kinds = kinds


def equal(got, want, what, about=None):
    if got != want:
        raise AssertionError(f"{what}: got {got!r}, want {want!r}" + (f" for {about!r}" if about is not None else ""))


def span(shape, strides, bits):
    """Returns the bytes [lo, hi) relative to the first element; (0, 0) without elements."""
    if 0 in shape:
        return 0, 0
    reach = [stride * (extent - 1) for extent, stride in zip(shape, strides)]
    lo, hi = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return (lo * bits) // 8, -((-(hi + 1) * bits) // 8)


def fits(*numbers):
    return all(MIN64 <= n <= MAX64 for n in numbers)


def layout(shape, strides, bits, error):
    """Refuses layouts that exceed 64 bits."""
    count = math.prod(e for e in shape if e > 0)
    if not fits(count, count * bits):
        raise Refused(error)
    if 0 in shape or strides is None:
        return
    steps = [stride * (extent - 1) for extent, stride in zip(shape, strides) if extent != 1]
    lo, hi = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
    if not fits(lo, hi, lo * bits, hi + 1, (hi + 1) * bits, *steps):
        raise Refused(error)


def step_bits(bits, padded):
    return 8 if bits < 8 and padded else bits


class Facts:
    """The facts that an array must report. address None: undefined; strides None: an empty array without strides, whose
    reported strides can be any."""

    def __init__(self, shape, strides, name, address, readonly, bits):
        self.shape, self.strides, self.name, self.address = shape, strides, name, address
        self.readonly, self.bits = readonly, bits

    def check(self, a, about):
        equal((a.shape, str(a.dtype), a.ndim), (self.shape, self.name, len(self.shape)), "facts", about)
        if self.strides is not None:
            equal(a.strides, self.strides, "strides", about)
        count = math.prod(self.shape)
        equal((a.size, a.nbytes), (count, (count * self.bits + 7) // 8), "size", about)
        equal(a.itemsize, max(1, self.bits // 8), "itemsize", about)
        if self.address is not None:
            equal(a._pointer, self.address, "first element", about)
        if self.readonly is not None:
            equal(a.readonly, self.readonly, "read-only", about)

    def span(self):
        lo, hi = span(self.shape, self.strides, self.bits)
        return (self.address or 0) + lo, (self.address or 0) + hi

    def elements(self, read):
        """Returns the elements in C order as a number, the first in its lowest bits. read(address, n) returns bytes."""
        lo, hi = self.span()
        stored = int.from_bytes(read(lo, hi - lo), "little")
        value = 0
        mask = (1 << self.bits) - 1
        for i, index in enumerate(itertools.product(*map(range, self.shape))):
            at = sum(k * s for k, s in zip(index, self.strides)) * self.bits + (self.address - lo) * 8
            value |= (stored >> at & mask) << i * self.bits
        return value


def tensor(t, roots):
    """Returns the facts of a DLPack tensor, or Refused. t has the fields as they are in memory, with shape and strides
    read if ndim allows it; roots is the number of kDLOneAPI devices. The caller checks the memory at the address."""
    no = BufferError
    if t["versioned"] and t["version"][0] != 1:
        raise Refused(no)
    if not 0 <= t["ndim"] <= 64:
        raise Refused(no)
    kind, index = t["device"]
    if kind not in (1, 14) or index < 0 or (kind == 14 and index >= roots):
        raise Refused(no)
    if t["ndim"] > 0 and t["shape"] is None:
        raise Refused(no)
    shape = tuple(t["shape"] or ())[: t["ndim"]]
    strides = None if t["strides"] is None else tuple(t["strides"])[: t["ndim"]]
    code, bits, lanes = t["dtype"]
    if lanes != 1 or (code, bits) not in NAMES or any(e < 0 for e in shape):
        raise Refused(no)
    flags = t["flags"] if t["versioned"] else 0
    bits = step_bits(bits, flags & 4)
    layout(shape, strides, bits, no)
    if strides is None and 0 not in shape:
        strides = c_order(shape)
    address = None
    if 0 not in shape:
        size = max(1, bits // 8)
        if t["data"] == 0 or t["byte_offset"] % size:
            raise Refused(no)
        address = t["data"] + t["byte_offset"]
        if address >= 1 << 63 or address % size:
            raise Refused(no)
        lo, hi = span(shape, strides, bits)
        if address + lo < 0 or address + hi >= 1 << 63:
            raise Refused(no)
    readonly = bool(flags & 1) if t["versioned"] else None
    return Facts(shape, strides, NAMES[code, t["dtype"][1]], address, readonly, bits)


def outcome(call, allowed, about):
    """Returns the result of call, or None if it raised an allowed exception."""
    try:
        return call()
    except allowed:
        return None
    except BaseException as e:
        raise AssertionError(f"raised {type(e).__name__}: {e}; right are {allowed} for {about!r}") from e


def expect(call, want, about):
    """Checks a result against want: Facts or Refused. Returns the array or None."""
    if isinstance(want, Refused):
        a = outcome(call, want.kinds, about)
        if a is not None:
            raise AssertionError(f"taken, though it must be refused with {want.kinds}: {a.shape, a.strides, str(a.dtype)} for {about!r}")
        return None
    a = outcome(call, (), about)
    want.check(a, about)
    return a


def attempt(model, *args):
    """Returns the facts of a model, or the Refused that it raises."""
    try:
        return model(*args)
    except Refused as r:
        return r
