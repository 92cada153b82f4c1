"""The C exchange API: the five functions of Array's, and the use of other libraries'."""

import contextlib
import ctypes as ct

import pytest
from conftest import in_threads, program

import capi
import usmbridge as ub


@pytest.fixture
def api():
    api = capi.exchange(ub.Array)
    assert (api.major, api.minor, api.prev) == (1, 3, None)
    return api


def test_published():
    a, b = ub.Array.__dlpack_c_exchange_api__, ub.empty(1, device="host").__dlpack_c_exchange_api__
    assert a is b and capi.name(a) == b"dlpack_exchange_api"


def test_from_and_to_object(api, device):
    from_py, to_py = capi.FROM_PY(api.from_py), capi.TO_PY(api.to_py)
    for a in (ub.zeros((2, 3), device="host"), ub.zeros((2, 3)), ub.zeros((2, 3), usm_type="shared")[::-1]):
        out = ct.c_void_p()
        assert from_py(a, ct.byref(out)) == 0
        m = capi.Versioned.from_address(out.value)
        assert (m.major, m.minor, m.t.ndim, (m.t.device_type, m.t.device_id)) == (1, 3, 2, a.__dlpack_device__())
        assert m.t.data + m.t.byte_offset == a._pointer
        obj = ct.py_object()
        assert to_py(out, ct.byref(obj)) == 0
        b = obj.value
        ct.pythonapi.Py_DecRef(ct.py_object(b))
        assert type(b) is ub.Array and b._pointer == a._pointer and b.strides == a.strides and b.usm_type == a.usm_type
        assert from_py(a, ct.byref(out)) == 0
        capi.delete(out.value)
    with pytest.raises(TypeError):
        from_py(object(), ct.byref(out))


def test_failed_to_object_leaves_the_tensor(api):
    p = capi.Producer(0x1001, shape=(4,))
    obj = ct.py_object()
    with pytest.raises(BufferError):
        capi.TO_PY(api.to_py)(ct.addressof(p.m), ct.byref(obj))
    assert p.deleted == 0


def test_not_describable(api, dpctl, device):
    d = dpctl.SyclDevice(device.filter_string)
    a = ub.empty(3, sycl_queue=dpctl.SyclQueue(dpctl.SyclContext([d]), d))
    out, t = ct.c_void_p(), capi.DLTensor()
    with pytest.raises(BufferError, match="default context"):
        capi.FROM_PY(api.from_py)(a, ct.byref(out))
    with pytest.raises(BufferError, match="default context"):
        capi.BORROW(api.borrow)(a, ct.byref(t))


def test_borrow(api, device):
    borrow = capi.BORROW(api.borrow)
    for a in (ub.zeros((2, 3), "int16", device="host"), ub.zeros((2, 3), "int16")[::-1], ub.zeros((), device="host"), ub.zeros((0, 2), device="host")):
        t = capi.DLTensor()
        assert borrow(a, ct.byref(t)) == 0
        assert (t.ndim, t.bits, t.lanes, (t.device_type, t.device_id)) == (a.ndim, a.itemsize * 8, 1, a.__dlpack_device__())
        assert tuple(t.shape[: a.ndim]) == a.shape and tuple(t.strides[: a.ndim]) == a.strides
        assert (t.data or 0) + t.byte_offset == (a._pointer if a.size else 0)
    with pytest.raises(TypeError):
        borrow(1, ct.byref(t))


def test_a_borrowed_tensor_keeps_the_memory(api, device):
    """The consumer of a borrowed tensor keeps the Array alive, and release() must not free the memory."""
    for place in ({"device": "host"}, {"usm_type": "device"}):
        a, t = ub.full((40, 25), 7.0, "float64", **place), capi.DLTensor()
        address = a._pointer
        assert capi.BORROW(api.borrow)(a, ct.byref(t)) == 0
        a.release()
        with pytest.raises(ValueError, match="released"):
            capi.BORROW(api.borrow)(a, ct.byref(capi.DLTensor()))
        assert ub.empty((40, 25), "float64", **place)._pointer != address
        assert t.data == address and tuple(t.shape[:2]) == (40, 25) and tuple(t.strides[:2]) == (25, 1)


