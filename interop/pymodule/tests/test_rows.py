"""Cases in which the peers of DLPack and SUAI disagree: a test for each row that the other files do not cover."""

import ctypes as ct

import pytest

import capi
import usmbridge as ub
from test_suai_in import Holder, Provider


@pytest.fixture
def shared(dpctl):
    return dpctl.memory.MemoryUSMShared(1024)


def managed(a, **kw):
    kw.setdefault("max_version", (1, 3))
    c = a.__dlpack__(**kw)
    return capi.tensor(c), c


# ---- DLPack ------------------------------------------------------------------------------


def everywhere(shape, dtype="float32"):
    return [ub.zeros(shape, dtype, device="host")] + [ub.zeros(shape, dtype, usm_type=k) for k in ("device", "shared", "host")]


def test_strides_and_deleter_are_always_there(device):
    for a in everywhere((2, 3)) + everywhere((0, 3)) + everywhere(7):
        for kw in (dict(), dict(max_version=None), dict(copy=True)):
            m, c = managed(a, **kw)
            assert m.deleter and m.t.strides and m.t.shape
    for a in everywhere(()):
        m, c = managed(a)
        assert m.deleter and not m.t.strides and not m.t.shape and not m.flags & 1


def test_alignment(device):
    """256 bytes unless another alignment is requested."""
    for size in (1, 3, 64, 1000, 100000):
        for a in everywhere(size, "uint8"):
            assert a._pointer % 256 == 0


def test_empty_usm_has_an_address(device, dpt, np):
    for a in everywhere((3, 0))[1:]:
        assert a.__sycl_usm_array_interface__["data"][0] and managed(a)[0].t.data
        assert dpt.from_dlpack(a).shape == (3, 0)
        assert managed(a, dl_device=(1, 0))[0].t.data is None
    assert managed(ub.zeros((3, 0), device="host"))[0].t.data is None


def test_byte_offset_as_dpnp_reads_it(device, dpt, np):
    """dpnp looks up the lowest address and honours byte_offset; both directions, strides of either sign."""
    x = dpt.reshape(dpt.arange(24, dtype="int32"), (4, 6))
    x.sycl_queue.wait()
    for key in ((slice(None, None, -1),), (slice(None), slice(None, None, -2)), (slice(1, 3), slice(2, 5)), (slice(None, None, -1), 3)):
        a = ub.from_dlpack(x)[key]
        want = dpt.asnumpy(x)[key]
        assert np.array_equal(a.asnumpy(), want)
        assert np.array_equal(dpt.asnumpy(dpt.from_dlpack(a)), want)
        b = ub.from_dlpack(x[key])
        assert b._pointer == a._pointer and b.strides == a.strides


def test_0d_of_dpnp_is_read_only(device, dpt):
    """dpnp flags 0-d exports as read-only. The flag is kept; exports of Array do not have it."""
    x = dpt.asarray(5.0)
    x.sycl_queue.wait()
    a = ub.from_dlpack(x)
    assert a.shape == () and a.asnumpy() == 5.0
    assert a.readonly == bool(capi.tensor(x.__dlpack__(max_version=(1, 0))).flags & 1)
    assert dpt.from_dlpack(ub.zeros(())).flags.writable


def test_read_only_crosses_the_protocols(device, shared, dpt):
    p = capi.Producer(shared._pointer, (4,), device=device.dlpack_device, flags=1)
    a = ub.from_dlpack(p)
    for v in (a, a[1:], a.reshape(2, 2), a.T, a[None], ub.from_dlpack(a), ub.from_usm_array_interface(a)):
        assert v.readonly and v.__sycl_usm_array_interface__["data"][1] is True and managed(v)[0].flags == 1
        assert memoryview(v).readonly and not dpt.asarray(v).flags.writable
        with pytest.raises(BufferError, match="read-only"):
            v.__dlpack__()
    b = ub.from_usm_array_interface(Holder(shared, data=(shared._pointer, True)))
    assert managed(b)[0].flags == 1 and managed(b, dl_device=(1, 0))[0].flags == 1


