"""No way of writing changes a byte outside the elements of a view, whatever its shape and strides."""

import itertools
import types

from conftest import sycl_device
from hypothesis import given, settings
from hypothesis import strategies as st

import usmbridge as ub

SIZE = 640  # room for three axes of 4 elements with strides of 4: 37 elements of 16 bytes
KINDS = ("device", "shared", "host")
DTYPES = ("uint8", "int16", "float32", "float64", "complex128")


def is_full_range(layout):
    """Reports whether as many positions as elements lie between the first and the last position."""
    (m, n), (s, t) = layout
    return (m - 1) * abs(s) + (n - 1) * abs(t) + 1 == m * n


PAIRS = itertools.product(itertools.product((2, 3, 4), repeat=2), itertools.product((-4, -3, -2, 2, 3, 4), repeat=2))
# Elements overlap and leave gaps, although their number is that of the positions in their range.
FULL_RANGE = [pair for pair in PAIRS if is_full_range(pair)]


@st.composite
def layouts(draw, itemsize):
    """Draws shape, strides and offset, in elements, inside SIZE bytes. Elements may overlap."""
    n = SIZE // itemsize
    shape = draw(st.lists(st.integers(1, 4), max_size=3))
    strides = [draw(st.integers(-4, 4)) for _ in shape]
    if draw(st.integers(0, 3)) == 0:
        shape, strides = draw(st.sampled_from(FULL_RANGE))
    reaches = [(d - 1) * s for d, s in zip(shape, strides)]
    lo, hi = sum(min(r, 0) for r in reaches), sum(max(r, 0) for r in reaches)
    return tuple(shape), tuple(strides), draw(st.integers(-lo, n - 1 - hi))


def positions(shape, strides, offset):
    """Yields the position of each element."""
    if not shape:
        yield offset
        return
    for i in range(shape[0]):
        yield from positions(shape[1:], strides[1:], offset + i * strides[0])


def set_all(np, a, values):
    a[...] = values


def set_rows(np, a, values):
    if a.ndim:
        a[::-1] = values


def set_index(np, a, values):
    if a.ndim:
        a[[0]] = 1


def set_mask(np, a, values):
    if a.ndim:
        a[np.arange(a.shape[0]) % 2 == 0] = 1


WRITES = {
    "array": set_all,
    "slice": set_rows,
    "scalar": lambda np, a, values: set_all(np, a, 1),
    "fill": lambda np, a, values: a.fill(1),
    "list": lambda np, a, values: set_all(np, a, values.tolist()),
    "index": set_index,
    "mask": set_mask,
    "in place": lambda np, a, values: a.__iadd__(1),
}


@settings(max_examples=300)
@given(data=st.data())
def test_writes_change_only_elements(np, dpnp, data):
    sycl_device()
    dtype = data.draw(st.sampled_from(DTYPES))
    itemsize = np.dtype(dtype).itemsize
    shape, strides, offset = data.draw(layouts(itemsize))
    kind = data.draw(st.sampled_from(KINDS))
    from_kind = data.draw(st.sampled_from((None, *KINDS)))
    from_type = data.draw(st.sampled_from(["float64" if dtype != "complex128" else dtype, "uint8", dtype]))
    write = data.draw(st.sampled_from(sorted(WRITES)))
    before = np.frombuffer(data.draw(st.randoms(use_true_random=False)).randbytes(SIZE), "uint8").copy()
    base = ub.asarray(before, usm_type=kind)
    d = base.__sycl_usm_array_interface__
    d.update(shape=shape, strides=strides, typestr=np.dtype(dtype).str, data=(d["data"][0] + offset * itemsize, False))
    del d["typedescr"]
    a = ub.asarray(types.SimpleNamespace(keep=base, __sycl_usm_array_interface__=d))
    values = np.ones(shape, from_type)
    if write in ("array", "slice") and from_kind:
        values = ub.asarray(values, usm_type=from_kind)
    try:
        WRITES[write](np, a, values)
    except (TypeError, ValueError):  # dpnp refuses to compute into elements that overlap each other
        assert write in ("in place", "index", "mask")
    inside = np.zeros(SIZE, bool)
    for p in positions(shape, strides, offset):
        inside[p * itemsize : (p + 1) * itemsize] = True
    after = base.asnumpy()
    assert (after == before)[~inside].all(), np.nonzero((after != before) & ~inside)
