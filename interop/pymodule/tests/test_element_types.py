"""Conversions between all pairs of element types, and from Python's numbers, compared with NumPy and ml_dtypes."""

import ctypes
import importlib.util
import math
import pathlib

import pytest
from conftest import peer

import usmbridge as ub


@pytest.fixture(scope="module")
def conversions():
    """The module with the expected results, which a test of usmarray uses too."""
    peer("ml_dtypes")
    path = pathlib.Path(__file__).parents[3] / "usmarray" / "testdata" / "conversions.py"
    spec = importlib.util.spec_from_file_location("conversions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def array_of(conversions, x, name):
    """Returns a host Array with the elements of x, also for types that NumPy cannot export."""
    a = ub.empty(x.size, name, device="host")
    raw = conversions.packed(x, name)
    assert raw.nbytes == a.nbytes
    ctypes.memmove(a._pointer, raw.ctypes.data, a.nbytes)
    return a


def agrees(conversions, a, want, name):
    np = conversions.np
    got = np.frombuffer(ctypes.string_at(a._pointer, a.nbytes), "uint8")
    bits = conversions.packed(want, name)
    used = want.size * conversions.bits_of(name)  # the last byte can be partly used
    if a.dtype == name and np.array_equal(*(np.unpackbits(x, count=used, bitorder="little") for x in (got, bits))):
        return True
    if a.dtype != name or conversions.bits_of(name) < 8:
        return False
    part = want.real.dtype if name in conversions.COMPLEX else want.dtype
    got, want = got.view(part), want.view(part)
    with np.errstate(all="ignore"):
        nan = np.isnan(want.astype("float64"))
        return np.array_equal(got[~nan], want[~nan]) and np.isnan(got[nan].astype("float64")).all()


def test_all_pairs(conversions):
    count = 0
    for source in conversions.TYPES:
        x = conversions.elements(source)
        a = array_of(conversions, x, source)
        for target in conversions.TYPES:
            want = conversions.converted(x, source, target)
            if want is None:
                with pytest.raises(TypeError, match="real"):
                    ub.asarray(a, dtype=target)
                continue
            got = ub.asarray(a, dtype=target)
            assert agrees(conversions, got, want, target), (source, target)
            count += 1
    assert count == 32 * 32 - 2 * 29


def test_numbers_become_every_type(conversions):
    np = conversions.np
    x = conversions.float_edges()
    numbers = x.tolist()
    for target in conversions.TYPES:
        if target in conversions.FLOATS + conversions.COMPLEX + ["bool"]:
            assert agrees(conversions, ub.asarray(numbers, dtype=target), conversions.converted(x, "float64", target), target), target
            continue
        assert ub.asarray([0.0], dtype=target).tolist() == [0]
        bits = conversions.bits_of(target)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target.startswith("int") else (0, (1 << bits) - 1)
        fit = sorted({low, low // 3, 0, high // 5, high})
        want = np.array(fit).astype(conversions.dtype_of(target)) if bits < 64 else np.array(fit, target)
        assert agrees(conversions, ub.asarray(fit, dtype=target), want, target), target
        assert agrees(conversions, ub.asarray([np.int64(0)], dtype=target), want[fit.index(0):][:1], target)
        for beyond in (low - 1, high + 1, 1 << 70, -(1 << 70)):
            with pytest.raises(OverflowError, match=target):
                ub.asarray([beyond], dtype=target)


def test_truth_of_numbers():
    for values in ([0, 1, -1, 1 << 80], [0.0, -0.0, math.nan, 1e-300], [0j, 1j, complex(0, math.nan)]):
        assert ub.asarray(values, dtype="bool").asnumpy().tolist() == [bool(v) for v in values]


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("attribute", ["name", "__name__"])
def test_an_error_in_a_dtype_passes(error, attribute):
    class Type:
        def __getattr__(self, name):
            raise error("its own") if name == attribute else AttributeError(name)

    with pytest.raises(error, match="its own"):
        ub.zeros(3, Type())