def test_allocator(api, device):
    allocate = capi.ALLOCATE(api.allocate)
    errors = []
    set_error = capi.SET_ERROR(lambda ctx, kind, message: errors.append((kind.decode(), message.decode())))
    to_py = capi.TO_PY(api.to_py)

    def call(device, shape, dtype=(2, 32, 1)):
        p = capi.Producer(0, shape, dtype=dtype, device=device)
        out = ct.c_void_p()
        return allocate(ct.byref(p.m.t), ct.byref(out), None, set_error), out

    for dev in ((1, 0), device.dlpack_device):
        rc, out = call(dev, (3, 5))
        assert rc == 0 and not errors
        obj = ct.py_object()
        assert to_py(out, ct.byref(obj)) == 0
        a = obj.value
        ct.pythonapi.Py_DecRef(ct.py_object(a))
        assert a.shape == (3, 5) and a.__dlpack_device__() == dev and a.dtype == "float32" and a._pointer % 256 == 0
        del obj, a
    for args, kind in (((14, 99), (3,)), "BufferError"), (((2, 0), (3,)), "BufferError"), (((1, 0), (-3,)), "BufferError"), (((1, 0), (1 << 52,)), "MemoryError"), (((1, 0), (3,), (3, 64, 1)), "BufferError"), (((1, 0), (1 << 62, 8)), "BufferError"):
        errors.clear()
        rc, out = call(*args)
        assert rc == -1 and len(errors) == 1 and errors[0][0] == kind and errors[0][1], (args, errors)


def test_allocator_without_the_gil(api):
    """The allocator can be called from threads that do not hold the GIL."""
    lib = ct.CFUNCTYPE(ct.c_int, ct.POINTER(capi.DLTensor), ct.POINTER(ct.c_void_p), ct.c_void_p, ct.c_void_p)  # releases the GIL
    allocate = lib(api.allocate)
    p = capi.Producer(0, (1000,))
    outs = [ct.c_void_p() for _ in range(8)]
    in_threads(*(lambda o=o: allocate(ct.byref(p.m.t), ct.byref(o), None, None) for o in outs))
    assert len({o.value for o in outs}) == 8
    for o in outs:
        capi.delete(o.value)


def test_work_stream(api, device):
    stream = capi.STREAM(api.stream)
    out = ct.c_void_p(1)
    assert stream(1, 0, ct.byref(out)) == 0 and out.value is None
    assert stream(*device.dlpack_device, ct.byref(out)) == 0 and out.value
    with pytest.raises(BufferError):
        stream(14, 99, ct.byref(out))


def test_tvm_ffi_takes_ours(tvm_ffi, np):
    a = ub.asarray(np.arange(6, dtype="float32").reshape(2, 3))
    t = tvm_ffi.from_dlpack(a)
    assert np.from_dlpack(t).ctypes.data == a._pointer and tuple(t.shape) == (2, 3)
    b = ub.from_dlpack(t)
    assert b._pointer == a._pointer and b.asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    del t, a
    assert b.asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    r = np.arange(3.0)
    r.flags.writeable = False
    assert ub.asarray(r).readonly
    tvm_ffi.from_dlpack(ub.zeros((3, 0), device="host"))


def test_a_minimal_producer(tvm_ffi, np):
    """A minimal producer: allocator and borrow are NULL."""
    x = np.arange(6, dtype="float32")
    t = tvm_ffi.core.DLTensorTestWrapper(tvm_ffi.from_dlpack(x))
    for _ in range(2):
        a = ub.from_dlpack(t)
        assert a._pointer == x.ctypes.data and a.asnumpy().tolist() == x.tolist()


# ---- exchange APIs of other libraries: used for exact PyTorch tensors only (robust/test_exchange.py) -------


