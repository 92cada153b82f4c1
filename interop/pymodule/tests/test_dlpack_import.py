"""from_dlpack: the behaviours of producers, one for each row of the table of disagreements."""

import itertools

import pytest

import capi
import usmbridge as ub
from conftest import peer


def values(a):
    return a.asnumpy().tolist()


@pytest.mark.parametrize("versioned", [True, False])
def test_object_and_capsule(np, floats, versioned):
    p = capi.Producer(floats, (2, 3), versioned=versioned)
    a = ub.from_dlpack(p)
    assert p.asked == [{"max_version": (1, 3)}]
    assert values(a) == [[0, 1, 2], [3, 4, 5]] and a.readonly == (not versioned)  # a tensor without flags may be read-only
    c = capi.Producer(floats, (2,), versioned=versioned).capsule()
    ub.from_dlpack(c)
    with pytest.raises(BufferError, match="consumed"):
        ub.from_dlpack(c)


def test_legacy_tensors_are_read_only(floats, np, tvm_ffi):
    p = capi.Producer(floats, versioned=False)
    a = ub.asarray(p)
    assert a.readonly and memoryview(a).readonly and not np.asarray(a).flags.writeable and a[1:].readonly
    assert ub.from_dlpack(capi.Producer(floats, versioned=False).capsule()).readonly
    with pytest.raises(TypeError):
        memoryview(a)[0] = 1
    assert not a.copy().readonly
    # Types that are known to report it, or to have no read-only memory.
    h = ub.zeros(3, device="host")
    assert not ub.from_dlpack(h.__dlpack__()).readonly
    assert not ub.from_dlpack(tvm_ffi.from_dlpack(np.zeros(3, "float32"))).readonly
    x = np.zeros(3)
    assert not ub.from_dlpack(x).readonly
    x.flags.writeable = False
    assert ub.from_dlpack(x).readonly
    older = type("Tensor", (), {"__module__": "torch", "__dlpack__": lambda self, **kw: h.__dlpack__(**kw)})
    assert not ub.from_dlpack(older()).readonly


def test_older_producer_without_keywords(floats):
    p = capi.Producer(floats, versioned=False, keywords=False)
    a = ub.from_dlpack(p)
    assert p.asked == [{"max_version": (1, 3)}, {}] and a.size == 4


def test_errors_of_the_producer_pass():
    class Mine(Exception):
        pass

    for error in (Mine("x"), BufferError("no"), RuntimeError("no"), KeyboardInterrupt()):
        class P:
            def __dlpack__(self, **kw):
                raise error

        with pytest.raises(type(error)) as e:
            ub.from_dlpack(P())
        assert e.value is error

    class T:
        def __dlpack__(self, **kw):
            raise TypeError("mine" if kw else "mine without keywords")

    with pytest.raises(TypeError, match="mine without"):
        ub.from_dlpack(T())

    class A:
        def __dlpack__(self, **kw):
            return self.missing

    with pytest.raises(AttributeError, match="missing"):
        ub.from_dlpack(A())


@pytest.mark.parametrize("x", [1, None, [1, 2], b"abc", "text", object()])
def test_no_dlpack(x):
    with pytest.raises(TypeError, match="__dlpack__"):
        ub.from_dlpack(x)


@pytest.mark.parametrize("result", [None, 5, "capsule", object()])
def test_no_capsule(result):
    class P:
        def __dlpack__(self, **kw):
            return result

    with pytest.raises(TypeError, match="capsule"):
        ub.from_dlpack(P())


def test_capsule_of_another_name():
    c = capi.py.PyCapsule_New(0x1000, b"something", None)
    with pytest.raises(BufferError, match="something"):
        ub.from_dlpack(c)


def refused(match=None, **kw):
    """A tensor that must be refused: the capsule stays with its owner, and the deleter runs at most once."""
    p = capi.Producer(**kw)
    c = p.capsule()
    before = capi.name(c)
    with pytest.raises(BufferError, match=match):
        ub.from_dlpack(c)
    assert capi.name(c) == before and p.deleted == 0
    with pytest.raises(BufferError, match=match):
        ub.from_dlpack(p)


def test_refused(floats):
    """The reasons. robust/test_dlpack.py draws the fields."""
    for why, fields in (("version", dict(version=(2, 0))), ("version", dict(version=(0, 8))), ("lanes", dict(dtype=(2, 32, 4))), ("bools are 8 bits", dict(dtype=(6, 1, 1))),
                        ("type", dict(dtype=(3, 64, 1))), ("type", dict(dtype=(2, 33, 1))), ("dimension|ndim", dict(ndim=65)), ("align|multiple", dict(byte_offset=6)),
                        *(("device", dict(device=(kind, 0))) for kind in (2, 3, 4, 7, 8, 10, 12, 13, 15, 17, 18, 0, 99))):
        refused(why, data=floats, **fields)


