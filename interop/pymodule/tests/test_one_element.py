"""Elements as Python's numbers, compared with NumPy. robust/test_values.py draws the arguments of item, and has the narrow types."""

import operator

import pytest
from conftest import sycl_device

import usmbridge as ub


def copies(x):
    yield ub.asarray(x)
    yield ub.asarray(x, device=sycl_device())


def outcome(f):
    try:
        v = f()
    except Exception as e:
        return type(e)
    return type(v), repr(v)


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
