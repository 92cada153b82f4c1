"""The size of an Array, for Dask's accounting."""

from __future__ import annotations

import sys
from typing import Any

import usmbridge


def size_of(a: usmbridge.Array) -> int:
    """Returns the bytes of an Array and its elements. Elements that a stride of 0 repeats count once."""
    count = a.nbytes
    for extent, stride in zip(a.shape, a.strides):
        if stride == 0 and extent > 1:
            count //= extent
    return sys.getsizeof(a) + count


def register(sizeof: Any) -> None:
    """Registers size_of with dask.sizeof."""
    sizeof.register(usmbridge.Array)(size_of)
