"""Indexing by integer and boolean arrays, compared with NumPy on plain, shared and device memory."""

import random

import pytest
from conftest import places

import usmbridge as ub

SHAPES = [(), (4,), (2, 3), (3, 2, 4), (0, 3), (2, 1, 3)]
DTYPES = ["float32", "int16", "uint8", "complex64", "bool"]


def draw_key(np, rng, shape):
    """Returns a random key with lists, arrays, masks, integers, slices, None and Ellipsis, some of them out of range."""
    keys, axis = [], 0
    for _ in range(rng.randint(1, len(shape) + 1)):
        d = shape[axis] if axis < len(shape) else 1
        top = max(d - 1, 0)
        what = rng.choice(["int", "slice", "None", "...", "list", "array", "two", "mask", "bool", "empty", "scalar", "beyond"])
        axis += what not in ("None", "...", "bool")
        if what == "int":
            keys.append(rng.randint(-d, d - 1) if d else 0)
        elif what == "slice":
            keys.append(rng.choice([slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2), slice(0, 0)]))
        elif what == "None":
            keys.append(None)
        elif what == "...":
            keys.append(...)
        elif what == "list":
            keys.append([rng.randint(-d, top) for _ in range(2)] if d else [])
        elif what == "array":
            dtype = rng.choice(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
            keys.append(np.array([rng.randint(0 if dtype[0] == "u" else -d, top) for _ in range(2)], dtype) if d else np.zeros(0, dtype))
        elif what == "scalar":
            keys.append(rng.choice([np.int8, np.int64, lambda n: np.array(n, "int16"), lambda n: n])(rng.choice([-d - 1, -1, 0, d])))
        elif what == "two":
            keys.append(np.array([[rng.randint(0, top)], [0]]))
        elif what == "mask":
            keys.append(np.array([rng.random() < 0.5 for _ in range(d)], bool))
        elif what == "bool":
            keys.append(rng.choice([True, False, np.array(True), np.bool_(False)]))
        elif what == "empty":
            keys.append([])
        else:
            keys.append([d + 5])
    return tuple(keys) if len(keys) != 1 or rng.random() < 0.5 else keys[0]


def selects(np, key):
    return any(isinstance(k, (list, np.ndarray, bool, np.bool_)) for k in (key if type(key) is tuple else (key,)))


def outcome(f):
    try:
        return f(), None
    except Exception as e:
        return None, type(e)


@pytest.mark.parametrize("seed", range(6))
def test_keys_as_numpy(np, dpnp, seed):
    rng = random.Random(seed)
    for where in places(["shared", "device"]):
        for _ in range(250):
            shape = rng.choice(SHAPES)
            x = np.arange(int(np.prod(shape))).reshape(shape).astype(rng.choice(DTYPES))
            a = ub.asarray(x, copy=True, **where)
            key = draw_key(np, rng, shape)
            if not selects(np, key):
                continue
            say = where, shape, key
            want, error = outcome(lambda: x[key])
            got, raised = outcome(lambda: a[key])
            assert (raised is None) == (error is None) and (not raised or issubclass(raised, error)), (say, error, raised)
            if error is None:
                assert got.shape == np.shape(want) and np.array_equal(got.asnumpy(), want) and not got.readonly, (say, want, got)
            if rng.random() < 0.5 and error is None and np.size(want):
                value = rng.choice([np.ones(np.shape(want), x.dtype), ub.ones(np.shape(want), str(x.dtype), **where), np.ones(np.shape(want), "float64")])
            else:
                value = rng.choice([1, [1], np.int8(1), 1.0, True])
            y = x.copy()
            _, error = outcome(lambda: y.__setitem__(key, np.asarray(value.asnumpy() if type(value) is ub.Array else value)))
            _, raised = outcome(lambda: a.__setitem__(key, value))
            assert (raised is None) == (error is None), (say, value, error, raised)
            if error is None:
                assert np.array_equal(a.asnumpy(), y), (say, value, y, a)


def test_values_are_converted_as_for_slices(np, dpnp):
    values = [300, -1, 2.5, [300, 1], [float("nan"), 1], [300.0, -1.0], 1 + 2j, np.array([300.0, -1.0]), np.array([float("nan"), 1e20]), np.array([1 << 40, -3]),
              np.array([float("inf"), -float("inf")]), np.array([1j, 2.0]), True, np.array([True, False]), np.float32(7.5), None, "x"]
    for where in places(["shared", "device"]):
        for dtype in ("uint8", "int16", "int64", "float32", "bool", "complex64"):
            for value in values:
                by_slice, by_list, by_mask = (ub.zeros(2, dtype, **where) for _ in range(3))
                results = [outcome(lambda: a.__setitem__(key, value))[1] for a, key in
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


def test_in_place_with_wider_types(np, dpnp):
    for where in places(["shared", "device"]):
        for dtype, wide in (("float32", "float64"), ("int16", "int64"), ("complex64", "complex128"), ("uint8", "uint32")):
            x = np.array([1, 2, 3]).astype(dtype)
            a = ub.asarray(x, copy=True, **where)
            for other in (np.array([1, 1, 2]).astype(wide), np.dtype(wide).type(2)):
                x += other
                x *= other
                b = a
                b += other
                b *= ub.asarray(other, **where)
                assert b is a and a.dtype == dtype and np.array_equal(a.asnumpy(), x)
        a = ub.asarray([1, 2], dtype="int32", **where)
        with pytest.raises(TypeError):
            a += ub.asarray([0.5, 1.5], **where)
        for dtype in ("bool", "int8", "uint32", "int64"):  # their quotients are floating-point
            b = a.astype(dtype)
            for other in (2, 2.0, True, [2, 4], np.int8(2), np.array([2, 4], "int16"), np.array([2, 4], dtype)):
                with pytest.raises(TypeError):
                    b /= other
            assert b.tolist() == a.astype(dtype).tolist()
        assert a.tolist() == [1, 2]


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
            _, error = outcome(lambda: n + 2**70)
            _, raised = outcome(lambda: a + 2**70)
            assert (raised is None) == (error is None)


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
