"""Writing elements, a[index] = value and fill. robust/test_values.py and robust/test_twins.py compare them with NumPy."""

import itertools
import random
import types

import pytest
from conftest import DTYPES, places, sycl_device
from hypothesis import given, settings
from hypothesis import strategies as st

import usmbridge as ub


def test_overlap_through_another_type(np):
    for where in places(["device", "shared"]):
        a, x = ub.asarray(np.arange(8), copy=True, **where), np.arange(8)
        a[:4] = a.view("int32")[8:12]
        x[:4] = x.view("int32")[8:12].copy()
        assert a.tolist() == x.tolist()
        a.reshape(4, 2)[:2] = a.reshape(4, 2)[:2].T
        assert a[:4].tolist() == x[:4].reshape(2, 2).T.reshape(4).tolist()


def test_packed_elements_at_any_place(np):
    for dtype, low, high in (("int4", -8, 7), ("uint2", 0, 3), ("int1", -1, 0), ("float6_e2m3fn", -7.5, 7.5), ("float4_e2m1fn", -6.0, 6.0)):
        for where in places(["device", "shared"]):
            a = ub.zeros((3, 8), dtype, **where)
            want = [[0] * 8 for _ in range(3)]
            r = random.Random(2)
            for i in range(30):
                k, j = r.randrange(3), r.randrange(8)
                want[k][j] = r.choice([low, high, 0])
                a[k, j] = want[k][j]
                assert a.tolist() == want and a.item(k, j) == want[k][j]
            a[1, 1:8:3] = [high, low, high]
            want[1][1:8:3] = [high, low, high]
            a[:, 5] = low
            for row in want:
                row[5] = low
            a[2, ::-1] = a[1]
            want[2] = want[1][::-1]
            assert a.tolist() == want
            a.fill(high)
            assert a.tolist() == [[high] * 8] * 3


def test_fill(np):
    for where in places(["device", "shared"]):
        for dtype in DTYPES:
            a = ub.zeros((3, 4), dtype, **where)
            for value in (1, np.int8(0), ub.asarray(1, dtype=dtype), np.array(0), True):
                assert a[:, ::2].fill(value) is None and a.tolist() == [[value, 0] * 2] * 3, (where, dtype)
        for dtype in ("float32", "bool"):
            a = ub.zeros((3, 4), dtype, **where)
            for bad in ([1, 2], [[1]], np.zeros(3), "x", None, object()):
                with pytest.raises((TypeError, ValueError)):
                    a.fill(bad)
            for bad in ("x", None, object(), ["x"], [None], {}):  # also for bool, to which NumPy writes their truth
                for key in (..., 0, (1, 2), [0, 1]):
                    with pytest.raises(TypeError):
                        a[key] = bad
        with pytest.raises(OverflowError):
            ub.zeros(2, "int8", **where).fill(200)
    ub.zeros((0, 3)).fill(5)
    one = np.array([0x7FA00001], "uint32").view("float32")  # a signalling NaN keeps its bits
    for where in places(["device", "shared"]):
        a = ub.zeros(5, "float32", **where)
        a[:] = one
        assert (a.asnumpy().view("uint32") == 0x7FA00001).all()


def test_refusals(np):
    x = np.arange(3.0)
    x.flags.writeable = False
    for a in (ub.asarray(x), ub.zeros(3).as_readonly(), ub.zeros(3, device="host").as_readonly()[1:]):
        before = a.tolist()
        for f in (lambda: a.__setitem__(0, 1), lambda: a.fill(1), lambda: a.__setitem__(..., a)):
            with pytest.raises(ValueError, match="read-only"):
                f()
        assert a.tolist() == before
    a = ub.zeros((2, 3), device="host")
    with pytest.raises(ValueError, match="deleted"):
        del a[0]
    for key in (5, (0, 0, 0), "x", 1.5, [0], (..., ...), None and 0):
        with pytest.raises((IndexError, TypeError, ValueError)):
            a[key] = "never"
    for value in ([1, 2], np.zeros((3, 2, 3)), np.zeros((1, 2, 2, 3))):
        with pytest.raises(ValueError):
            a[0] = value
    assert a.tolist() == [[0.0] * 3] * 2


def test_values_that_write_to_the_array(np):
    a = ub.zeros((2, 3), device="host")

    class Row:
        """A sequence that changes while it is read."""

        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i == 3:
                raise IndexError
            a.fill(9)
            return i

    a[0] = Row()
    assert a.tolist() == [[0, 1, 2], [9, 9, 9]]


def test_other_libraries_write_and_are_written(np, dpt):
    a = ub.zeros((2, 3), "float64")
    a[0] = dpt.asarray([1.0, 2.0, 3.0])
    a[1] = memoryview(np.arange(3.0))
    assert a.tolist() == [[1, 2, 3], [0, 1, 2]]
    x = np.zeros((2, 3))
    ub.asarray(x)[:, 1] = a[0, :2]
    assert x.tolist() == [[0, 1, 0], [0, 2, 0]]


def test_values_that_overlap_and_leading_axes(np):
    """By index arrays and masks too, a value may share memory with the Array, and may have more axes of one element."""
    one = np.ones((1, 1, 2), "int64")
    for place in places():
        for key, value in (([1, 0], lambda a: a[1:]), (np.array([True, False, True]), lambda a: a[1:]), ([0, 1, 2], lambda a: a[::-1]),
                           (slice(None), lambda a: a[::-1]), ([0, 1], lambda a: one), (slice(0, 2), lambda a: one)):
            n = np.array([1, 2, 3])
            a = ub.asarray(n, **place, copy=True)
            a[key] = value(a)
            n[key] = value(n)
            assert a.tolist() == n.tolist(), (place, key)
        rows, mask = np.zeros((3, 2), "int64"), np.array([True, False, True])
        a = ub.asarray(rows, **place, copy=True)
        a[mask] = rows[mask] = np.array([[[1], [2]]])
        assert a.tolist() == rows.tolist(), place


# ---- no way of writing changes a byte outside the elements of a view ------------------------------------

SIZE = 640  # room for three axes of 4 elements with strides of 4: 37 elements of 16 bytes
KINDS = ("device", "shared", "host")


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
    dtype = data.draw(st.sampled_from(("uint8", "int16", "float32", "float64", "complex128")))
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
