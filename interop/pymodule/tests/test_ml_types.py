"""The element types that NumPy has from ml_dtypes, imported and exported, bit for bit."""

import pytest
from conftest import peer, run

import usmbridge as ub

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
    for y in (p.asnumpy(), np.asarray(p), p.__array__(), p.__array__(copy=True)):
        assert y.dtype == dtype and np.array_equal(raw(np, y), raw(np, x))
    with pytest.raises(ValueError, match="packed"):
        p.__array__(copy=False)


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