def test_numpy_imports(np, device):
    h, s = ub.zeros(3, device="host"), ub.zeros(3, usm_type="shared")
    legacy = type("L", (), {"__dlpack__": lambda self, **kw: h.__dlpack__(), "__dlpack_device__": lambda self: (1, 0)})()
    assert not np.from_dlpack(legacy).flags.writeable  # NumPy's rule for the legacy form
    assert np.from_dlpack(h).flags.writeable
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(s)


def test_keywords_of_consumers(device, dpctl, dpt, dpnp):
    """The keywords of the installed consumers, as they pass them."""
    asked = []

    class Spy:
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **kw):
            asked.append(kw)
            return self.a.__dlpack__(**kw)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    a = ub.zeros((2, 3), usm_type="shared")
    for consumer in (dpt, dpnp):
        for kw in ({}, dict(copy=True), dict(copy=False), dict(device=device.filter_string), dict(device=dpctl.SyclQueue(device.filter_string))):
            assert consumer.from_dlpack(Spy(a), **kw).shape == (2, 3)
    assert any(kw.get("max_version") == (1, 0) for kw in asked) or any("max_version" in kw for kw in asked)
    for kw in (dict(stream=-1), dict(), dict(stream=None, max_version=(1, 0), dl_device=a.__dlpack_device__(), copy=False)):
        assert a.__dlpack__(**kw)


def test_capsules_of_every_dpnp_layout(device, dpt):
    x = dpt.zeros((3, 4, 5), dtype="float32", usm_type="shared")
    x.sycl_queue.wait()
    for y in (x, dpt.permute_dims(x, (2, 0, 1)), x[1], x[:, ::2], x[..., -1], x[:0], x[1:2, :, 3:4]):
        m = capi.tensor(y.__dlpack__(max_version=(1, 0)))
        a = ub.from_dlpack(y)
        assert a._pointer == (m.t.data or 0) + m.t.byte_offset or a.size == 0
        assert list(a.shape) == m.t.shape[:a.ndim]


