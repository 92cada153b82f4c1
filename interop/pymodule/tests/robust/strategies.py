"""Examples: literals that can be printed, read and run again.

Each generator is a function of a random.Random."""

import usmbridge as ub
from robust import oracles

WILD = [1 << 31, 1 << 32, 1 << 61, 1 << 62, (1 << 63) - 1, -1, -2, -(1 << 31), -(1 << 62), -(1 << 63), (1 << 60) - 1, 1 << 60]


def rarely(r, n):
    """Returns True once in n times."""
    return r.randrange(n) == n - 1


def int64(r):
    return r.randrange(-(1 << 63), 1 << 63) >> r.choice([0, 0, 8, 30, 40, 56])


def uint64(r):
    return r.randrange(1 << 64) >> r.choice([0, 0, 8, 30, 50])


def wild(r):
    return r.choice(WILD) if r.randrange(2) else int64(r)


def small_or_wild(r, lo, hi, n):
    return wild(r) if rarely(r, n) else r.randint(lo, hi)


def extent(r):
    return small_or_wild(r, 0, 5, 40)


def stride(r):
    return small_or_wild(r, -6, 12, 40)


def dtype(r):
    if not rarely(r, 7):
        return (*r.choice(list(oracles.NAMES)), 1)
    bits = r.choice([1, 4, 8, 16, 32, 64, 128, r.randrange(256)])
    return r.choice([r.randrange(20), r.randrange(256)]), bits, r.choice([1, 1, 0, 2, 65535])


def times(r, n, one):
    return tuple(one(r) for _ in range(n))


def shape_and_strides(r):
    """Returns a shape, and strides or None; up to 64 axes, mostly few."""
    n = r.choice([5, 8, 63, 64]) if rarely(r, 14) else r.randint(0, 4)
    if n > 8:  # mostly ones: larger products are invalid anyway
        shape, strides = [1] * n, [1] * n
        for _ in range(r.randint(0, 3)):
            i = r.randrange(n)
            shape[i], strides[i] = extent(r), stride(r)
        return tuple(shape), r.choice([None, tuple(strides)])
    shape = times(r, n, extent)
    style = r.randint(0, 4)
    if style == 0 or style < 3 and any(abs(e) >= 1 << 20 for e in shape):
        return shape, None
    if style == 1:
        return shape, oracles.c_order(shape)
    if style == 2:
        return shape, tuple(reversed(oracles.c_order(tuple(reversed(shape)))))
    return shape, times(r, n, stride)


class Number:
    """An integer by __index__ alone. An action runs code or gives another result."""

    def __init__(self, value, action=None):
        self.value, self.action = value, action

    def __index__(self):
        if self.action == "raise":
            raise LookupError("mine")
        if self.action == "collect":
            ub.zeros(3, device="host")
        return "5" if self.action == "text" else self.value


class Truth(Number):
    def __bool__(self):
        return bool(self.__index__())


# The fields of a tensor in the window; tensor_fields draws others.
TENSOR = {"place": "window", "versioned": True, "version": (1, 3), "flags": 0, "at": 0, "data": None, "byte_offset": 0, "device": None, "ndim": None,
          "dtype": (2, 32, 1), "shape": (2, 3), "strides": None, "shape_null": False, "deleter": "count", "destructor": True}
DELETERS = ["count", "count", "count", "null", "reenter", "raise", "collect"]
DEVICES = [1, 14, 14, 0, -1, 2, 3, 4, 13, 1 << 30]


def tensor_fields(r, places):
    """Returns the fields of a DLPack tensor and its deleter. at is relative to the place; data, if given, is not."""
    shape, strides = shape_and_strides(r)
    return {
        "place": r.choice(places), "versioned": bool(r.randrange(2)),
        "version": (r.choice([0, 1, 1, 2, 0xFFFFFFFF]), r.choice([0, 3, 0xFFFFFFFF])) if rarely(r, 10) else (1, 3),
        "flags": uint64(r) if rarely(r, 8) else r.randrange(8),
        "at": r.randint(-16, 4112) if rarely(r, 5) else r.randint(0, 64) * 16,
        "data": r.choice([0, uint64(r), 1, 16, (1 << 64) - 16, 1 << 63]) if rarely(r, 14) else None,
        "byte_offset": r.choice([r.randint(0, 64), uint64(r)]) if rarely(r, 5) else 0,
        "device": (r.choice(DEVICES), r.choice([0, 0, 1, -1, 99, (1 << 31) - 1])) if rarely(r, 10) else None,
        "ndim": r.choice([-1, 65, 1 << 30, -(1 << 31)]) if rarely(r, 25) else None,
        "dtype": dtype(r), "shape": shape, "strides": strides, "shape_null": rarely(r, 25),
        "deleter": r.choice(DELETERS), "destructor": bool(r.randrange(2)),
    }
