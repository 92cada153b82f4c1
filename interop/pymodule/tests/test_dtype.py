"""DType: names of element types that also equal NumPy's objects."""

import copy
import json
import pickle

import pytest
from conftest import DTYPES, peer, run

import usmbridge as ub


def test_native_types(np):
    for name in DTYPES:
        d = ub.DType(name)
        assert type(d) is ub.DType and d == name and name == d and str(d) == f"{d}" == name and repr(d) == repr(name) and hash(d) == hash(name)
        assert d == np.dtype(name) and np.dtype(name) == d and d == np.dtype(name).type and np.dtype(name).type == d and not d != np.dtype(name)
        assert np.dtype(d) == np.dtype(name) and np.zeros(2, d).dtype == d and d.itemsize == np.dtype(name).itemsize and d.name == name and type(d.name) is str
        assert {name: 1}[d] == 1 and d in {name} and json.dumps(d) == json.dumps(name)
        for other in DTYPES:
            if other != name:
                assert d != np.dtype(other) and d != np.dtype(other).type and not d == np.dtype(other) and d != other
        if np.dtype(name).itemsize > 1:
            assert d != np.dtype(name).newbyteorder(">")
        assert ub.zeros(1, name).dtype == d and ub.DType(name) is d and ub.DType(np.dtype(name)) is d and ub.zeros(1, d).dtype == d and ub.DType(d) is d
        for protocol in range(6):
            assert pickle.loads(pickle.dumps(d, protocol)) == d and type(pickle.loads(pickle.dumps(d, 2))) is ub.DType
        assert copy.copy(d) == copy.deepcopy(d) == d


def test_dtypes_of_arrays_are_numpys(np):
    ml = peer("ml_dtypes")
    for name in DTYPES + ["bfloat16", "float8_e4m3fn", "float6_e2m3fn", "float4_e2m1fn", "int4", "uint2"]:
        a = ub.zeros(1, name, device="host")
        want = np.dtype(getattr(ml, name, name))
        for d in (a.dtype, ub.DType(name)):
            assert d == want.type and want.type == d and d == want and want == d and np.dtype(d) == want and d != ml.float8_e5m2
        assert a.dtype == want and type(a.dtype) is type(want) and hash(a.dtype) == hash(want) and a.dtype is a[:].dtype
        assert str(a.dtype) == name and ub.DType(a.dtype) == name and ub.zeros(1, a.dtype).dtype == want
        if name in DTYPES:
            assert a.dtype == name and a.dtype.kind == want.kind and a.dtype.byteorder == want.byteorder and a.dtype.names is None
            assert a.dtype == a.typestr[1:]
    out = run("""
sys.modules["ml_dtypes"] = None
assert type(ub.zeros(1, "bfloat16", device="host").dtype) is ub.DType and ub.zeros(1, device="host").dtype == "f8"
sys.modules["numpy"] = None
print(type(ub.zeros(1, "int16", device="host").dtype).__name__, ub.zeros(1, "int16", device="host"))
""")
    assert out.split()[0] == "DType" and "dtype=int16" in out


def test_texts(np):
    names = ["byte", "ubyte", "short", "ushort", "intc", "uintc", "long", "ulong", "longlong", "ulonglong", "intp", "uintp", "int_", "uint", "half", "single",
             "double", "csingle", "cdouble", "bool_", *"?bBhHiIlLqQpPefdFD", *(order + np.dtype(d).str[1:] for d in DTYPES for order in ("", "<", "=", "|"))]
    for name in names:
        assert ub.DType(name) == np.dtype(name) and ub.zeros(1, name, device="host").dtype == np.dtype(name), name
    for text in ("", "\0", "\0f4", "f4\0", "<f4\0", "<u1\0", "float64\0x", "float32 ", " float32", "FLOAT32", "float3", "float33", "int3", ">f4", "!i2", "<f3", "<f", "<", "f-4", "f4.",
                 "i4i4", "<f99999999999999999999", "é", "\ud800", "f\uff14", "\uff18", "S4", "U1", "O", "M8", "V4", "m8[s]", b"f4", ["f4"], 5, type("T", (), {"name": "\ud800"})()):
        with pytest.raises((TypeError, ValueError)):
            ub.zeros(1, text, device="host")


