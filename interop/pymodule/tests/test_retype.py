"""view, as_readonly, and new arrays with values, compared with NumPy. robust/test_values.py has astype."""

import pytest
from conftest import sycl_device

import usmbridge as ub


def test_view_of_narrow_types(np):
    raw = np.arange(16, dtype="uint8").reshape(2, 8)
    for where in (dict(device="host"), dict(device=sycl_device())):
        a = ub.asarray(raw, copy=True, **where)
        for dtype, n in (("int4", 16), ("float4_e2m1fn", 16), ("uint1", 64), ("int2", 32), ("bfloat16", 4), ("float8_e5m2", 8)):
            v = a.view(dtype)
            assert v.shape == (2, n) and v.dtype == dtype and v._pointer == a._pointer and v.nbytes == 16 and v.usm_type == a.usm_type
            assert np.array_equal(v.view("uint8").asnumpy(), raw)
        assert a.view("int4")[0, 2:6].tolist() == [1, 0, 2, 0]
        with pytest.raises(ValueError):
            a.view("float6_e2m3fn")
        assert a[0, :6].view("float6_e2m3fn").shape == (8,) and a[0, 2:5].view("float6_e3m2fn").nbytes == 3
    for v in (a.view(), a.view(None), a.view(dtype=None)):
        assert v.dtype == a.dtype and v.shape == a.shape and v._pointer == a._pointer and v is not a
    with pytest.raises(ValueError, match="0-d"):
        ub.asarray(1.0).view("int8")
    assert ub.asarray(1.0).view("int64").item() == 0x3FF0000000000000


def test_view_keeps_readonly_and_memory(np):
    a = ub.zeros(4, "float64", device="host").as_readonly()
    assert a.view("int32").readonly and a.view("float64").readonly
    v = ub.asarray(np.arange(17, dtype="uint8"), copy=True)[1:].view("int64")  # begins inside an element
    b = v.copy()
    assert v.tolist() == b.tolist() == np.arange(1, 17, dtype="uint8").view("int64").tolist()
    v[0] = 0
    assert v.tolist()[0] == 0


def test_arguments_of_astype(np):
    a = ub.asarray(np.arange(6).reshape(2, 3), device="host")
    for bad in ((), ("nonsense",), ("int8", True), (5,)):
        with pytest.raises(TypeError):
            a.astype(*bad)


def test_ones_and_full(np):
    for where in ({}, dict(device="host"), dict(usm_type="shared", device=sycl_device())):
        assert ub.ones(3, **where).dtype == "float64" and ub.full((2, 3), 1, "int8", order="F", **where).strides == (1, 2)
        for value in (True, 5, 2.5, 1j, np.float32(3), np.int8(-1), np.arange(3), [1, 2, 3], ub.asarray([1.5, 2, 3])):
            a, x = ub.full((2, 3), value, **where), np.full((2, 3), np.asarray(value))
            assert a.dtype == x.dtype.name and np.array_equal(a.asnumpy(), x), (where, value)
    assert ub.full((2, 2), fill_value=7, dtype="int8").tolist() == [[7, 7], [7, 7]] and ub.full(2, 1, order="F").strides == (1,)
    assert ub.full((), 3).item() == 3 and ub.full((0, 2), 1).shape == (0, 2)
    for bad in (((2,),), ((2,), "x"), ((2,), 1, "nonsense"), ((2,), [1, 2, 3]), (-1, 0), ((2,), 1, "int8", 5)):
        with pytest.raises((TypeError, ValueError)):
            ub.full(*bad)
    with pytest.raises(OverflowError):
        ub.full(3, 300, "int8")


def test_like(np, dpt):
    x = np.arange(6, dtype="int16").reshape(2, 3)
    a = ub.asarray(x, usm_type="host", device=sycl_device())
    for f in (ub.zeros_like, ub.ones_like, ub.empty_like, lambda a, **k: ub.full_like(a, 7, **k)):
        assert f(a, device="host").usm_type is None and f(a, usm_type="shared").usm_type == "shared" and f(a).device == a.device
    assert ub.zeros_like(x).device == "host" and ub.ones_like([1.5, 2]).tolist() == [1, 1] and ub.zeros_like(dpt.asarray([1, 2])).usm_type == "device"
    assert ub.full_like(x, fill_value=2).tolist() == [[2] * 3] * 2
    for bad in (lambda: ub.zeros_like(), lambda: ub.zeros_like(a, "int8"), lambda: ub.full_like(a), lambda: ub.ones_like(a, order="X"), lambda: ub.ones_like(a, order=5),
                lambda: ub.ones_like(a, fill_value=1), lambda: ub.empty_like(a, usm_type="shared", device="host"), lambda: ub.empty_like(object())):
        with pytest.raises((TypeError, ValueError)):
            bad()
    for source in (a, x):
        for order, error in (("X", ValueError), (None, TypeError), (np.array(["K", "A"]), TypeError)):
            with pytest.raises(error, match="order must be C, F, A or K"):
                ub.ones_like(source, order=order)
        for kind, error in (("", ValueError), (0, TypeError), (False, TypeError)):
            with pytest.raises(error, match="usm_type must be"):
                ub.zeros_like(source, usm_type=kind)


def test_full_takes_each_form_of_a_queue(dpctl):
    q = dpctl.SyclQueue()
    for form in (q, q._get_capsule(), q.sycl_context, "host"):
        a = ub.full(3, 2, sycl_queue=form)  # the value gives the type: a capsule must be read once only
        assert a.tolist() == [2] * 3 and a.dtype == "int64" and (a.usm_type is None if form == "host" else a.sycl_context == q.sycl_context)


def test_like_keeps_the_queue(dpctl):
    q = dpctl.SyclQueue()
    a = ub.zeros(3, sycl_queue=q)
    assert ub.ones_like(a).sycl_queue is q and ub.empty_like(a, sycl_queue=q).sycl_queue is q
