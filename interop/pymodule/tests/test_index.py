"""Indexing by integer and boolean arrays, and Arrays as indices and shapes, compared with NumPy. robust/test_twins.py draws the keys."""

import array
import collections
import operator

import pytest
from conftest import places

import usmbridge as ub


def copies(x):
    return [ub.asarray(x, **place) for place in places(["shared"])]


def outcome(f):
    try:
        v = f()
    except Exception as e:
        return type(e)
    return type(v), repr(v)


def test_values_are_converted_as_for_slices(np, dpnp):
    values = [300, -1, 2.5, [300, 1], [float("nan"), 1], [300.0, -1.0], 1 + 2j, np.array([300.0, -1.0]), np.array([float("nan"), 1e20]), np.array([1 << 40, -3]),
              np.array([float("inf"), -float("inf")]), np.array([1j, 2.0]), True, np.array([True, False]), np.float32(7.5), None, "x"]
    for where in places(["shared", "device"]):
        for dtype in ("uint8", "int16", "int64", "float32", "bool", "complex64"):
            for value in values:
                by_slice, by_list, by_mask = (ub.zeros(2, dtype, **where) for _ in range(3))
                results = [outcome(lambda: a.__setitem__(key, value)) for a, key in
                           ((by_slice, slice(None)), (by_list, [0, 1]), (by_mask, np.array([True, True])))]
                assert results[0] == results[1] == results[2], (where, dtype, value, results)
                assert np.array_equal(by_slice.asnumpy(), by_list.asnumpy(), equal_nan=dtype[0] in "fc"), (where, dtype, value, by_slice, by_list)
                assert np.array_equal(by_slice.asnumpy(), by_mask.asnumpy(), equal_nan=dtype[0] in "fc"), (where, dtype, value, by_slice, by_mask)


def test_results_are_copies(np, dpnp):
    for where in places(["shared", "device"]):
        z = ub.asarray(5.0, **where)
        for key in (z > 1, np.array(True), True):
            r = z[key]
            r[...] = 7
            assert z.item() == 5 and r.tolist() == [7]
        r = ub.asarray([1.0, 2.0, 3.0], **where).as_readonly()
        for key in ([0, 1], np.array([True, False, True]), r > 1):
            assert not r[key].readonly
        with pytest.raises(ValueError, match="read-only"):
            r[[0]] = 1


def test_large_integers(np, dpnp):
    for where in places(["shared", "device"]):
        for dtype in ("int64", "uint8", "float32", "float64", "complex64"):
            n = np.array([1, 2], dtype)
            a = ub.asarray(n, copy=True, **where)
            for x in (2**70, -(2**70)):
                operations = [lambda v: v == x, lambda v: v != x, lambda v: x == v]
                if dtype != "complex64":
                    operations += [lambda v: v < x, lambda v: v <= x, lambda v: v > x, lambda v: x >= v, lambda v: x < v]
                for f in operations:
                    assert np.array_equal(f(a).asnumpy(), f(n)), (where, dtype, x)
            assert np.allclose((a / 2**64).asnumpy(), n / 2**64)
            assert isinstance(outcome(lambda: n + 2**70), type) == isinstance(outcome(lambda: a + 2**70), type)


def test_astype_of_the_array_api(np, dpnp):
    import usmbridge.array_api as xp

    for where in places(["shared", "device"]):
        a = ub.asarray([300.0, -1.0, float("nan"), 1e20], **where)
        for dtype in ("uint8", "int16", "int64", "bool", "float32", "complex64"):
            assert np.array_equal(xp.astype(a, dtype).asnumpy(), a.astype(dtype).asnumpy(), equal_nan=dtype[0] in "fc")
        assert xp.astype(a, "float64", copy=False) is a and xp.astype(a, "float64").tolist()[:2] == [300, -1]


class Pair(tuple):
    """A tuple that describes its elements as an array of other numbers."""

    def __array__(self, dtype=None, copy=None):
        import numpy

        return numpy.asarray([7.0, 8.0, 9.0], dtype)


def test_tuples_are_one_argument(np):
    assert ub.asarray(Pair((1, 2))).tolist() == np.asarray(Pair((1, 2))).tolist()
    a = ub.asarray(1.5, device="host")
    for bad in ((1,), (1, 2)):
        with pytest.raises(TypeError):
            a.__round__(bad)


def test_only_a_0d_integer_is_an_index(np):
    for value, dtype in ((2, "int64"), (2, "uint8"), ([2], "int32"), ([[2]], "int64"), ([1, 2], "int64"), (True, "bool"), ([True], "bool"), (2.0, "float64")):
        k = np.asarray(value, dtype)
        for key in copies(k):
            for f in (operator.index, lambda k: [10, 11, 12][k], lambda k: list(range(k)), lambda k: [1, 2, 3][k:], lambda k: np.arange(3)[k:].tolist()):
                assert outcome(lambda: f(key)) == outcome(lambda: f(k)), (value, dtype)
            index = k.ndim == 0 and dtype in ("int64", "uint8")
            for a in copies(np.arange(12).reshape(4, 3)):
                for f in (lambda k: a[k:], lambda k: a.item(k)):
                    if index:
                        f(key)
                        continue
                    before = a.tolist()
                    with pytest.raises((TypeError, IndexError)):
                        f(key)
                    assert a.tolist() == before


def test_an_array_of_integers_is_a_shape(np):
    """An integer array of one axis is a shape, like a list of its elements."""
    for value in (2, [2], [2, 3], [0], [[2]], [2.0]):
        k, size = np.asarray(value), int(np.prod(value))
        for key in (k, *copies(k)):
            for do in (lambda m, k: m.zeros(k).shape, lambda m, k: m.zeros(size).reshape(k).shape, lambda m, k: m.zeros(6).reshape(k, -1).shape, lambda m, k: m.zeros((1, 2, 3)).transpose(0, 1, k).shape):
                assert outcome(lambda: do(ub, key)) == outcome(lambda: do(np, k)), (value, key)
    for key in (np.asarray([1, 0]), *copies(np.asarray([1, 0]))):
        assert ub.zeros((2, 3)).transpose(key).shape == (3, 2)


Key = collections.namedtuple("Key", "x y")


class One:
    def __index__(self):
        return 1


def test_sequences_and_integers_of_all_kinds(np, dpnp):
    """As NumPy: each sequence but a tuple is an array of indices, in a tuple also a tuple."""
    n = np.arange(24).reshape(2, 3, 4)
    for key in (range(2), [0, 1], collections.deque([1, 0]), array.array("b", [1]), (range(2), range(2)), ((0, 1),), ((0, 1), (1, 2)), ([0, 1], One()), (One(), [0, 1]),
                (One(), slice(None), (1, 2)), Key([0, 1], [2, 0]), Key(One(), np.int8(1)), (..., (3, 0)), ((0, 1), None, (True, False, True)), ((True, False),), (range(0),)):
        for where in places(["shared", "device"]):
            a = ub.asarray(n, copy=True, **where)
            want = n[key]
            assert np.array_equal(a[key].asnumpy(), want), (key, where)
            b = n.copy()
            a[key], b[key] = 7, 7
            assert np.array_equal(a.asnumpy(), b), (key, where)
            for wrong in ("x", (0, "x"), {}, (range(3),), (1.5, range(2))):
                with pytest.raises(IndexError):
                    a[wrong]
