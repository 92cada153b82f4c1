"""usmbridge.cute: attributes of a tensor, options of a conversion, marks, keys."""

import importlib
import json
import pathlib
import sys

import pytest

import capi
import usmbridge as ub
import usmbridge.cute
from cute_source import ADDRESS, Source, sources, tensor  # noqa: F401 (sources is a fixture)
from usmbridge.cute import Tensor, from_dlpack, from_dlpack_dynamic

VECTORS = pathlib.Path(__file__).resolve().parents[3] / "dlpack/cute/testdata/cute_layouts.jsonl"

# A layout in which several modes have stride 1.
B = (1, 4, 1, 32, 1), (1, 1, 1, 4, 1)

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
    with pytest.raises(TypeError):
        Tensor()
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


def test_no_dlpack():
    for x in ([1, 2], 5, None, "text"):
        with pytest.raises(TypeError, match="has no __dlpack__"):
            from_dlpack(x)


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
