"""Conversions between all pairs of element types, and from Python's numbers, compared with NumPy and ml_dtypes; and the types that
NumPy has from ml_dtypes, imported and exported bit for bit."""

import ctypes
import importlib.util
import math
import operator
import pathlib

import pytest
from conftest import peer, places, run

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


# ---- the types of ml_dtypes -------------------------------------------------------------------------------

TYPES = ["bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
         "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int1", "int2", "int4", "uint1", "uint2", "uint4", "complex32"]
BITS = {"bfloat16": 16, "complex32": 32, "float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4}


def bits_of(name):
    return BITS.get(name) or (int(name[-1]) if "int" in name else 8)


@pytest.fixture(params=TYPES)
def case(request, np):
    """Returns a type of ml_dtypes and an array of each of its bit patterns (a sample for wide types)."""
    ml = peer("ml_dtypes")
    name, bits = request.param, bits_of(request.param)
    dtype = np.dtype(getattr(ml, name))
    patterns = np.arange(1 << min(bits, 16), dtype=f"uint{max(8, bits)}")
    if bits > 16:
        patterns = patterns * 65537
    return name, dtype, patterns.view(dtype)


def raw(np, x):
    return np.ascontiguousarray(x).view(f"uint{8 * x.dtype.itemsize}")


def test_in_and_out_share_the_memory(np, case):
    name, dtype, x = case
    for y in (x, x[::-1], x.reshape(-1, 2)[:, 1], x.reshape(2, -1).T):
        a = ub.asarray(y)
        assert a.dtype == name and a.shape == y.shape and a._pointer == y.ctypes.data and not a.readonly
        z = np.asarray(a)
        assert z.dtype == dtype and z.ctypes.data == y.ctypes.data and z.strides == y.strides and np.array_equal(raw(np, z), raw(np, y))
        n = a.asnumpy()
        assert n.dtype == dtype and n.ctypes.data != y.ctypes.data and np.array_equal(raw(np, n), raw(np, y)) and n.flags.writeable
    x.flags.writeable = False
    a = ub.asarray(x)
    assert a.readonly and not np.asarray(a).flags.writeable and a.asnumpy().flags.writeable


def test_packed_elements_are_unpacked(np, case):
    name, dtype, x = case
    if bits_of(name) >= 8:
        return
    numbers = ub.asarray(ub.asarray(x), dtype="float32" if "float" in name else "int8")
    p = ub.asarray(numbers, dtype=name)  # packed
    assert p.nbytes == (x.size * bits_of(name) + 7) // 8
    for y, copied in ((p.asnumpy(), True), (np.asarray(p), False), (p.__array__(), False), (p.__array__(copy=True), True), (np.array(p), True)):
        assert y.dtype == dtype and np.array_equal(raw(np, y), raw(np, x)) and y.flags.writeable == copied
    assert np.asarray(p, dtype="float32").flags.writeable
    with pytest.raises(ValueError, match="packed"):
        p.__array__(copy=False)


# Writes to an array x with a library np that has NumPy's functions, by whether they reach packed elements on the host.
WRITES = {
    "x += 1": (True, lambda np, x: operator.iadd(x, 1)),
    "x *= x": (True, lambda np, x: operator.imul(x, x)),
    "x -= ndarray": (True, lambda np, x: operator.isub(x, np.ones(4, x.dtype))),
    "x += masked": (True, lambda np, x: operator.iadd(x, np.ma.masked_array(np.ones(4, "int8").astype(x.dtype)))),
    "x[0] = 1": (True, lambda np, x: x.__setitem__(0, 0)),
    "x[[0, 1]] = 1": (True, lambda np, x: x.__setitem__([0, 1], 1)),
    "x[mask] = 0": (True, lambda np, x: x.__setitem__(np.array([True, True, False, False]), 0)),
    "x.reshape[:, [1]] = 0": (True, lambda np, x: x.reshape(2, 2).__setitem__((slice(None), [1]), 0)),
    "x.sort": (True, lambda np, x: x.sort()),
    "x.fill": (True, lambda np, x: x.fill(1)),
    "out=": (False, lambda np, x: np.add(x, x, out=x)),
    "add.at": (False, lambda np, x: np.add.at(x, [0], 1)),
    "put": (False, lambda np, x: np.put(x, [0], 0)),
    "copyto": (False, lambda np, x: np.copyto(x, 1, casting="unsafe")),
    "putmask": (False, lambda np, x: np.putmask(x, np.array([True] * 4), 0)),
    "place": (False, lambda np, x: np.place(x, np.array([True] * 4), [0])),
    "fill_diagonal": (False, lambda np, x: np.fill_diagonal(x.reshape(2, 2), 0)),
    "sum(out=)": (False, lambda np, x: np.sum(x.reshape(2, 2), axis=0, out=x[:2])),
    "asarray(x)[0]": (False, lambda np, x: np.asarray(x).__setitem__(0, 0)),
    "asarray(x).sort": (False, lambda np, x: np.asarray(x).sort()),
}


@pytest.mark.parametrize("write", WRITES)
def test_no_write_to_packed_elements_is_lost(np, write):
    ml = peer("ml_dtypes")
    on_host, f = WRITES[write]
    for name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn", "bfloat16"):
        for where in places(["device", "shared"]):
            n = np.array([1, 1, 0, 1]).astype(getattr(ml, name))
            a = ub.asarray(n.astype("float32"), dtype=name, **where)
            before = a.tolist()
            f(np, n)
            try:
                f(np, a)
            except (TypeError, ValueError):
                assert a.tolist() == before and not (on_host and where["device"] == "host"), (name, where)
            else:
                assert a.tolist() == n.astype("float32").tolist(), (name, where)


def test_ufunc_at_respects_readonly_memory(np):
    for where in places(["shared"]):
        a = ub.zeros(3, **where).as_readonly()
        with pytest.raises(ValueError, match="read-only"):
            np.add.at(a, [0], 1)
        assert a.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["int1", "int2", "uint4", "int4", "float4_e2m1fn", "float6_e2m3fn", "bfloat16"])
