"""__dlpack__ and __dlpack_device__ of Array: negotiation, flags, devices, copies."""

import re
import weakref

import pytest

import capi
import usmbridge as ub
from robust.strategies import Number
from test_suai_in import Holder


def struct(a, **kw):
    kw.setdefault("max_version", (1, 3))
    c = a.__dlpack__(**kw)
    return capi.tensor(c), c


def everywhere(shape, dtype="float32"):
    return [ub.zeros(shape, dtype, device="host")] + [ub.zeros(shape, dtype, usm_type=k) for k in ("device", "shared", "host")]


def test_max_version():
    a = ub.empty((2, 3), "float32", device="host")
    for _ in range(2):  # the second call uses the cached version
        for version in (None, (0, 8)):
            assert capi.name(a.__dlpack__(max_version=version)) == capi.LEGACY
        for version in ((1, 0), (1, 3), (1, 9), (2, 0), [1, 0]):
            m, c = struct(a, max_version=version)
            assert capi.name(c) == capi.VERSIONED and (m.major, m.minor, m.flags) == (1, 3, 0)


def test_other_devices_take_a_copy(np, device):
    """robust/test_exports.py has all arguments."""
    h, d = ub.asarray([1.0, 2.0], device="host"), ub.asarray([1.0, 2.0], usm_type="device")
    for a, to in ((h, device.dlpack_device), (d, (1, 0))):
        with pytest.raises(BufferError, match="copy=False"):
            a.__dlpack__(dl_device=to, copy=False)
        m, c = struct(a, dl_device=to)
        assert m.flags == 2 and (m.t.device_type, m.t.device_id) == to and ub.from_dlpack(c).asnumpy().tolist() == [1, 2]
    assert np.from_dlpack(d, device="cpu").tolist() == [1, 2]
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(d)  # NumPy does not support kDLOneAPI


def test_arguments():
    """robust/test_exports.py draws them."""
    a = ub.empty(3, device="host")
    for wrong in (lambda: a.__dlpack__(nonsense=1), lambda: a.__dlpack__(None)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="max_version"):
        a.__dlpack__(max_version=(-1, 0))
    for dl_device in ((1 << 40, 0), (1, 1 << 40), (14, 1 << 40), (14, -1), (1, -1), (-(1 << 40), 7)):
        with pytest.raises(BufferError, match=rf"dl_device \({dl_device[0]}, {dl_device[1]}\)"):
            a.__dlpack__(dl_device=dl_device)


@pytest.mark.parametrize("stream", [0, 7, object(), 1.5, (1, 2)])
@pytest.mark.parametrize("kw", [{}, dict(copy=True), dict(dl_device=(1, 0))])
def test_bad_stream(device, stream, kw):
    """With or without work to order: nothing pending, host memory, a copy, a consumer on the host."""
    for a in (ub.empty(3), ub.empty(3, usm_type="shared"), ub.empty(3, device="host")):
        with pytest.raises(TypeError, match="stream"):
            a.__dlpack__(stream=stream, **kw)
        for filter in ("nonsense:device", "", "opencl:cpu:77"):
            with pytest.raises(ValueError, match="stream"):
                a.__dlpack__(stream=filter, **kw)


def test_stream_forms(device, dpctl):
    a = ub.empty(3)
    q = dpctl.SyclQueue()
    cap = q._get_capsule()
    for stream in (q, cap, a.sycl_queue, q.sycl_context, device.filter_string):
        a.__dlpack__(stream=stream)
    assert capi.name(cap) == b"used_SyclQueueRef"
    with pytest.raises(ValueError, match="consumed"):
        a.__dlpack__(stream=cap)


def test_strides_and_offsets(device):
    h, u = ub.zeros((6, 8), "float32", device="host"), ub.zeros((6, 8), "float32")
    for a, one in ((h, False), (u, True)):
        v = a[1:5:2, 2:]
        m, c = struct(v)
        assert m.t.data == a._pointer + 4 * 10 and m.t.byte_offset == 0 and m.t.strides[:2] == [16, 1]
        v = a[::-1, ::-2]
        m, c = struct(v)
        assert m.t.strides[:2] == [-8, -2]
        first = a._pointer + 4 * (5 * 8 + 7)
        assert m.t.data + m.t.byte_offset == v._pointer == first
        if one:  # consumers of kDLOneAPI look up the lowest address
            assert m.t.data == a._pointer + 4
        else:
            assert m.t.byte_offset == 0
        m, c = struct(a.T)
        assert m.t.strides[:2] == [1, 8]