def test_oneapi_refused(device, floats):
    n = len(ub.devices()) - 1
    for bad in (-1, n, 1 << 30):
        refused(r"14, %d" % bad, data=floats, device=(14, bad))
    refused("unified shared memory", data=floats, device=device.dlpack_device)  # ordinary memory
    a = ub.empty(16, "float32", usm_type="device")
    refused("span|last byte|beyond", data=a._pointer, device=device.dlpack_device, shape=(1 << 20,))
    refused(data=a._pointer, device=device.dlpack_device, shape=(4,), strides=(-1 << 20,))
    p = capi.Producer(a._pointer, (16,), device=device.dlpack_device)
    b = ub.from_dlpack(p)
    assert b.usm_type == "device" and b._pointer == a._pointer and b.device == device
    assert p.deleted == 1  # the memory is known by the other Array, and held by it


def test_another_context(device, dpctl, separate):
    if not separate:
        pytest.skip("the contexts of the device share its memory")
    d = dpctl.SyclDevice(device.filter_string)
    q = dpctl.SyclQueue(dpctl.SyclContext([d]), d)
    a = ub.empty(16, sycl_queue=q)
    refused(data=a._pointer, device=device.dlpack_device)


def test_oneapi_size_0(device):
    for data in (0, ub.empty(4)._pointer * 0):
        p = capi.Producer(data, (0, 3), device=device.dlpack_device)
        a = ub.from_dlpack(p)
        assert p.deleted == 1 and a._pointer and a.device == device and a.shape == (0, 3)
        assert a.__sycl_usm_array_interface__["data"][0]


def test_device_and_copy(np, device):
    x = np.arange(3.0)
    a = ub.from_dlpack(x, device="host")
    assert a._pointer == x.ctypes.data
    a = ub.from_dlpack(x, copy=True)
    assert a._pointer != x.ctypes.data and values(a) == [0, 1, 2]
    a = ub.from_dlpack(x, copy=False)
    assert a._pointer == x.ctypes.data
    for dev in (device, device.filter_string):
        a = ub.from_dlpack(x, device=dev)
        assert a.device == device and values(a) == [0, 1, 2]
        with pytest.raises(BufferError):
            ub.from_dlpack(x, device=dev, copy=False)
        b = ub.from_dlpack(a, device=dev)
        assert b._pointer == a._pointer
    s = ub.asarray([1, 2], usm_type="shared")
    h = ub.from_dlpack(s, device="host", copy=False)
    assert h._pointer == s._pointer and h.device == "host" and h.usm_type is None
    d = ub.asarray([1, 2], usm_type="device")
    assert values(ub.from_dlpack(d, device="host")) == [1, 2]
    with pytest.raises(BufferError):
        ub.from_dlpack(d, device="host", copy=False)
    for bad in (dict(device="no:such:device"), dict(device="gpu:99")):
        with pytest.raises(ValueError):
            ub.from_dlpack(x, **bad)
    with pytest.raises(TypeError):
        ub.from_dlpack(x, device=(1, 0))
    with pytest.raises(TypeError):
        ub.from_dlpack()
    with pytest.raises(TypeError):
        ub.from_dlpack(x, x)


