"""Small protocols of Python and NumPy that libraries rely on."""

import collections.abc

import pytest
from conftest import places, run

import usmbridge as ub


def test_iteration(np):
    for place in places():
        a = ub.asarray(np.arange(6).reshape(2, 3), **place)
        assert isinstance(a, collections.abc.Iterable) and [x.tolist() for x in a] == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(TypeError, match="0-d"):
            iter(a[0, 0])


def test_format_and_round(np):
    for place in places():
        a = ub.asarray([2.567, 3.5], **place)
        assert f"{a[0]:.2f}" == "2.57" and round(a[0], 1) == 2.6 and round(a[1]) == 4 and f"{a}" == str(a)
        assert "{:>5d}".format(ub.asarray(7, **place)) == "    7"
        for bad in (lambda: f"{a:.2f}", lambda: round(a), lambda: round(a[0], 1.5), lambda: round(a[0], 1, 2)):
            with pytest.raises(TypeError):
                bad()


def test_tobytes(np):
    for place in places():
        n = np.arange(12, dtype="int16").reshape(3, 4)
        a = ub.asarray(n, **place)
        for x, y in ((a, n), (a.T, n.T), (a[::2, ::-1], n[::2, ::-1]), (a[:0], n[:0]), (a[1, 2], n[1, 2])):
            assert x.tobytes() == y.tobytes()
    assert len(ub.zeros(3, "int4", device="host").tobytes()) == 2


def test_print_options(np):
    for place in places():
        a = ub.asarray([1.23456, 2.0], **place)
        with np.printoptions(precision=2):
            assert repr(a).startswith("Array([1.23, 2.  ], dtype=float64")
        assert repr(a).startswith("Array([1.23456, 2.     ]")
    assert "Array([1.5], dtype=float64, device=host)" in run("print(ub.asarray([1.5], device='host')); assert 'numpy' not in sys.modules", first="")
