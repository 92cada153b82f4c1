"""Exchanges with the real peers in both directions, with the arguments that each of them passes."""

import threading

import pytest

import capi
import usmbridge as ub
from conftest import peer


def test_dpnp_both_ways(dpt, device, np):
    for kind in ("device", "shared", "host"):
        x = dpt.reshape(dpt.arange(24, dtype="int32", usm_type=kind), (2, 3, 4))
        x.sycl_queue.wait()  # DLPack does not order this: a producer finishes first
        for y in (x, x[:, 1], x[::-1], dpt.permute_dims(x, (2, 0, 1)), x[..., ::2], x[0, 0, 0], x[:0]):
            a = ub.from_dlpack(y)
            assert a.shape == y.shape and a.usm_type == kind and a.device == device
            assert a._pointer == y.__sycl_usm_array_interface__["data"][0] + 4 * y.__sycl_usm_array_interface__.get("offset", 0) or y.size == 0
            assert np.array_equal(a.asnumpy(), dpt.asnumpy(y))
            b = dpt.from_dlpack(a)
            assert b.shape == y.shape and np.array_equal(dpt.asnumpy(b), dpt.asnumpy(y))
            assert b.usm_type == kind


def test_dpnp_asks_with_everything(dpt, device):
    a = ub.zeros((2, 3), usm_type="shared")
    assert dpt.from_dlpack(a, copy=False).usm_data._pointer == a._pointer
    assert dpt.from_dlpack(a, copy=True).usm_data._pointer != a._pointer
    assert dpt.from_dlpack(a, device=device.filter_string).usm_data._pointer == a._pointer
    h = ub.asarray([[1.0, 2.0]])
    assert dpt.asnumpy(dpt.from_dlpack(h, device=device.filter_string)).tolist() == [[1, 2]]
    r = dpt.ones(3)
    r.sycl_queue.wait()
    r.flags.writable = False
    assert ub.from_dlpack(r).readonly and not dpt.from_dlpack(ub.from_dlpack(r)).flags.writable


def test_dpnp_array(dpnp, device, np):
    x = dpnp.arange(6, dtype="float32")
    x.sycl_queue.wait()
    for a in (ub.asarray(x), ub.from_dlpack(x), ub.from_usm_array_interface(x)):
        assert np.array_equal(a.asnumpy(), dpnp.asnumpy(x)) and a._pointer == x.get_array().usm_data._pointer
    holder = type(x)(shape=(6,), dtype="float32")
    d = x.__sycl_usm_array_interface__
    assert d["version"] == 1 and holder.shape == (6,)


def test_numpy_both_ways(np, device):
    for where in (dict(device="host"), dict(usm_type="shared")):
        a = ub.zeros((2, 3), "int64", **where)
        kw = {} if a.usm_type is None else dict(device="cpu")
        n = np.from_dlpack(a, **kw)
        n[:] = [[1, 2, 3], [4, 5, 6]]
        assert n.ctypes.data == a._pointer and a.asnumpy().tolist() == n.tolist()
        assert np.from_dlpack(a[::-1, ::2], **kw).tolist() == [[4, 6], [1, 3]]
        assert np.from_dlpack(a, copy=True, **kw).ctypes.data != a._pointer
        assert np.from_dlpack(a, copy=False, **kw).ctypes.data == a._pointer
        assert ub.from_dlpack(n)._pointer == a._pointer
    assert np.from_dlpack(ub.zeros((0, 3), device="host")).shape == (0, 3)
    assert np.from_dlpack(ub.zeros((), device="host")).shape == ()


def test_numba(np, device):
    numba = peer("numba")

    @numba.njit
    def double(x):
        for i in range(x.shape[0]):
            x[i] *= 2

    a = ub.asarray([1.0, 2.0, 3.0], usm_type="shared")
    double(np.from_dlpack(a, device="cpu"))
    double(np.asarray(a))
    assert a.asnumpy().tolist() == [4, 8, 12]


