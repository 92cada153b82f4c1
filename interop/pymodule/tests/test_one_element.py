"""Elements as Python's numbers, compared with NumPy."""

import math
import operator

import pytest
from conftest import sycl_device

import usmbridge as ub

VALUES = {
    "bool": [True, False], "int8": [-128, 127], "uint8": [0, 55, 255], "int16": [-5], "uint16": [65535], "int32": [-(2**31)], "uint32": [2**32 - 1],
    "int64": [-(2**63), 2**63 - 1], "uint64": [2**64 - 1], "float16": [0.5, -65504], "float32": [1.5, math.inf], "float64": [1e300, -0.0], "complex64": [1 - 2j],
    "complex128": [1e300 + 2j, 4],
}


def copies(x):
    yield ub.asarray(x)
    yield ub.asarray(x, device=sycl_device())


def outcome(f):
    try:
        v = f()
    except Exception as e:
        return type(e)
    return type(v), repr(v)


@pytest.mark.parametrize("dtype", VALUES)
def test_one_element_as_numpy(np, dtype):
    for value in VALUES[dtype]:
        for shape in ((), (1,), (1, 1)):
            x = np.full(shape, value, dtype)
            for a in copies(x):
                v = x.item()
                assert a.item() == v and type(a.item()) is type(v) and a.tolist() == x.tolist()
                for f in (int, float, complex, bool):
                    assert outcome(lambda: f(a)) == outcome(lambda: f(v)), (f, dtype, v)
                assert outcome(lambda: operator.index(a)) == outcome(lambda: operator.index(x)), (dtype, shape)


def test_other_than_one_element_is_refused(np):
    for shape in ((0,), (2,), (2, 3), (1, 0)):
        for a in copies(np.zeros(shape, "int32")):
            for f in (int, float, complex, bool, operator.index, lambda a: [1, 2][a], lambda a: range(3)[a]):
                with pytest.raises(TypeError):
                    f(a)
            with pytest.raises(ValueError):
                a.item()


def test_item_and_tolist(np):
    x = np.arange(24).reshape(2, 3, 4)
    for whole in copies(x):
        for key in (slice(None), (slice(None), slice(None, None, -2), slice(1, 3)), (1,), (0, 1), (1, 2, 3), (slice(0, 0),)):
            a, y = whole[key], x[key]
            assert a.tolist() == y.tolist() and type(a.tolist()) is type(y.tolist())
            for args in ((), (0,), (-1,), (3,), (23,), (-25,), (1, 2, 3), (0, -1, 1), (5, 0, 0), (1, 1), ((1, 2, 3),), ((),), ((-3, 0, 0),), ("a",), (1.5,), (np.int64(1),), (None,)):
                want = outcome(lambda: y.item(*args))
                got = outcome(lambda: a.item(*args))
                assert got == want or (isinstance(want, type) and got in (want, TypeError, IndexError, ValueError)), (args, got, want)
                if isinstance(want, tuple):
                    assert got == want


def test_narrow_types(np):
    for dtype, values in (("bfloat16", [1.5, -2.0]), ("float8_e4m3fn", [0.5, 448.0]), ("float6_e2m3fn", [1.0, -7.5, 0.125, 2.0, 3.5]), ("float4_e2m1fn", [0.5, -6.0, 1.5]),
                          ("int4", [-8, 7, 3]), ("uint4", [15, 0, 9]), ("int2", [-2, 1, 0, -1, 1]), ("uint1", [1, 0, 1, 1, 0, 1, 0, 0, 1]), ("complex32", [1 - 2j])):
        for place in (dict(device="host"), dict(device=sycl_device())):
            a = ub.asarray(values, dtype=dtype, **place)
            assert a.tolist() == values and [a.item(i) for i in range(len(values))] == values and a.item(-1) == values[-1], dtype
            assert type(a.item(0)) is type(values[0])


def test_an_index_array_indexes():
    i = ub.asarray(2, dtype="uint8")
    assert [10, 11, 12][i] == 12 and "%d" % i == "2" and list(range(i)) == [0, 1]
    assert ub.zeros((5, 2), device="host")[i].shape == (2,)
    assert not ub.zeros(1) and ub.asarray([0.5])


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
