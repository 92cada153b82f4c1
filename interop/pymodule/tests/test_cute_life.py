"""usmbridge.cute: lifetime of the memory, and tensors of other libraries."""

import ctypes as ct
import gc
import sys

import pytest

import capi
import usmbridge as ub
from conftest import in_child, in_threads
from cute_source import ADDRESS, Source, sources  # noqa: F401 (sources is a fixture)
from usmbridge.cute import from_dlpack, from_dlpack_dynamic

# ---- lifetime --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versioned", [True, False])
def test_source_lives_as_long_as_the_tensor(versioned):
    p = Source(ADDRESS, (4, 6), versioned=versioned)
    c = p.capsule()
    t = from_dlpack(c)
    assert capi.name(c).startswith(b"used_dltensor")
    with pytest.raises(BufferError, match="consumed"):
        from_dlpack(c)
    t.mark_layout_dynamic()
    del c
    gc.collect()
    assert p.deleted == 0
    u = t.clone()
    del t
    assert p.deleted == 0 and u.layout == "(?,?):(?,1)"
    del u
    assert p.deleted == 1


def test_memory_of_a_temporary(np):
    before = ub.stats()["live_buffers.all.current"]
    a = np.arange(1000, dtype=np.float32)
    count = sys.getrefcount(a)
    t = from_dlpack(a)
    assert sys.getrefcount(a) == count + 1
    pointer = t.data_ptr
    del a
    gc.collect()
    assert (ct.c_float * 1000).from_address(pointer)[999] == 999, "the peer leaves this dangling"
    t.release()
    b = np.zeros(10, np.float32)
    count = sys.getrefcount(b)
    for _ in range(1000):
        from_dlpack(b).mark_layout_dynamic()
        with pytest.raises(ValueError):
            from_dlpack(b, 1 << 62)
    assert sys.getrefcount(b) == count and ub.stats()["live_buffers.all.current"] == before


def test_release():
    p = Source(ADDRESS, (4, 6))
    t = from_dlpack(p)
    u = t.clone().mark_layout_dynamic()
    assert not t.released and t.release() is None and t.released and p.deleted == 0
    assert t.release() is None and str(t) == "Tensor<released>"
    for attribute in ("shape", "stride", "memspace", "element_type", "key", "layout", "data_ptr", "assumed_align",
                      "dynamic_shapes_mask", "dynamic_strides_mask"):
        with pytest.raises(ValueError, match=attribute + r" was used on a tensor after its release\(\)"):
            getattr(t, attribute)
    for use in (t.mark_layout_dynamic, lambda: t.mark_compact_shape_dynamic(0), t.clone, t.__enter__):
        with pytest.raises(ValueError, match=r"after its release\(\)"):
            use()
    assert u.layout == "(?,?):(?,1)", "a clone has its own reference and its own marks"
    u.release()
    assert p.deleted == 1


def test_with():
    p = Source(ADDRESS, (4, 6))
    with from_dlpack(p) as t:
        assert t.shape == (4, 6)
    assert t.released and p.deleted == 1
    with pytest.raises(KeyError):
        with from_dlpack(p):
            raise KeyError
    assert p.deleted == 2


def test_threads(np):
    a = np.zeros((30, 20, 32), np.float32)
    count = sys.getrefcount(a)
    failures = []

    def work():
        for i in range(2000):
            t = from_dlpack(a, None, False)
            t.mark_compact_shape_dynamic(i % 3, None, 2)
            if t.clone().mark_layout_dynamic().layout != "(?,?,?):(?{i64},?{i64},1)":
                failures.append(t)
            t.release()

    in_threads(*[work] * 4)
    assert not failures and sys.getrefcount(a) == count


def test_fork():
    p = Source(ADDRESS, (4, 6))
    t, u = from_dlpack(p), from_dlpack(p)

    def child():
        assert t.shape == (4, 6) and t.data_ptr == ADDRESS and t.clone().stride == (6, 1)
        for use in (lambda: from_dlpack(p), lambda: from_dlpack_dynamic(p), t.mark_layout_dynamic,
                    lambda: t.mark_compact_shape_dynamic(0), lambda: str(t), lambda: t.key, lambda: t.element_type):
            with pytest.raises(RuntimeError, match="fork"):
                use()
        t.release()
        return t.released and str(t) == "Tensor<released>" and p.deleted == 1

    in_child(child)
    assert u.layout == t.layout == "(4,6):(6,1)"


# ---- other libraries ----------------------------------------------------------------------------------------


def test_own_host_array():
    a = ub.zeros((4, 6), "float16", device="host")
    t = from_dlpack(a[::2, 1:])
    assert (t.layout, t.memspace, t.element_type) == ("(2,5):(12,1)", "generic", "Float16")
    pointer = a._pointer
    del a
    assert t.data_ptr == pointer + 2
    assert from_dlpack(ub.zeros((3, 4), "bfloat16", device="host").T).layout == "(4,3):(1,4)"


@pytest.mark.parametrize("kind, space", [("device", "gmem"), ("shared", "gmem"), ("host", "generic")])
def test_usm(device, kind, space):
    a = ub.empty((4, 6), "float32", usm_type=kind)
    t = from_dlpack(a, 64, False)
    assert str(t) == f"Tensor<0x{a._pointer:016x}@{space} o (4,6):(6,1)>"
    pointer = a._pointer
    u = from_dlpack(a.__dlpack__(max_version=(1, 3)))
    assert (u.memspace, u.data_ptr, u.key) == (space, pointer, from_dlpack(a).key)
    legacy = from_dlpack(a[::-1].__dlpack__())
    assert (legacy.memspace, legacy.data_ptr, legacy.layout) == (space, pointer + 72, "(4,6):(-6,1)")
    del a
    assert t.mark_compact_shape_dynamic(1, divisibility=2).layout == "(4,?{div=2}):(?{i64 div=2},1)"


def test_usm_failures(device):
    a = ub.empty((4, 6), "float32")
    c = a.__dlpack__(max_version=(1, 3))
    with pytest.raises(ValueError, match="power of two"):
        from_dlpack(c, 3)
    assert capi.name(c) == b"dltensor_versioned"
    p = Source(ADDRESS, (4,), device=(14, 0))
    with pytest.raises(BufferError):
        from_dlpack(p.capsule())
    p2 = Source(ADDRESS, (4,), device=(14, 99))
    with pytest.raises(BufferError):
        from_dlpack(p2.capsule())
    assert p.deleted == p2.deleted == 0
    assert from_dlpack(c).shape == (4, 6)


def test_tvm_ffi(np, tvm_ffi):
    a = np.zeros((30, 20), np.float32)
    x = tvm_ffi.from_dlpack(a)
    t = from_dlpack(x)
    assert (t.layout, t.memspace, t.data_ptr) == ("(30,20):(20,1)", "generic", a.ctypes.data)
    wrapped = tvm_ffi.core.DLTensorTestWrapper(x)
    assert type(wrapped).__dlpack_c_exchange_api__ is not None
    u = from_dlpack(wrapped)
    assert u.mark_layout_dynamic().layout == "(?,?):(?,1)" and u.data_ptr == a.ctypes.data
    with pytest.raises(ValueError, match="power of two"):
        from_dlpack(wrapped, 3)
    count = sys.getrefcount(a)
    del t, u, x, wrapped
    gc.collect()
    assert sys.getrefcount(a) == count - 1