def test_pyarrow(pyarrow, np):
    a = ub.asarray(np.arange(5, dtype="int64"))
    t = pyarrow.Tensor.from_numpy(np.from_dlpack(a))
    assert t.to_numpy().tolist() == [0, 1, 2, 3, 4]
    arr = pyarrow.array([1, 2, 3], type=pyarrow.int32())
    b = ub.from_dlpack(arr)
    assert b.asnumpy().tolist() == [1, 2, 3] and b.dtype == "int32" and b._pointer == arr.buffers()[1].address
    del arr
    assert b.asnumpy().tolist() == [1, 2, 3]
    # pyarrow's from_dlpack takes strided host arrays, but no USM.
    m = ub.asarray(np.arange(6, dtype="int32").reshape(2, 3), device="host", copy=True)
    for view in (m, m.T, m[:, 1:], m[1]):
        t = pyarrow.Tensor.from_dlpack(view)
        assert t.shape == view.shape and t.to_numpy().ctypes.data == view._pointer and t.to_numpy().tolist() == view.tolist()
    row = pyarrow.Array.from_dlpack(m[1])
    assert row.to_pylist() == [3, 4, 5] and row.buffers()[1].address == m[1]._pointer
    del m, view
    assert row.to_pylist() == [3, 4, 5]
    with pytest.raises(pyarrow.ArrowException):
        ub.from_dlpack(pyarrow.array([1, None]))


def test_array_api_strict(np):
    xp = peer("array_api_strict")
    a = ub.asarray(np.arange(6, dtype="float64").reshape(2, 3))
    x = xp.from_dlpack(a)
    assert x.shape == (2, 3) and np.from_dlpack(x).ctypes.data == a._pointer
    b = ub.from_dlpack(x)
    assert b._pointer == a._pointer
    assert ub.asarray(x)._pointer == a._pointer
    assert xp.from_dlpack(a, copy=True).shape == (2, 3)


def test_tvm_ffi(tvm_ffi, np):
    x = np.arange(6, dtype="float32").reshape(2, 3)
    t = tvm_ffi.from_dlpack(x)
    a = ub.from_dlpack(t)
    assert a._pointer == x.ctypes.data and a.shape == (2, 3)
    assert ub.from_dlpack(t.__dlpack__())._pointer == x.ctypes.data
    assert ub.from_dlpack(t.__dlpack__(max_version=(1, 0)))._pointer == x.ctypes.data


def test_arguments_of_other_consumers(np, device):
    """Arguments of consumers that are not installed: CuTe DSL and mpi4py pass stream=-1, torch (1, 0) and more."""
    a = ub.zeros(3, device="host")
    assert capi.name(a.__dlpack__(stream=-1)) == capi.LEGACY
    assert capi.name(a.__dlpack__(stream=None, max_version=(1, 0), dl_device=None, copy=None)) == capi.VERSIONED
    assert capi.name(a.__dlpack__(max_version=(1, 3))) == capi.VERSIONED
    u = ub.zeros(3)
    assert capi.name(u.__dlpack__(stream=-1)) == capi.LEGACY


def test_capsules_dropped_by_other_threads(np, device):
    """Deleters run on threads without the GIL; owners that are Python objects end with the next entry."""
    import ctypes as ct

    free = ct.CFUNCTYPE(None, ct.c_void_p)  # releases the GIL around the call
    x = np.arange(1000.0)
    addresses = []
    for a in (ub.zeros(100, device="host"), ub.zeros(100), ub.from_dlpack(x)):
        for _ in range(50):
            c = a.__dlpack__(max_version=(1, 0))
            addresses.append(capi.py.PyCapsule_GetPointer(c, capi.VERSIONED))
            capi.py.PyCapsule_SetName(c, capi.NAMES[2])
    del a, c

    def work(mine):
        for p in mine:
            free(capi.Versioned.from_address(p).deleter)(p)

    threads = [threading.Thread(target=work, args=(addresses[i::4],)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]


def test_threads_import_and_export(np, device):
    x = np.arange(1000.0)
    failures = []

    def work():
        try:
            for _ in range(300):
                a = ub.from_dlpack(x)
                b = ub.from_dlpack(a[::2].__dlpack__(max_version=(1, 3)))
                u = ub.empty(10, usm_type="shared")
                v = ub.from_usm_array_interface(type("H", (), {"__sycl_usm_array_interface__": dict(u.__sycl_usm_array_interface__), "u": u})())
                assert b.shape == (500,) and v._pointer == u._pointer
        except BaseException as e:
            failures.append(e)
            raise

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


def test_reads_wait_for_dpnp(dpt, np):
    """dpnp computes in the background, and its __dlpack__ does not wait."""
    n = 1 << 20
    want = (np.arange(n, dtype="float64") * 3).sum()
    for _ in range(5):
        for read in (lambda a: a.asnumpy(), lambda a: np.asarray(a), lambda a: np.from_dlpack(a, device="cpu"), lambda a: np.asarray(a[:].copy())):
            x = dpt.arange(n, dtype="float64", usm_type="shared") * 3
            assert read(ub.from_dlpack(x)).sum() == want