def test_lazy_negation():
    """PyTorch exports negated tensors without their sign, by __dlpack__ too."""
    cls = capi.exchanging(capi.Producer(), __dlpack__=None, is_neg=lambda self: True, __dlpack_device__=lambda self: (2, 0))
    with capi.as_torch(cls):
        for x in (cls(), type("Sub", (cls,), {})()):
            for f in (ub.from_dlpack, ub.asarray, ub.cute.from_dlpack, lambda x: ub.from_dlpack(x, device="host")):
                with pytest.raises(BufferError, match=r"negative bit.*resolve_neg\(\)"):
                    f(x)


FORGED = """
import ctypes, tvm_ffi, usmbridge as ub
table = tvm_ffi.core.DLTensorTestWrapper.__dlpack_c_exchange_api__
for module, name in (("tvm_ffi.core", "Tensor"), ("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("other", "Other")):
    false = lambda self: False
    members = dict(__module__=module, __qualname__=name, __dlpack_c_exchange_api__=table, requires_grad=False, is_conj=false, is_neg=false)
    for bases in ((), (ctypes.c_int64,)):
        x = type(name, bases, members)()
        try:
            ub.from_dlpack(x)
        except (TypeError, AttributeError) as e:
            assert "__dlpack__" in str(e), e
        else:
            raise AssertionError(module)
print("fine")
"""


def test_forged_types(tvm_ffi):
    """A class with the name of torch.Tensor and a foreign table is not used by that table, which does not check its
    argument."""
    assert program("-c", FORGED) == "fine\n"


@pytest.mark.parametrize("how", ["table", "method"])
def test_work_of_the_producer_becomes_pending(device, dpctl, how):
    """Also if the tensor is imported by __dlpack__, in which PyTorch does not wait on a SYCL device."""
    a = ub.zeros(16, usm_type="shared")
    q = dpctl.SyclQueue(device.filter_string)
    asked = []

    def stream(t, i, out):
        asked.append((t, i))
        out[0] = q.addressof_ref()
        return 0

    p = capi.Producer(a._pointer, (16,), device=device.dlpack_device)
    cls = capi.exchanging(p, stream, __dlpack__=lambda self, **keywords: p.capsule())
    with capi.as_torch(cls) if how == "table" else contextlib.nullcontext():
        b = ub.from_dlpack(cls())
    assert asked == [device.dlpack_device] and memoryview(b).tolist() == [0] * 16
    c = b.__dlpack__(stream=q, max_version=(1, 0))
    memoryview(b)
    del b, c
    ub.stats()  # an entry runs the releases that a deleter deferred
    assert p.deleted == 1


def test_a_table_outlives_its_attribute():
    """DLPack tables live as long as the process, and consumers may cache them for each type: removing or replacing
    the attribute later does not affect types that were used before."""
    buf = (ct.c_float * 4)(1, 2, 3, 4)
    asked = []

    def of_other(obj, out):
        asked.append(obj)
        return -1

    cls, other = capi.exchanging(capi.Producer(ct.addressof(buf))), capi.exchanging(of_other)
    x = cls()
    with capi.as_torch(cls):
        assert memoryview(ub.from_dlpack(x)).tolist() == [1, 2, 3, 4]
        cls.__dlpack_c_exchange_api__ = other.__dlpack_c_exchange_api__
        assert memoryview(ub.from_dlpack(x)).tolist() == [1, 2, 3, 4] and not asked
        del cls.__dlpack_c_exchange_api__
        assert memoryview(ub.from_dlpack(x)).tolist() == [1, 2, 3, 4]
    late = type("Late", (capi.TorchFlags,), {})
    with capi.as_torch(late):
        with pytest.raises(TypeError, match="__dlpack__"):
            ub.from_dlpack(late())
        late.__dlpack_c_exchange_api__ = other.__dlpack_c_exchange_api__
        with pytest.raises(TypeError, match="__dlpack__"):
            ub.from_dlpack(late())
    assert not asked
