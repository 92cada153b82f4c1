"""__sycl_usm_array_interface__ of Array, as the peers read it."""

import pytest
from conftest import run

import usmbridge as ub


KEYS = {"shape", "typestr", "typedescr", "data", "strides", "offset", "version", "syclobj"}


def test_dictionary(device):
    for kind in ("device", "shared", "host"):
        a = ub.empty((2, 3), "float32", usm_type=kind, device=device)
        d = a.__sycl_usm_array_interface__
        assert type(d) is dict and set(d) == KEYS
        assert d["shape"] == (2, 3) and d["typestr"] == "<f4" and d["typedescr"] == [("", "<f4")]
        assert d["data"] == (a._pointer, False) and d["strides"] is None and d["offset"] == 0
        assert d["version"] == 1 and type(d["version"]) is int
        assert type(d["data"]) is tuple and type(d["data"][1]) is bool


def test_layouts(device):
    a = ub.empty((4, 6, 2), "int16")
    p = a._pointer
    everything = slice(None)
    cases = [
        ((), p, (4, 6, 2), None),
        (slice(1, 3), p + 2 * 12, (2, 6, 2), None),
        (slice(None, None, -1), p + 2 * 36, (4, 6, 2), (-12, 2, 1)),
        ((everything, slice(1, None, 2)), p + 2 * 2, (4, 3, 2), (12, 4, 1)),
        ((0, 0, 0), p, (), None),
        (slice(0, 0), p, (0, 6, 2), None),
        ((slice(0, 1), slice(None, None, 6)), p, (1, 1, 2), None),
    ]
    for key, data, shape, strides in cases:
        v = a[key]
        d = v.__sycl_usm_array_interface__
        assert d["data"][0] == data and d["shape"] == shape and d["strides"] == strides and d["offset"] == 0
    assert a.T.__sycl_usm_array_interface__["strides"] == (1, 2, 12)


def test_none_on_the_host():
    a = ub.empty(3, device="host")
    assert not hasattr(a, "__sycl_usm_array_interface__")
    with pytest.raises(AttributeError, match="host"):
        a.__sycl_usm_array_interface__
    with pytest.raises(AttributeError):
        ub.from_usm_array_interface(a)
    assert a.usm_type is None and a.sycl_queue is None and a.sycl_context is None and a.sycl_device is None


def test_syclobj_again_and_again(device, dpctl, dpt):
    a = ub.empty(16, usm_type="shared")
    d = a.__sycl_usm_array_interface__
    holder = type("H", (), {"__sycl_usm_array_interface__": d})()
    for _ in range(3):
        assert dpctl.memory.as_usm_memory(holder)._pointer == a._pointer
        assert dpt.asarray(holder).usm_data._pointer == a._pointer
        assert ub.from_usm_array_interface(holder)._pointer == a._pointer
    q = d["syclobj"]
    mine = dpctl.SyclQueue(q._get_capsule())
    assert mine.sycl_context == dpctl.SyclQueue(device.filter_string).sycl_context
    assert dpctl.SyclContext(q.sycl_context._get_capsule()) == mine.sycl_context
    assert q.sycl_device.filter_string == device.filter_string
    assert q is ub.empty(1).__sycl_usm_array_interface__["syclobj"]


def test_light_queues():
    """The objects for queues while dpctl is not loaded."""
    run(
        """
a, b = ub.empty(3), ub.empty(1)
if a.usm_type is None: sys.exit(0)
q, r = a.sycl_queue, b.__sycl_usm_array_interface__["syclobj"]
assert q == r and hash(q) == hash(r) and q != 1 and a.device.filter_string in repr(q)
assert q.sycl_device == a.device and q.sycl_context == a.sycl_context != q
c = ub.empty(3, sycl_queue=q._get_capsule())
assert c.sycl_queue == q and c.sycl_queue is c[1:].sycl_queue is c.__sycl_usm_array_interface__["syclobj"]
assert ub.empty(3, sycl_queue=c.sycl_queue).sycl_queue is c.sycl_queue
assert "dpctl" not in sys.modules
""",
        first="",
    )


def test_every_view_for_dpctl_and_dpnp(device, dpctl, dpt, dpnp, np):
    if device.backend != "opencl" or dpctl.SyclDevice(device.filter_string).sycl_platform.name == "Portable Computing Language":
        pytest.skip("dpnp copies views by kernels, which it has for OpenCL alone, and which PoCL cannot link")
    a = ub.asarray(np.arange(48, dtype="float32").reshape(4, 6, 2), usm_type="shared")
    m = dpctl.memory.as_usm_memory(a)
    assert m._pointer == a._pointer and m.nbytes == a.nbytes and m.get_usm_type() == "shared"
    for key in ((), 1, (slice(None), 2), (slice(1, 3), slice(None, None, 2)), (0, 0, 0), (Ellipsis, slice(1, 2)), slice(0, 0)):
        v = a[key]
        t = dpt.asarray(v)
        assert t.shape == v.shape and np.array_equal(dpt.asnumpy(t), a.asnumpy()[key]) and np.array_equal(dpnp.asnumpy(dpnp.asarray(v)), a.asnumpy()[key])
        if v.size:
            assert t.__sycl_usm_array_interface__["data"][0] + t.itemsize * t.__sycl_usm_array_interface__.get("offset", 0) == v._pointer
            back = ub.from_usm_array_interface(t)
            assert (back._pointer, back.shape) == (v._pointer, v.shape)
    t = dpt.asarray(a[1:3, ::2])
    t[0, 0, 0] = 99
    dpt.asnumpy(t)
    assert a.asnumpy()[1, 0, 0] == 99