def test_texts_of_places(device, dpctl):
    for keyword, words in (("usm_type", ("device", "shared", "host")), ("order", ("C", "F"))):
        for word in words:
            ub.empty((2, 3), **{keyword: word})
            for text in (word + "\0", word + "\0x", word.swapcase(), word[:-1], word + "x", " " + word, "é", "\ud800", "K", "A"):
                with pytest.raises((TypeError, ValueError)):
                    ub.empty((2, 3), **{keyword: text})
    backend, kind, number = device.filter_string.split(":")
    for text in (backend, kind, number, f"{backend}:{kind}", f"{kind}:{number}", f"{backend.upper()}:{kind}", f"cuda:gpu,{kind}", f"{kind} , gpu"):
        assert str(ub.empty(0, device=text).device) == str(dpctl.SyclDevice(text.lower().replace(" ", "")).filter_string) == device.filter_string, text
    for text in ("", ":", ",", "*", "-1", f"{kind}:99", f"{kind}:{kind}", f"{backend}:{kind}:{number}:0", "99999999999999999999", "custom", "é", "\ud800", kind + "\0", "no:such:thing"):
        with pytest.raises(ValueError):
            ub.empty(0, device=text)


def test_other_byte_order_is_refused(np):
    ml = peer("ml_dtypes")
    a = ub.zeros(4, "int32", device="host")
    for dtype in (np.dtype(">i4"), np.dtype(">f4"), np.dtype(">c8"), np.dtype(ml.bfloat16).newbyteorder(">")):
        for use in (a.view, a.astype, ub.DType, lambda d: ub.zeros(2, d), lambda d: ub.empty(2, d), lambda d: ub.ones(2, d), lambda d: ub.full(2, 1, d),
                    lambda d: ub.zeros_like(a, dtype=d), lambda d: ub.asarray([1, 2], dtype=d), lambda d: ub.asarray(a, dtype=d)):
            with pytest.raises(TypeError, match="newbyteorder"):
                use(dtype)
    for dtype in (np.dtype(">i1"), np.dtype("=i4"), np.dtype("<f8"), np.dtype("bool").newbyteorder(">")):
        assert ub.zeros(2, dtype).dtype == dtype

    swapped = np.asarray([1, 2], ml.bfloat16).astype(np.dtype(ml.bfloat16).newbyteorder(">"))
    with pytest.raises(ValueError):
        ub.asarray(swapped, copy=False)
    for values in (swapped, list(swapped)):
        assert ub.asarray(values).tolist() == [1, 2]

    class Odd:
        name = "int32"
        isnative = property(lambda self: (_ for _ in ()).throw(LookupError("isnative")))

    with pytest.raises(LookupError):
        ub.zeros(2, Odd())


def test_unrelated_objects():
    d = ub.DType("float64")
    for other in (None, 5, float, object(), [], type("float64", (), {}), type("X", (), {"name": "float64"})(), b"float64"):
        assert d != other and not d == other
    named = type("float64", (), {"__module__": "numpy"})
    assert d == named and d != named()
    for op in ("__lt__", "__add__", "__ge__"):
        assert getattr(d, op)("x") == getattr("float64", op)("x")
    for bad in ((), ("nonsense",), (None,), (5,), ("int8", "int8")):
        with pytest.raises(TypeError):
            ub.DType(*bad)
    with pytest.raises(TypeError):
        ub.DType(type="int8")
    with pytest.raises(TypeError):
        type("X", (ub.DType,), {})
    assert [ub.DType(t) for t in ("f4", float, bool, int, complex)] == ["float32", "float64", "bool", "int64", "complex128"]


def test_an_error_in_a_comparison_means_unequal():
    class Loud:
        __module__ = "numpy"

        @property
        def name(self):
            raise MemoryError

    assert ub.DType("int8") != Loud()
