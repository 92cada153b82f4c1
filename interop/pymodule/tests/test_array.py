"""Array: creation, attributes, views, conversion and printing; devices and counters."""


import pytest
from conftest import places, run

import usmbridge as ub


def test_devices():
    all = ub.devices()
    assert all[-1].filter_string == "host" and all[-1].dlpack_device == (1, 0) and all[-1].backend == "host"
    assert ub.devices() == all
    for i, d in enumerate(all[:-1]):
        assert d.dlpack_device == (14, i)
        assert d.filter_string.startswith(d.backend + ":" + d.device_type)
        assert d.name and d.global_mem_size > 0 and d.filter_string in repr(d) and str(d) == d.filter_string
        assert d == d.filter_string and d != "host" and hash(d) == hash(d.filter_string) and {d: 1}[d.filter_string] == 1


def test_attributes(device):
    for where in (dict(device="host"), dict(usm_type="device"), dict(usm_type="shared", device=device)):
        a = ub.empty((2, 3, 4), "int16", **where)
        assert (a.shape, a.strides, a.dtype, a.typestr, a.ndim, a.size, a.itemsize, a.nbytes) == (
            (2, 3, 4), (12, 4, 1), "int16", "<i2", 3, 24, 2, 48)
        assert a.usm_type == where.get("usm_type") and not a.readonly and len(a) == 2
        assert a.device == (device if "usm_type" in where else "host")
        f = ub.empty((2, 3, 4), order="F", **where)
        assert f.strides == (1, 2, 6)
        assert a._pointer % 256 == 0
    for name in ("shape", "dtype", "device", "_pointer"):
        with pytest.raises(AttributeError):
            setattr(a, name, 1)
    with pytest.raises(TypeError):
        len(ub.empty((), device="host"))


@pytest.mark.parametrize("args, kw, error", [
    ((), {}, TypeError), ((2, "float32", 1), {}, TypeError), ((-1,), {}, ValueError), (((2, -3),), {}, ValueError),
    ((1.5,), {}, TypeError), (("3",), {}, TypeError), (((1, "2"),), {}, TypeError), (((1,) * 65,), {}, ValueError),
    (((1 << 40, 1 << 40),), {}, ValueError), ((1 << 70,), {}, OverflowError), ((2, "float33"), {}, TypeError), ((2, 5), {}, TypeError),
    ((2,), dict(usm_type="nonsense"), ValueError), ((2,), dict(usm_type=5), TypeError), ((2,), dict(order="K"), ValueError), ((2,), dict(order=1), TypeError),
    ((2,), dict(device="no:such:thing"), ValueError), ((2,), dict(device=5), TypeError), ((2,), dict(sycl_queue=5), TypeError),
    ((2,), dict(sycl_queue="opencl:cpu:0", device="host"), ValueError), ((2,), dict(nonsense=1), TypeError),
    ((2,), dict(shape=3), TypeError), ((2,), dict(device="gpu:99"), ValueError),
])
def test_bad_arguments(args, kw, error):
    with pytest.raises(error):
        ub.empty(*args, **kw)


def test_out_of_memory(device):
    for where in (dict(device="host"), dict(device=device), dict(device=device, usm_type="host")):
        with pytest.raises(MemoryError) as e:
            ub.empty(1 << 56, "uint8", **where)
        text = str(e.value)
        assert "out of memory" in text and ("PiB" in text or str(1 << 56) in text)
        assert "host" in text or device.filter_string in text


def test_arguments_of_views(np, device):
    """robust/test_views.py compares views with those of NumPy."""
    a = ub.from_dlpack(np.arange(24).reshape(2, 3, 4))
    assert a.reshape(4, 6).shape == a.reshape(shape=(4, 6)).shape == (4, 6) and a.reshape(24).shape == (24,)
    assert a.transpose().shape == a.transpose(None).shape == (4, 3, 2) and a.transpose((2, 0, 1)).shape == (4, 2, 3)
    for args in ((2, 12), ((2, 12),), (24,)):
        with pytest.raises(TypeError, match="shape"):
            a.reshape(*args, shape=(4, 6))
    for bad, error in ((lambda: a.reshape(), TypeError), (lambda: a.reshape("24"), TypeError), (lambda: a.T.reshape(24, copy=False), ValueError), (lambda: a[::0], ValueError),
                       (lambda: ub.empty((1,) * 64, device="host")[None], IndexError), (lambda: a.to_device("gpu:99"), ValueError), (lambda: a.to_device(None), TypeError),
                       (lambda: a.to_device("host", stream=1), TypeError)):
        with pytest.raises(error):
            bad()
    for kind in ("device", "shared", "host"):
        u = ub.asarray(a, usm_type=kind)[:, ::-1]
        assert u.to_device(device) is u and u.to_device("host").tolist() == u.tolist() and a.to_device(device).tolist() == a.tolist()