class Wrapped:
    """A producer that is no Array."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **kw):
        return self.a.__dlpack__(**kw)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


class Old(Wrapped):
    """The same without the keywords of 2024.12, so that it cannot be asked for the host."""

    def __dlpack__(self, stream=None):
        return self.a.__dlpack__(stream=stream)


def of_dpnp(a):
    return pytest.importorskip("dpnp.tensor").asarray(a)


# Whether from_dlpack shares (S), copies (C) or refuses (-) memory outside its platform's default context, for copy=None, True and
# False: readable on the host, or only on the device.
OTHER_CONTEXT = [
    # producer, device, readable, not readable
    (ub.asarray, "host", "SCS", "CC-"),
    (ub.asarray, "device", "CC-", "CC-"),
    (ub.asarray, "queue", "SCS", "SCS"),
    (ub.asarray, None, "-C-", "-C-"),
    (Wrapped, "host", "SCS", "CC-"),
    (Wrapped, None, "---", "---"),
    (of_dpnp, "host", "CC-", "CC-"),
    (Old, "host", "---", "---"),
]


@pytest.mark.parametrize("make, place, readable, not_readable", OTHER_CONTEXT)
@pytest.mark.parametrize("kind", ["shared", "host", "device"])
def test_outside_the_default_context(device, dpctl, make, place, readable, not_readable, kind):
    d = dpctl.SyclDevice(device.filter_string)
    q = dpctl.SyclQueue(dpctl.SyclContext([d]), d)
    a = ub.asarray([1.0, 2.0, 3.0], usm_type=kind, device=q)
    options = {} if place is None else {"device": {"host": "host", "device": device, "queue": q}[place]}
    found = ""
    for copy in (None, True, False):
        try:
            b = ub.from_dlpack(make(a), copy=copy, **options)
        except Exception as e:  # dpnp has a class of its own
            assert "copy" in str(e) or "context" in str(e)
            found += "-"
            continue
        assert values(b) == [1, 2, 3] and (b.usm_type is None) == (place == "host")
        found += "S" if b._pointer == a._pointer else "C"
    assert found == (not_readable if kind == "device" else readable)


def test_far_device_asks_its_owner(floats):
    class Far(capi.Producer):
        def __dlpack__(self, **kw):
            self.asked.append(kw)
            assert kw["dl_device"] == (1, 0)
            self.m.t.device_type = 1
            return self.capsule()

    p = Far(floats, device=(2, 0))
    a = ub.from_dlpack(p, device="host")
    # With a CUDA device the memory is imported first, if that is possible.
    assert a.device == "host" and p.asked[-1] == {"max_version": (1, 3), "dl_device": (1, 0), "copy": None}


@pytest.mark.parametrize("device", [(-1, 0), (-(1 << 31), 0), (0, 0)])
def test_an_unknown_device_type(floats, device):
    for kw in (dict(device="host"), dict(device="host", copy=True), {}):
        with pytest.raises(BufferError, match="device"):
            ub.from_dlpack(capi.Producer(floats, device=device), **kw)


def test_asarray_uses_the_buffer_of_read_only_arrays(np):
    """NumPy before 2.1 refuses to export read-only arrays, because its tensors have no such flag."""

    class Old(bytearray):
        def __dlpack__(self, **kw):
            raise BufferError("it is read-only, which this tensor cannot tell")

        def __dlpack_device__(self):
            return (1, 0)

    o = Old(b"abc")
    a = ub.asarray(o)
    assert values(a) == [97, 98, 99] and a.dtype == "uint8"
    o[0] = 1  # the same memory
    assert a[0].item() == 1
    with pytest.raises(BufferError, match="cannot tell"):
        ub.from_dlpack(o)
    with pytest.raises(BufferError, match="byte order"):
        ub.from_dlpack(np.arange(3, dtype=">i4"))


def test_layouts_of_dpnp(device, dpt, np):
    """dpnp looks up the lowest address and honours byte_offset; both directions, strides of either sign."""
    if device.backend != "opencl":
        pytest.skip("dpnp has kernels for OpenCL alone")
    keys = (..., 1, np.s_[::-1], np.s_[:, ::-2], np.s_[:, ::2], np.s_[1:3, 2:4], np.s_[::-1, 3], np.s_[..., -1], np.s_[:0], np.s_[1:2, :, 3:4])
    for kind, key in itertools.product(("device", "shared", "host"), keys):
        x = dpt.reshape(dpt.arange(60, dtype="int32", usm_type=kind), (3, 4, 5))
        x.sycl_queue.wait()
        a, want = ub.from_dlpack(x)[key], dpt.asnumpy(x)[key]
        assert np.array_equal(a.asnumpy(), want) and np.array_equal(dpt.asnumpy(dpt.from_dlpack(a)), want)
        m, b = capi.tensor(x[key].__dlpack__(max_version=(1, 0))), ub.from_dlpack(x[key])
        assert b.usm_type == dpt.from_dlpack(a).usm_type == kind and b.shape == want.shape and (a.size == 0 or (b._pointer, b.strides) == (a._pointer, a.strides) and b._pointer == m.t.data + m.t.byte_offset)
    y = ub.from_dlpack(dpt.permute_dims(x, (2, 0, 1)))
    assert (y.shape, y.strides) == ((5, 3, 4), (1, 20, 5))


def test_0d_of_dpnp_is_read_only(device, dpt):
    """dpnp flags 0-d exports as read-only. The flag is kept; exports of Array do not have it."""
    x = dpt.asarray(5.0)
    x.sycl_queue.wait()
    a = ub.from_dlpack(x)
    assert a.shape == () and a.asnumpy() == 5.0
    assert a.readonly == bool(capi.tensor(x.__dlpack__(max_version=(1, 0))).flags & 1)
    assert dpt.from_dlpack(ub.zeros(())).flags.writable


def test_array_api_strict(np):
    xp = peer("array_api_strict")
    a = ub.asarray(np.arange(6, dtype="float64").reshape(2, 3))
    x = xp.from_dlpack(a)
    assert x.shape == (2, 3) and np.from_dlpack(x).ctypes.data == a._pointer
    b = ub.from_dlpack(x)
    assert b._pointer == a._pointer
    assert ub.asarray(x)._pointer == a._pointer
    assert xp.from_dlpack(a, copy=True).shape == (2, 3)
