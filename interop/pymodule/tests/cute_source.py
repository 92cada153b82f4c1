"""Sources for tests of usmbridge.cute: tensors of any layout, and a check that each one is released."""

import gc

import pytest

import capi
from usmbridge.cute import from_dlpack

ADDRESS = 1 << 40  # no test reads the memory, so any address serves


class Source(capi.Producer):
    """A producer that outlives its tensors and keeps its capsules."""

    made = []

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.capsules = []
        self.made.append(self)

    def capsule(self):
        self.capsules.append(super().capsule())
        return self.capsules[-1]

    def taken(self):
        return sum(capi.name(c).startswith(b"used_") for c in self.capsules)


@pytest.fixture(autouse=True)
def sources():
    """Checks that every tensor that was taken is released once, and that refused ones are left alone."""
    Source.made.clear()
    yield
    gc.collect()
    for p in Source.made:
        assert p.deleted == (p.taken() if p.m.deleter else 0)
    Source.made.clear()


def c_order(shape):
    strides, n = [], 1
    for s in reversed(shape):
        strides.append(n)
        n *= s
    return tuple(reversed(strides))


def tensor(shape, strides=None, width=None, **options):
    """Returns a tensor of float32 of the given layout."""
    return from_dlpack(Source(ADDRESS, shape, c_order(shape) if strides is None else strides), None, width, **options)