def test_asarray(np, device):
    """robust/test_values.py has lists of numbers."""
    assert ub.asarray(((1, 2), range(2))).tolist() == [[1, 2], [0, 1]]
    for bad in ("text", ["a"], [None], object(), {1: 2}, [{}]):
        with pytest.raises(TypeError):
            ub.asarray(bad)
    with pytest.raises(OverflowError):
        ub.asarray([300], dtype="int8")
    assert ub.asarray([1.5], dtype="int32").tolist() == [1]
    with pytest.raises(ValueError, match="copy"):
        ub.asarray([1, 2], copy=False)
    x = np.arange(6.0).reshape(2, 3)
    assert ub.asarray(x)._pointer == x.ctypes.data and ub.asarray(x, copy=False)._pointer == x.ctypes.data
    assert ub.asarray(x, copy=True)._pointer != x.ctypes.data
    assert ub.asarray(bytearray(b"abc")).dtype == "uint8" and ub.asarray(memoryview(b"abc")).readonly
    a = ub.asarray(x)
    assert ub.asarray(a) is a and ub.asarray(a, copy=True) is not a
    for kind in ("device", "shared", "host"):
        u = ub.asarray(x, usm_type=kind)
        assert u.usm_type == kind and u.device == device and np.array_equal(u.asnumpy(), x)
        assert ub.asarray(u, usm_type=kind) is u and ub.asarray(u, device=device) is u and ub.asarray(u) is u
        assert ub.asarray(u, device="cpu" if "cpu" in device.filter_string else device) is u
        f = ub.asarray(u, dtype="float32")
        assert f.dtype == "float32" and f.usm_type == kind and np.array_equal(f.asnumpy(), x)
        with pytest.raises(ValueError):
            ub.asarray(u, dtype="float32", copy=False)
    with pytest.raises(ValueError):
        ub.asarray(x, usm_type="shared", copy=False)
    s = ub.asarray(x, usm_type="shared")
    assert ub.asarray(s, device="host")._pointer == s._pointer and ub.asarray(s, device="host").usm_type is None


def test_asarray_prefers_suai(device, dpctl):
    m = dpctl.memory.MemoryUSMShared(16)

    class Both:
        __sycl_usm_array_interface__ = m.__sycl_usm_array_interface__

        def __dlpack__(self, **kw):
            raise AssertionError("not to be asked")

    assert ub.asarray(Both())._pointer == m._pointer


def test_packed_elements_backwards(np):
    for dtype in ("float6_e3m2fn", "uint2", "int4", "float4_e2m1fn", "uint1"):
        for where in (dict(device="host"), dict(usm_type="shared")):
            a, x = ub.asarray([float(i % 2) for i in range(24)], dtype="float32", **where).astype(dtype), np.arange(24) % 2
            for start in range(0, 24, 8 if dtype == "uint1" else 4):  # views begin at whole bytes
                for stop in (None, *range(start)):
                    for step in (-1, -2, -3):
                        v, want = a[start:stop:step], x[start:stop:step].tolist()
                        assert v.tolist() == v.copy().tolist() == v.astype("float32").tolist() == ub.asarray(v, copy=True).tolist() == want and repr(v)
                        assert ub.from_dlpack(v.__dlpack__(max_version=(1, 0))).copy().tolist() == want
            assert a.reshape(3, 8)[::-1].T.copy().tolist() == x.reshape(3, 8)[::-1].T.tolist()
            with pytest.raises(ValueError):
                a.reshape(3, 8)[0, 1]  # within a byte


def test_repr(np, device):
    for shape in ((0,), (0, 3), (3, 0), (2, 0, 3)):
        want = repr(np.zeros(shape, "float32"))[1:-1]
        assert repr(ub.zeros(shape, "float32", device="host")) == f"A{want}, device=host)"
        assert repr(ub.zeros(shape, "float32")) == f"A{want}, device={device.filter_string}, usm_type=shared)"
    a = ub.asarray(np.arange(6, dtype="float32").reshape(2, 3))
    assert repr(a) == "Array([[0., 1., 2.],\n       [3., 4., 5.]], dtype=float32, device=host)"
    b = ub.asarray([1, 2], usm_type="device")
    assert repr(b) == f"Array([1, 2], dtype=int64, device={device.filter_string}, usm_type=device)"
    assert repr(b[::-1]).startswith("Array([2, 1]")
    big = repr(ub.zeros((1000, 1000), device="host"))
    assert "..." in big and len(big) < 1000
    assert repr(ub.zeros((), "bfloat16", device="host")) == "Array(0.0, dtype=bfloat16, device=host)"
    assert "float4" in repr(ub.zeros((2, 4), "float4_e2m1fn", device="host"))


def test_str_of_numbers(np):
    """Arrays of 0 dimensions are printed as NumPy prints them, others as repr does."""
    for dtype in ("bool", "int8", "uint64", "float16", "float32", "float64", "complex64", "complex128"):
        for value in (1, 0.1, 60000):
            n = np.array([1 if dtype in ("bool", "int8", "uint64") else value]).astype(dtype)
            for where in places():
                a = ub.asarray(n, copy=True, **where)
                assert str(a[0]) == str(n[0]) == str(a[0].T) and str(a) == repr(a) and repr(a[0]) != str(a[0])
    assert str(ub.asarray(1.5, dtype="bfloat16", device="host")) == "1.5"
    a = ub.zeros((), device="host")
    a.release()
    assert str(a) == repr(a)
    assert run("print(ub.asarray(1.5, device='host'), ub.asarray(True), ub.asarray(2, usm_type='shared'))") == "1.5 True 2\n"


def test_texts_have_signatures():
    assert ub.__version__ and ub.__doc__
    for f in (ub.devices, ub.empty, ub.zeros, ub.asarray, ub.from_dlpack, ub.from_usm_array_interface, ub.stats, ub.Array.__dlpack__,
              ub.Array.reshape, ub.Array.copy):
        assert f.__doc__ and f.__text_signature__
