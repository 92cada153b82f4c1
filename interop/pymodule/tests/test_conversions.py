"""One memory through several libraries and both protocols: address, layout, flags and owners."""

import itertools

import pytest

import usmbridge as ub


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize("key", [(), slice(1, 3), (slice(None), slice(None, None, 2)), (Ellipsis, 0), slice(0, 0), (slice(None, None, -1),)])
@pytest.mark.parametrize("readonly", [False, True])
def test_both_protocols_agree(device, kind, key, readonly):
    a = ub.empty((4, 6), "float64", usm_type=kind)[key]
    if readonly:
        holder = type("H", (), {})()
        d = dict(a.__sycl_usm_array_interface__)
        holder.a, holder.__sycl_usm_array_interface__ = a, dict(d, data=(d["data"][0], True))
        a = ub.from_usm_array_interface(holder)
    suai = type("S", (), {"__sycl_usm_array_interface__": a.__sycl_usm_array_interface__, "a": a})()
    one = ub.from_usm_array_interface(suai)
    two = ub.from_dlpack(one.__dlpack__(max_version=(1, 3)))
    three = ub.from_usm_array_interface(two)
    four = ub.from_dlpack(type("D", (), {"__dlpack__": lambda self, **kw: three.__dlpack__(**kw)})())
    for x in (one, two, three, four):
        assert (x._pointer, x.shape, x.dtype, x.usm_type, x.readonly, x.device) == (a._pointer, a.shape, a.dtype, kind, readonly, device)
        if a.size:
            assert x.strides == a.strides


def test_dpctl_ours_dpnp_ours_dpctl(device, dpctl, dpt):
    m = dpctl.memory.MemoryUSMShared(24 * 4)
    b = ub.asarray(m)
    typed = type("T", (), {"__sycl_usm_array_interface__": dict(m.__sycl_usm_array_interface__, shape=(4, 6), typestr="<f4", data=(m._pointer, False)), "m": m})()
    b = ub.from_usm_array_interface(typed)
    c = dpt.from_dlpack(b)
    d = ub.from_dlpack(c)
    e = dpt.asarray(d)
    f = ub.asarray(e)
    g = dpctl.memory.as_usm_memory(f)
    assert {m._pointer, b._pointer, c.usm_data._pointer, d._pointer, e.usm_data._pointer, f._pointer, g._pointer} == {m._pointer}
    assert f.shape == (4, 6)


def test_any_order_of_release(device, dpt):
    """The last holder gives the memory back, once, in any order of release."""
    for order in itertools.permutations(range(5)):
        a = ub.zeros(8, usm_type="shared")
        b = dpt.from_dlpack(a)
        c = ub.from_dlpack(b)
        d = ub.from_usm_array_interface(c)
        e = c.__dlpack__(max_version=(1, 0))
        held = [a, b, c, d, e]
        p = a._pointer
        del a, b, c, d, e
        for i in order:
            held[i] = None
            for x in held:
                if isinstance(x, ub.Array):
                    assert x._pointer == p and x.asnumpy().tolist() == [0] * 8


def test_work_on_one_memory(device, np, dpt):
    a = ub.zeros((3, 4), usm_type="shared")
    n = np.from_dlpack(a, device="cpu")
    n[:] = np.arange(12).reshape(3, 4)
    x = dpt.from_dlpack(a)
    x *= 2
    x.sycl_queue.wait()
    assert a.asnumpy().tolist() == (np.arange(12).reshape(3, 4) * 2).tolist()
    assert memoryview(a).tolist() == n.tolist()
    assert a[1, ::-1].asnumpy().tolist() == [14, 12, 10, 8]