def test_not_in_default_context(np, dpctl, device):
    own = dpctl.SyclContext([dpctl.SyclDevice(device.filter_string)])
    q = dpctl.SyclQueue(own, dpctl.SyclDevice(device.filter_string))
    a = ub.zeros(3, usm_type="shared", sycl_queue=q)
    assert a.__dlpack_device__() == device.dlpack_device  # so that a consumer can continue and ask for a copy
    for ask in (a.__dlpack__, lambda: a.__dlpack__(max_version=(1, 0))):
        with pytest.raises(BufferError, match=r"default context.*copy=True") as e:
            ask()
        assert len(set(re.findall("0x[0-9a-f]+", str(e.value)))) >= 2, "the message names both contexts"
    x = np.from_dlpack(a, device="cpu")
    assert x.tolist() == [0, 0, 0]
    m, c = struct(a, dl_device=a.__dlpack_device__())
    assert (m.t.device_type, m.t.device_id) == device.dlpack_device and m.flags == 2
    m, c = struct(a, copy=True)
    assert (m.t.device_type, m.t.device_id) == device.dlpack_device and m.flags == 2
    assert a.__sycl_usm_array_interface__["data"][0] == a._pointer
    # the host can read it in any context
    m, c = struct(a, dl_device=(1, 0))
    assert m.t.data == a._pointer and m.flags == 0
    with pytest.raises(BufferError):
        ub.from_dlpack(a)
    same = ub.zeros(3, sycl_queue=dpctl.SyclQueue(dpctl.SyclContext(dpctl.SyclDevice(device.filter_string)), dpctl.SyclDevice(device.filter_string)))
    assert same.__dlpack_device__() == device.dlpack_device


def test_types_without_a_typestr(device):
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn"):
        for dev in ("host", device):
            a = ub.zeros((4, 4), dtype, device=dev)
            b = ub.from_dlpack(a)
            assert b.dtype == dtype and b._pointer == a._pointer and b.typestr is None
            for name in ("__sycl_usm_array_interface__", "__array_interface__"):
                with pytest.raises(AttributeError):
                    getattr(a, name)
        with pytest.raises(BufferError):
            memoryview(ub.zeros(4, dtype, device="host"))


def test_only_plain_versions_are_remembered():
    a = ub.empty(3, device="host")
    number = Number(1)
    version = (number, 0)
    assert capi.name(a.__dlpack__(max_version=version)) == capi.VERSIONED
    number.value = 0
    assert capi.name(a.__dlpack__(max_version=version)) == capi.LEGACY
    kept = weakref.ref(number)
    del number, version
    assert kept() is None, "the caller's objects live no longer than the call"


def test_only_plain_keywords_are_remembered():
    class Name(str):
        pass

    a = ub.empty(3, device="host")
    key = Name("max_version")
    assert capi.name(a.__dlpack__(**{key: (1, 0)})) == capi.VERSIONED
    kept = weakref.ref(key)
    del key
    assert kept() is None


def test_alignment(device):
    """256 bytes unless another alignment is requested."""
    for size in (1, 3, 64, 1000, 100000):
        for a in everywhere(size, "uint8"):
            assert a._pointer % 256 == 0


def test_empty_usm_has_an_address(device, dpt, np):
    for a in everywhere((3, 0))[1:]:
        assert a.__sycl_usm_array_interface__["data"][0] and struct(a)[0].t.data
        assert dpt.from_dlpack(a).shape == (3, 0)
        assert struct(a, dl_device=(1, 0))[0].t.data is None
    assert struct(ub.zeros((3, 0), device="host"))[0].t.data is None


def test_read_only_crosses_the_protocols(device, dpctl, dpt):
    shared = dpctl.memory.MemoryUSMShared(64)
    p = capi.Producer(shared._pointer, (4,), device=device.dlpack_device, flags=1)
    a = ub.from_dlpack(p)
    for v in (a, a[1:], a.reshape(2, 2), a.T, a[None], ub.from_dlpack(a), ub.from_usm_array_interface(a)):
        assert v.readonly and v.__sycl_usm_array_interface__["data"][1] is True and struct(v)[0].flags == 1
        assert memoryview(v).readonly and not dpt.asarray(v).flags.writable
        with pytest.raises(BufferError, match="read-only"):
            v.__dlpack__()
    assert not ub.from_dlpack(capi.Producer(shared._pointer, (4,), device=device.dlpack_device)).readonly
    b = ub.from_usm_array_interface(Holder(shared, data=(shared._pointer, True)))
    assert struct(b)[0].flags == 1 and struct(b, dl_device=(1, 0))[0].flags == 1


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
    for copy in (False, True):
        assert (dpt.from_dlpack(Spy(a), copy=copy).usm_data._pointer == a._pointer) != copy
    assert dpt.asnumpy(dpt.from_dlpack(ub.asarray([1.0, 2.0], device="host"), device=device.filter_string)).tolist() == [1, 2]
    assert any(kw.get("max_version") == (1, 0) for kw in asked) or any("max_version" in kw for kw in asked)
    for kw in (dict(stream=-1), dict(), dict(stream=None, max_version=(1, 0), dl_device=a.__dlpack_device__(), copy=False)):
        assert a.__dlpack__(**kw)
