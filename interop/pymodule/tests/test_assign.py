"""Writing elements, a[index] = value and fill, compared with NumPy."""

import random

import pytest
from conftest import places

import usmbridge as ub

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


def outcome(f):
    try:
        f()
    except Exception as e:
        return type(e)


def test_values_as_numpy(np):
    values = [0, 1, -1, 300, True, 2.7, -2.7, 1 + 2j, float("nan"), float("inf"), np.float32(1.5), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), [1, 2, 3], (4, 5, 6),
              [[1], [2]], [1.5, 2, True], [[7, 8, 9]], [[[1, 2, 3]]], np.arange(3), np.arange(6.0).reshape(2, 3), np.arange(2)[:, None], [], [1, 2], np.zeros((2, 2)),
              [np.arange(3), np.arange(3) + 0.5], np.arange(3)[::-1], "x", None, object(), 1 << 70, np.zeros((3, 2, 3)), range(3)]
    keys = [slice(None), ..., (0,), (slice(None), 1), (1, 2), (slice(None, None, -1),), (slice(None), slice(0, 0)), (None, 0), (slice(None), slice(None, None, 2))]
    for where in places(["device", "shared"]):
        for dtype in ("float32", "int8", "uint8", "int64", "bool", "complex64", "float16", "uint64"):
            for value in values:
                for key in keys:
                    x = np.arange(6).reshape(2, 3).astype(dtype)
                    a = ub.asarray(x, copy=True, **where)
                    with np.errstate(all="ignore"):
                        want = outcome(lambda: x.__setitem__(key, value))
                    got = outcome(lambda: a.__setitem__(key, value))
                    say = where, dtype, value, key, want, got
                    is_complex = np.iscomplexobj(value) and not dtype.startswith("complex") and dtype != "bool"
                    if dtype == "bool" and x[key].ndim == 0 and isinstance(value, (list, tuple, range)) or dtype == "bool" and got is TypeError:
                        pass  # NumPy uses the truth value of any object
                    elif is_complex:
                        assert got in (TypeError, ValueError) or x[key].size == 0, say
                    elif isinstance(value, float) and value != value and dtype not in ("float32", "complex64", "bool", "float16"):
                        assert got is want is ValueError, say
                    elif want and isinstance(value, list) and np.ndim(value) > x[key].ndim and np.shape(value)[0] == 1:
                        pass  # leading axes of extent 1: NumPy ignores them in an array, but not in a list
                    elif isinstance(value, np.uint64):
                        pass  # wraps as an array's elements do; NumPy converts its scalars by C's long
                    elif want:
                        assert got and issubclass(got, (want, TypeError, ValueError, OverflowError)), say
                    elif isinstance(value, str):
                        assert got is TypeError, say
                    elif isinstance(value, float) and abs(value) == float("inf") and dtype[0] in "iu" or value is None:
                        assert got, say
                    elif dtype == "uint8" and isinstance(value, (float, np.floating)) and value < 0 or dtype[0] == "u" and isinstance(value, np.int8):
                        pass  # a negative number in an unsigned type: NumPy leaves it to C, or wraps
                    elif dtype in ("uint64",) and isinstance(value, float) and value < 0:
                        pass
                    else:
                        assert not got, say
                        assert np.array_equal(a.asnumpy(), x, equal_nan=x.dtype.kind in "fc"), (say, a, x)


def test_all_types_of_source(np):
    for where in places(["device", "shared"]):
        for source in DTYPES:
            for target in DTYPES:
                y = np.array([0, 1, 1, 100]).astype(source)
                x = np.zeros((2, 4), target)
                a = ub.zeros((2, 4), target, **where)
                if source.startswith("complex") and not target.startswith(("complex", "bool")):
                    with pytest.raises(TypeError):
                        a[1] = y
                    continue
                for value in (y, ub.asarray(y), ub.asarray(y, **where)):
                    a[:, ::-1] = value
                    x[:, ::-1] = y
                    assert np.array_equal(a.asnumpy(), x), (where, source, target)


def test_overlap_of_source_and_target(np):
    r = random.Random(5)
    for where in places(["device", "shared"]):
        for _ in range(60):
            shape = [r.randint(1, 6) for _ in range(r.randint(1, 3))]
            x = np.arange(np.prod(shape), dtype="int32").reshape(shape)
            a = ub.asarray(x, copy=True, **where)
            cut = [tuple(slice(r.choice([None, 0, 1]), r.choice([None, -1, 3]), r.choice([1, 1, -1, 2])) for _ in shape) for _ in range(2)]
            if x[cut[0]].shape != x[cut[1]].shape:
                cut[1] = tuple(slice(None, None, -1) for _ in shape)
                cut[0] = tuple(slice(None) for _ in shape)
            x[cut[0]] = x[cut[1]].copy()
            a[cut[0]] = a[cut[1]]
            assert np.array_equal(a.asnumpy(), x), (where, shape, cut)
        a, x = ub.asarray(np.arange(9.0).reshape(3, 3), copy=True, **where), np.arange(9.0).reshape(3, 3)
        a[...] = a.T
        assert np.array_equal(a.asnumpy(), x.T)
        a[:] = a[0]
        assert np.array_equal(a.asnumpy(), np.broadcast_to(x.T[0], (3, 3)))


def test_overlap_through_another_type(np):
    a = ub.asarray(np.arange(8, dtype="int64"), copy=True)
    x = np.arange(8, dtype="int64")
    a[:4] = a.view("int32")[8:12]
    x[:4] = x.view("int32")[8:12].copy()
    assert a.tolist() == x.tolist()


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
            a, x = ub.zeros((3, 4), dtype, **where), np.zeros((3, 4), dtype)
            for part, of in ((a, x), (a[:, ::2], x[:, ::2]), (a[1], x[1]), (a[0, 1], x[0, 1:2])):
                for value in (1, True, np.int8(1), np.array(0), ub.asarray(1, dtype=dtype)):
                    assert part.fill(value) is None
                    of.fill(np.asarray(value).astype(dtype))
                    assert np.array_equal(a.asnumpy(), x), (where, dtype)
        for bad in ([1, 2], [[1]], np.zeros(3), "x", None, object()):
            with pytest.raises((TypeError, ValueError)):
                a.fill(bad)
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
    with pytest.raises(ValueError):
        a[0] = [1, 2]
    assert a.tolist() == [[0.0] * 3] * 2


def test_values_that_run_code(np):
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

    class Loud:
        def __float__(self):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        a[0, 0] = Loud()

    values = [1.0, 2.0, 3.0]

    class Clearing(float):
        def __float__(self):
            values.clear()
            return 5.0

    values[0] = Clearing(5)
    a[1] = values
    assert a[1].tolist() == [5, 2, 3]


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
