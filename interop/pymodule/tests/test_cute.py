"""usmbridge.cute: attributes of a tensor, options of a conversion, marks, keys, lifetime of the memory, and tensors of other
libraries."""

import ctypes as ct
import gc
import importlib
import json
import pathlib
import sys

import pytest

import capi
import usmbridge as ub
import usmbridge.cute
from conftest import in_child, in_threads
from usmbridge.cute import Tensor, from_dlpack, from_dlpack_dynamic

ADDRESS = 1 << 40  # no test reads the memory, so any address serves
VECTORS = pathlib.Path(__file__).resolve().parents[3] / "dlpack/cute/testdata/cute_layouts.jsonl"

# A layout in which several modes have stride 1.
B = (1, 4, 1, 32, 1), (1, 1, 1, 4, 1)


class Source(capi.Producer):
    """A producer that outlives its tensors and keeps its capsules."""

    made = []

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.capsules = []
        self.made.append(self)

    def capsule(self):
        self.capsules.append(super().capsule())
        return self.capsules[-1]

    def taken(self):
        return sum(capi.name(c).startswith(b"used_") for c in self.capsules)


@pytest.fixture(autouse=True)
def sources():
    """Checks that every tensor that was taken is released once, and that refused ones are left alone."""
    Source.made.clear()
    yield
    gc.collect()
    for p in Source.made:
        assert p.deleted == (p.taken() if p.m.deleter else 0)
    Source.made.clear()


def tensor(shape, strides=None, width=None, **options):
    """Returns a tensor of float32 of the given layout."""
    return from_dlpack(Source(ADDRESS, shape, strides or "C"), None, width, **options)


# ---- attributes and texts --------------------------------------------------------------------


def test_attributes(np):
    a = np.zeros((30, 20), np.float32)
    t = from_dlpack(a)
    assert type(t) is Tensor is usmbridge.cute.Tensor and Tensor.__module__ == "usmbridge.cute"
    assert (t.shape, t.stride) == ((30, 20), (20, 1))
    assert (t.memspace, t.element_type, t.assumed_align) == ("generic", "Float32", 4)
    assert t.data_ptr == a.ctypes.data
    assert str(t) == repr(t) == f"Tensor<0x{a.ctypes.data:016x}@generic o (30,20):(20,1)>"
    assert t.layout == "(30,20):(20,1)" and t.key == "Float32@generic align=4 o (30,20):(20,1)"
    assert t.dynamic_shapes_mask == t.dynamic_strides_mask == (0, 0)
    t.mark_layout_dynamic()
    assert (t.shape, t.stride) == ((30, 20), (20, 1)), "dynamic values stay readable"
    assert (t.dynamic_shapes_mask, t.dynamic_strides_mask) == ((1, 1), (1, 0))
    zero = from_dlpack(np.zeros((), np.float32))
    assert (zero.shape, zero.stride, zero.layout) == ((), (), "():()")
    with pytest.raises(AttributeError):
        t.shape = (1, 2)