def test_iteration_over_packed_elements_is_complete(np, name):
    """Rows that begin at whole bytes are views, and the other ones are read-only copies."""
    ml = peer("ml_dtypes")
    bits = bits_of(name)
    for shape in ((5,), (3, 3), (3, 4), (9, 1, 3), (2, 0), (0, 3)):
        n = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(getattr(ml, name))
        for where in places(["device", "shared"]):
            whole = ub.asarray(n.astype("float32"), dtype=name, **where)
            for a, want in ((whole, n), (whole.T, n.T)):
                assert [x.tolist() for x in a] == [x.astype("float32").tolist() for x in want]
                assert [x.tolist() for x in reversed(a)] == [x.astype("float32").tolist() for x in reversed(want)]
                for i, x in enumerate(a):
                    is_view = a.size == 0 or i * a.strides[0] * bits % 8 == 0
                    assert x.dtype == a.dtype and x.shape == a.shape[1:] and x.readonly != is_view and x.usm_type == a.usm_type
                    if not is_view:
                        with pytest.raises(ValueError, match="whole byte"):
                            a[i]
                        with pytest.raises(ValueError, match="whole byte"):
                            a[i:]
                    elif x.size:
                        before = x.tolist()
                        x[...] = 0
                        assert a[i].tolist() == x.tolist() == np.zeros(x.shape).tolist()
                        a[i] = before


def test_scalars_and_dtypes(np, case):
    name, dtype, x = case
    if name == "complex32" or "int" in name:
        return
    one = x[1]
    assert ub.zeros(2, dtype).dtype == name and ub.zeros(2, type(one)).dtype == name
    assert ub.asarray(one, dtype=name).tolist() == ub.asarray(x)[1].tolist()


def test_other_failures_pass(np):
    with pytest.raises((BufferError, ValueError, TypeError)):
        ub.asarray(np.zeros(3, "datetime64[s]"))

    class Claims:
        dtype = type("D", (), {"name": "bfloat16"})()

        def __dlpack__(self, **kw):
            raise BufferError("mine")

        def view(self, word):
            assert word == "uint16"
            return self.given

    c = Claims()
    c.given = np.zeros(3, "uint8")
    with pytest.raises(TypeError, match="bfloat16"):
        ub.asarray(c)
    c.given = np.zeros(3, "uint16")
    assert ub.asarray(c).dtype == "bfloat16"
    del Claims.view
    with pytest.raises(AttributeError):
        ub.asarray(c)
    Claims.dtype = "bfloat16"
    with pytest.raises(BufferError, match="mine"):
        ub.asarray(c)


def test_without_ml_dtypes():
    run("""
sys.modules["ml_dtypes"] = None
a = ub.asarray([1.0, 2.0], dtype="float8_e4m3fn", device="host")
for f in (a.asnumpy, a.__array__):
    try:
        f()
    except TypeError as e:
        assert 'ml_dtypes' in str(e) and 'asarray(a, dtype="float32").asnumpy()' in str(e), e
    else:
        raise AssertionError
assert ub.asarray(a, dtype="float32").asnumpy().tolist() == [1.0, 2.0]
c = ub.asarray([1.0], dtype="complex32")
try:
    c.asnumpy()
except TypeError as e:
    assert 'asarray(a, dtype="complex64").asnumpy()' in str(e), e
assert ub.asarray(c, dtype="complex64").asnumpy().tolist() == [1.0]
""")