def test_default_context_by_either_spelling(device, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    inside = ub.zeros(3, sycl_queue=dpctl.SyclQueue(dpctl.SyclContext(d), d))
    outside = ub.zeros(3, sycl_queue=dpctl.SyclQueue(dpctl.SyclContext([d]), d))
    assert inside.__dlpack_device__() == device.dlpack_device
    assert outside.__dlpack_device__() == device.dlpack_device
    for ask in (outside.__dlpack__, lambda: ub.from_dlpack(outside)):
        with pytest.raises(BufferError, match="default context") as e:
            ask()
        # the message names both contexts and the solution
        assert str(e.value).count("context") >= 2 and "copy=True" in str(e.value)
        assert len({w for w in str(e.value).replace(",", " ").replace(";", " ").replace(")", " ").split() if w.startswith("0x")}) >= 2
    assert managed(outside, copy=True)[0].t.device_id == device.dlpack_device[1]
    assert dpctl.memory.as_usm_memory(outside)._pointer == outside._pointer


def test_partitions(device, dpctl):
    """Sub-devices: SUAI always works; DLPack names the parent if the memory is in its default context."""
    d = dpctl.SyclDevice(device.filter_string)
    try:
        parts = d.create_sub_devices(partition=1)
        q = dpctl.SyclQueue(dpctl.SyclContext([parts[0]]), parts[0])
    except Exception as e:
        pytest.skip("the device cannot be cut: %s" % type(e).__name__)
    for syclobj in (q, q.sycl_context, q._get_capsule(), q.sycl_context._get_capsule(), Provider(q)):
        a = ub.zeros(8, usm_type="shared", sycl_queue=syclobj)
        assert a.asnumpy().tolist() == [0] * 8
        assert dpctl.memory.as_usm_memory(a)._pointer == a._pointer
        assert ub.from_usm_array_interface(Holder(a))._pointer == a._pointer
        with pytest.raises(BufferError, match="context"):
            a.__dlpack__()
        assert managed(a, dl_device=(1, 0))[0].t.data == a._pointer


# ---- the USM array interface -----------------------------------------------------------------


def test_queues_of_every_property(device, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    for properties in ((), ("in_order",), ("enable_profiling",), ("in_order", "enable_profiling")):
        q = dpctl.SyclQueue(d, property=properties)
        for form in (lambda: q, lambda: q.sycl_context, lambda: device.filter_string, q._get_capsule, q.sycl_context._get_capsule, lambda: Provider(q), lambda: Provider(q.sycl_context)):
            for make in (ub.empty, ub.zeros):
                syclobj = form()
                a = make((2, 3), usm_type="shared", sycl_queue=syclobj)
                assert a.shape == (2, 3) and a.device == device and a.sycl_context == q.sycl_context
        a = ub.zeros(3, usm_type="shared", sycl_queue=q)
        capi.tensor(a.__dlpack__(stream=q))


def test_capsules_are_renamed_when_used_and_only_then(shared, device, dpctl):
    q = dpctl.SyclQueue(device.filter_string)
    for make, used in ((q._get_capsule, b"used_SyclQueueRef"), (q.sycl_context._get_capsule, b"used_SyclContextRef")):
        for take in (lambda c: ub.from_usm_array_interface(Holder(shared, syclobj=c)), lambda c: ub.empty(3, sycl_queue=c)):
            c = make()
            before = capi.name(c)
            a = take(c)
            assert capi.name(c) == used and before != used
            with pytest.raises(ValueError, match="consumed"):
                take(c)
            del c
            assert a.sycl_queue.sycl_context == q.sycl_context
        c = make()
        with pytest.raises(ValueError):
            ub.from_usm_array_interface(Holder(shared, shape=(-1,), syclobj=c))
        assert capi.name(c) == before
        with pytest.raises((ValueError, MemoryError)):
            ub.empty(1 << 50, sycl_queue=c)
        assert capi.name(c) == before


@pytest.mark.parametrize("typestr, dtype", [
    ("<f4", "float32"), ("=f4", "float32"), ("|f8", "float64"), ("|i4", "int32"), ("|u1", "uint8"), ("<u1", "uint8"),
    ("|b1", "bool"), ("=b1", "bool"), ("<c8", "complex64"), ("|c16", "complex128"), ("<f2", "float16"), ("<i8", "int64"),
])
def test_type_strings_of_either_order_mark(shared, typestr, dtype):
    a = ub.from_usm_array_interface(Holder(shared, shape=(2,), typestr=typestr, data=(shared._pointer, False)))
    assert a.dtype == dtype
    order = a.__sycl_usm_array_interface__["typestr"][0]
    assert order == ("|" if a.itemsize == 1 else "<")


def test_true_means_writable_for_some_producers(shared, dpctl):
    """dpctl.memory and oneDAL write True for writable; all other producers for read-only."""
    assert shared.__sycl_usm_array_interface__["data"][1] is True and not ub.from_usm_array_interface(shared).readonly
    table = type("homogen_table", (Holder,), {"__module__": "onedal._onedal_py_dpc"})
    for flag in (True, False):
        d = [shared._pointer, flag]
        assert ub.from_usm_array_interface(table(shared, data=d)).readonly is not flag
        assert ub.from_usm_array_interface(Holder(shared, data=tuple(d))).readonly is flag


def test_context_with_ordinary_memory(shared, np, dpctl, device):
    """dpctl ends the process in this case."""
    x = np.zeros(16)
    c = dpctl.SyclQueue(device.filter_string).sycl_context
    for syclobj in (c, c._get_capsule()):
        for pointer in (x.ctypes.data, 4096, (1 << 47) - 4096, (1 << 63) + 4096):
            with pytest.raises(ValueError):
                ub.from_usm_array_interface(Holder(shared, data=(pointer, False), syclobj=syclobj))


def test_every_view_for_dpctl_and_dpnp(device, dpctl, dpt, np):
    a = ub.asarray(np.arange(48, dtype="float32").reshape(4, 6, 2), usm_type="shared")
    for key in ((), 1, (slice(None), 2), (slice(1, 3), slice(None, None, 2)), (0, 0, 0), (Ellipsis, slice(1, 2)), slice(0, 0)):
        v = a[key]
        t = dpt.asarray(v)
        assert t.shape == v.shape and np.array_equal(dpt.asnumpy(t), a.asnumpy()[key])
        if v.size:
            assert t.__sycl_usm_array_interface__["data"][0] + t.itemsize * t.__sycl_usm_array_interface__.get("offset", 0) == v._pointer
            back = ub.from_usm_array_interface(t)
            assert (back._pointer, back.shape) == (v._pointer, v.shape)


def test_no_interface_for_types_without_a_string(device):
    for dtype in ("bfloat16", "float8_e4m3fn", "float4_e2m1fn", "float6_e3m2fn"):
        a = ub.zeros(8, dtype)
        assert not hasattr(a, "__sycl_usm_array_interface__") and a.typestr is None
        with pytest.raises(AttributeError, match=dtype):
            a.__sycl_usm_array_interface__
        assert ub.from_dlpack(a).dtype == dtype


# ---- the buffer protocol --------------------------------------------------------------------------


def test_buffer_requests(device):
    """Each flag of PEP 3118, on layouts that have and do not have the requested property."""

    class Buffer(ct.Structure):
        _fields_ = [("buf", ct.c_void_p), ("obj", ct.c_void_p), ("len", ct.c_ssize_t), ("itemsize", ct.c_ssize_t), ("readonly", ct.c_int),
                    ("ndim", ct.c_int), ("format", ct.c_char_p), ("shape", ct.c_void_p), ("strides", ct.c_void_p),
                    ("suboffsets", ct.c_void_p), ("internal", ct.c_void_p)]

    get = ct.pythonapi.PyObject_GetBuffer
    get.argtypes = [ct.py_object, ct.POINTER(Buffer), ct.c_int]
    release = ct.pythonapi.PyBuffer_Release
    release.argtypes = [ct.POINTER(Buffer)]
    WRITABLE, FORMAT, ND, STRIDES, C, F, ANY, INDIRECT = 1, 4, 8, 0x18, 0x38, 0x58, 0x98, 0x118
    a = ub.zeros((3, 4), "float32", device="host")
    arrays = {"c": a, "f": a.T, "none": a[::2, ::2], "both": a[0]}
    fits = {0: {"c", "both"}, ND: {"c", "both"}, STRIDES: set(arrays), C: {"c", "both"}, F: {"f", "both"}, ANY: {"c", "f", "both"}, INDIRECT: set(arrays)}
    for flags, ok in fits.items():
        for name, x in arrays.items():
            for extra in (0, FORMAT, WRITABLE, FORMAT | WRITABLE):
                b = Buffer()
                if name not in ok:
                    with pytest.raises(BufferError):
                        get(x, ct.byref(b), flags | extra)
                    assert not b.obj
                    continue
                assert get(x, ct.byref(b), flags | extra) == 0
                assert (b.buf, b.len, b.itemsize, b.readonly) == (x._pointer, x.nbytes, 4, 0)
                assert b.format == (b"f" if extra & FORMAT else None)
                assert bool(b.shape) == bool(flags & ND) and bool(b.strides) == (flags & STRIDES == STRIDES) and not b.suboffsets
                release(ct.byref(b))
    with pytest.raises(BufferError, match="device"):
        memoryview(ub.zeros(3, usm_type="device"))
