"""Indexing by integer and boolean arrays, compared with NumPy on plain, shared and device memory. robust/test_twins.py draws the keys."""


import pytest
from conftest import places

import usmbridge as ub


def outcome(f):
    try:
        return f(), None
    except Exception as e:
        return None, type(e)


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