@pytest.mark.parametrize("dtype, want", [
    ((6, 8, 1), "Boolean"), ((0, 4, 1), "Int4"), ((0, 8, 1), "Int8"), ((1, 64, 1), "Uint64"), ((2, 16, 1), "Float16"),
    ((4, 16, 1), "BFloat16"), ((10, 8, 1), "Float8E4M3FN"), ((12, 8, 1), "Float8E5M2"), ((14, 8, 1), "Float8E8M0FNU"),
    ((15, 6, 1), "Float6E2M3FN"), ((17, 4, 1), "Float4E2M1FN"),
])
def test_element_types(dtype, want):
    t = from_dlpack(Source(ADDRESS, (8,), dtype=dtype))
    assert t.element_type == want and t.key.startswith(want + "@generic align=")
    assert t.assumed_align == max(1, dtype[1] // 8)


def test_element_types_without_a_name(np):
    for a in (np.zeros(3, np.complex64), np.zeros(3, np.complex128)):
        with pytest.raises(TypeError, match="no element type"):
            from_dlpack(a)
    with pytest.raises(TypeError, match="no element type"):
        from_dlpack(Source(ADDRESS, (8,), dtype=(7, 8, 1)))
    with pytest.raises(TypeError, match="padded"):
        from_dlpack(Source(ADDRESS, (8,), dtype=(17, 4, 1), flags=4))
    with pytest.raises(BufferError, match="lanes"):
        from_dlpack(Source(ADDRESS, (8,), dtype=(2, 32, 4)))


@pytest.mark.parametrize("device, space", [
    ((1, 0), "generic"), ((3, 0), "generic"), ((11, 0), "generic"),
    ((2, 0), "gmem"), ((2, 7), "gmem"), ((10, 0), "gmem"), ((13, 0), "gmem"),
])
def test_memory_of_any_device(device, space):
    p = Source(ADDRESS, (4, 4), device=device)
    t = from_dlpack(p)
    assert t.memspace == space and str(t) == f"Tensor<0x{ADDRESS:016x}@{space} o (4,4):(4,1)>"
    del t
    assert p.deleted == 1


@pytest.mark.parametrize("device", [(4, 0), (7, 0), (8, 0), (15, 0)])
def test_handles_are_refused(device):
    p = Source(ADDRESS, (4, 4), device=device)
    c = p.capsule()
    with pytest.raises(ValueError, match="handle"):
        from_dlpack(c)
    assert capi.name(c) == b"dltensor_versioned" and p.deleted == 0


# ---- options -------------------------------------------------------------------------------------


def test_assumed_align(np):
    def at(offset, *align):
        return from_dlpack(Source(ADDRESS + offset, (4,)), *align)

    assert at(0, 16).assumed_align == 16 and at(0, 16).key == "Float32@generic align=16 o (4):(1)"
    assert at(8, 8).assumed_align == 8
    assert at(0, np.int64(32)).assumed_align == 32 and at(4, None).assumed_align == 4
    assert from_dlpack(Source(ADDRESS + 2, (4,), dtype=(1, 8, 1)), assumed_align=2).assumed_align == 2
    with pytest.raises(ValueError, match="not a multiple of the assumed alignment of 16 bytes"):
        at(8, 16)
    for bad in (0, 3, -4, 12):
        with pytest.raises(ValueError, match=f"assumed_align {bad} is not a power of two"):
            at(0, bad)
    with pytest.raises(TypeError, match="assumed_align must be an integer, not str"):
        at(0, "16")
    with pytest.raises(OverflowError):
        at(0, 1 << 64)


def test_use_32bit_stride():
    widths = {width: tensor((4, 6), None, width).mark_layout_dynamic() for width in (None, False, True)}
    assert [t.layout for t in widths.values()] == ["(?,?):(?,1)", "(?,?):(?{i64},1)", "(?,?):(?,1)"]
    assert len({t.key for t in widths.values()}) == 3, "kernels of other widths are other kernels"
    assert len({tensor((4, 6), None, width).key for width in (None, False, True)}) == 1, "no dynamic stride, no width"
    for bad in (1, "no"):
        with pytest.raises(TypeError, match="use_32bit_stride must be True or False"):
            tensor((4, 6), None, bad)


def test_unit_strides():
    layout = (1, 4, 1, 8), (77, 8, 5, 1)
    assert tensor(*layout).stride == (77, 8, 5, 1)
    assert tensor(*layout, unit_strides=False).stride == (77, 8, 5, 1)
    assert tensor(*layout, unit_strides=True).stride == (1, 8, 1, 1)
    with pytest.raises(TypeError, match="unit_strides must be True or False"):
        tensor(*layout, unit_strides=1)


def test_dynamic_in_one_call(np):
    a = np.zeros((30, 20, 32), np.float32)
    t = from_dlpack_dynamic(a, 4, False)
    assert str(t) == str(from_dlpack(a, 4, False).mark_layout_dynamic())
    assert t.layout == "(?,?,?):(?{i64},?{i64},1)"
    p = Source(ADDRESS, *B)
    with pytest.raises(ValueError, match="leading dimension"):
        from_dlpack_dynamic(p.capsule())
    assert p.deleted == 0
    assert from_dlpack_dynamic(p, leading="skip_size_one").layout == "(?,?,?,?,?):(?,1,?,?,?)"


def test_arguments(np):
    a = np.zeros((4,), np.float32)
    assert from_dlpack(tensor=a, assumed_align=4, use_32bit_stride=True).layout == "(4):(1)"
    for bad in (lambda: from_dlpack(), lambda: from_dlpack(a, 4, None, "unique"), lambda: from_dlpack(a, align=4),
                lambda: from_dlpack(a, tensor=a), lambda: from_dlpack(a).mark_layout_dynamic(0, 1),
                lambda: from_dlpack(a).mark_compact_shape_dynamic(), lambda: from_dlpack(a).mark_layout_dynamic(dim=0)):
        with pytest.raises(TypeError):
            bad()
    for bad in ("x", 1.5, None.__class__):
        with pytest.raises(TypeError, match="leading_dim must be an integer"):
            from_dlpack(a).mark_layout_dynamic(bad)
        with pytest.raises(TypeError, match="mode must be an integer"):
            from_dlpack(a).mark_compact_shape_dynamic(bad)
        with pytest.raises(TypeError, match="divisibility must be an integer"):
            from_dlpack(a).mark_compact_shape_dynamic(0, divisibility=bad)
    for bad in ("0", 5, {0}):
        with pytest.raises(TypeError, match="stride_order must be a sequence"):
            from_dlpack(a).mark_compact_shape_dynamic(0, bad)
    with pytest.raises(ValueError, match="Expected stride_order to have 1 elements, but got 100"):
        from_dlpack(a).mark_compact_shape_dynamic(0, range(100))
    with pytest.raises(TypeError, match="stride_order must be an integer"):
        from_dlpack(a).mark_compact_shape_dynamic(0, ["x"])
    for huge in (1 << 63, -(1 << 63), 1 << 200):
        with pytest.raises(OverflowError, match="leading_dim does not fit"):
            from_dlpack(a).mark_layout_dynamic(huge)
        for args in ((huge,), (0, [huge]), (0, None, huge)):
            with pytest.raises(OverflowError, match="does not fit"):
                from_dlpack(a).mark_compact_shape_dynamic(*args)
    t = from_dlpack(a).mark_compact_shape_dynamic(np.int64(0), np.array([0]), np.uint8(2))
    assert t.layout == "(?{div=2}):(1)"


def test_import_forms():
    assert ub.cute is sys.modules["usmbridge.cute"] is importlib.import_module("usmbridge.cute")
    assert ub.cute.__name__ == "usmbridge.cute" and ub.cute.__doc__ and from_dlpack.__doc__ and Tensor.__doc__


# ---- marks -----------------------------------------------------------------------------------------


def marked(shape, strides, width, ops, **options):
    """Returns the tensor after the operations, or the text of the first failure."""
    t = tensor(shape, strides, width, **options)
    for name, args in ops:
        before = str(t)
        try:
            assert getattr(t, name)(**args) is t
        except ValueError as e:
            assert str(t) == before, "a failed mark changes nothing"
            return None, str(e).removesuffix(".")
    assert t.shape == tuple(shape)
    return t, None


def test_vectors():
    """Recorded results of CuTe DSL. Go has the rules, and tests them with its documented examples."""
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    assert len(rows) == 846
    for i, row in enumerate(rows):
        t, error = marked(row["shape"], row["strides"], row["use_32bit_stride"], row["ops"], leading="skip_size_one")
        about = f"line {i + 1}: {row}"
        if "error" in row:
            assert error == row["error"].removesuffix("."), about
        else:
            assert error is None, about
            assert t.layout == row["layout"], about
            assert str(t) == f"Tensor<0x{ADDRESS:016x}@generic o {row['layout']}>", about
            shape, stride = (half.strip("()") for half in row["layout"].split(":"))
            for mask, half in ((t.dynamic_shapes_mask, shape), (t.dynamic_strides_mask, stride)):
                assert mask == tuple(int(s.startswith("?")) for s in half.split(",") if s), about


# ---- keys ------------------------------------------------------------------------------------------


def test_key_serves_as_cache_key():
    cache = {}
    for n in range(1, 50):
        t = tensor((n, 64), (64, 1)).mark_compact_shape_dynamic(0, (0, 1))
        cache.setdefault(t.key, []).append(n)
    assert list(cache) == ["Float32@generic align=4 o (?,64):(64,1)"], "one kernel for all of them"
    static = {tensor((n, 64)).key for n in range(1, 50)}
    assert len(static) == 49
    t = tensor((4, 64))
    before = t.key
    assert t.mark_layout_dynamic().key != before and isinstance(t.key, str)
    keys = {tensor((4, 64)).key, from_dlpack(Source(ADDRESS, (4, 64)), 16).key,
            from_dlpack(Source(ADDRESS, (4, 64), device=(2, 0))).key,
            from_dlpack(Source(ADDRESS, (4, 64), dtype=(0, 32, 1))).key}
    assert len(keys) == 4, "alignment, memory space and type make other kernels"
    a, b = tensor((4, 64)), tensor((4, 64))
    assert a != b and len({a, b}) == 2 and a.key == b.key, "tensors compare by identity"


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
    for number in (0, 99):
        p = Source(ADDRESS, (4,), device=(14, number))
        with pytest.raises(BufferError):
            from_dlpack(p.capsule())
        assert p.deleted == 0
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
