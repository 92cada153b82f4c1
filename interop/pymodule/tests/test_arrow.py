"""Export by the Arrow C data interface. pyarrow is the consumer; ctypes covers what it does not do (moved
children, other devices)."""

import ctypes
import gc
import os
import shutil
import subprocess
import sys

import pytest

import usmbridge as ub
from arrow_abi import DeviceMemory, Memory, Schema, struct
from conftest import peer, places

np, pa = peer("numpy"), peer("pyarrow")

TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


def live():
    gc.collect()
    return ub.stats()["allocation.all.current"]


def test_structs_are_those_of_the_header(tmp_path):
    """The ctypes structs of these tests agree with arrow/c/abi.h."""
    lines = []
    for kind, name in ((Schema, "ArrowSchema"), (Memory, "ArrowArray"), (DeviceMemory, "ArrowDeviceArray")):
        lines.append((f"sizeof(struct {name})", ctypes.sizeof(kind)))
        for field, _ in kind._fields_:
            of = {"private": "private_data"}.get(field, field)
            lines.append((f"offsetof(struct {name}, {of})", getattr(kind, field).offset))
    lines += [("ARROW_DEVICE_CPU", 1), ("ARROW_DEVICE_ONEAPI", 14)]
    source = tmp_path / "abi.c"
    asserts = "".join(f'_Static_assert({what} == {n}, "{what}");\n' for what, n in lines)
    source.write_text(f"#include <stddef.h>\n#include <arrow/c/abi.h>\n{asserts}")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    done = subprocess.run([*compiler.split(), "-std=c11", "-fsyntax-only", "-I", pa.get_include(), source],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", TYPES)
def test_values(dtype):
    a = ub.asarray(np.arange(5).astype(dtype), device="host")
    v = pa.array(a)
    assert v.type == pa.from_numpy_dtype(np.dtype(dtype)) and v.null_count == 0
    assert v.buffers()[1].address == a._pointer
    np.testing.assert_array_equal(v.to_numpy(zero_copy_only=True), np.arange(5).astype(dtype))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (1, 1), (3, 2, 1, 2), (0, 3)])
def test_tensors(shape):
    x = np.arange(int(np.prod(shape)), dtype="f4").reshape(shape)
    for place in places(["shared", "host"]):
        a = ub.asarray(x, copy=True, **place)
        t = pa.array(a)
        assert t.type == pa.fixed_shape_tensor(pa.float32(), list(shape[1:]))
        np.testing.assert_array_equal(t.to_numpy_ndarray(), x)
        if a.size:
            assert t.storage.values.buffers()[1].address == a._pointer
        t.validate(full=True)


def test_views_and_offsets():
    a = ub.asarray(np.arange(24, dtype="i4").reshape(6, 4), device="host")
    assert pa.array(a[2:5]).to_numpy_ndarray().tolist() == [[8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]
    assert pa.array(a[3]).to_pylist() == [12, 13, 14, 15]
    assert pa.array(a.as_readonly()[0]).to_pylist() == [0, 1, 2, 3]


def test_other_than_c_order_is_copied():
    before = live()
    x = np.arange(24, dtype="i4").reshape(2, 3, 4)
    a = ub.asarray(x, device="host", copy=True)
    for b, y in ((a.T, x.T), (a[:, ::2], x[:, ::2]), (a[0, 0, ::-1], x[0, 0, ::-1])):
        v = pa.array(b)
        np.testing.assert_array_equal(v.to_numpy_ndarray() if y.ndim > 1 else v.to_numpy(), y)
        struct(b.__arrow_c_device_array__()[1], b"arrow_device_array", DeviceMemory)
    del a, b, v
    assert live() == before


def test_unsupported_arrays_are_buffer_errors():
    zeros = ub.zeros
    for a, why in (
        (zeros((), device="host"), "0-d"), (zeros(3, dtype="float8_e5m2", device="host"), "no element type float8"),
        (zeros(3, dtype="complex64", device="host"), "no element type complex64"), (zeros(3, dtype="bfloat16", device="host"), "no element type bfloat16"),
    ):
        with pytest.raises(BufferError, match=why):
            a.__arrow_c_array__()
        with pytest.raises(BufferError, match=why):
            a.__arrow_c_device_array__()
    gone = zeros(3, device="host")
    gone.release()
    with pytest.raises(ValueError):
        gone.__arrow_c_array__()


def test_arguments():
    a = ub.zeros(3, device="host")
    wish = pa.int64().__arrow_c_schema__()
    for args, kw in (((), {}), ((None,), {}), ((wish,), {}), ((), {"requested_schema": wish})):
        assert len(a.__arrow_c_array__(*args, **kw)) == len(a.__arrow_c_device_array__(*args, **kw)) == 2
    a.__arrow_c_device_array__(future=None)
    with pytest.raises(NotImplementedError):
        a.__arrow_c_device_array__(future=1)
    for f in (a.__arrow_c_array__, a.__arrow_c_device_array__):
        with pytest.raises(TypeError):
            f(None, None)
    with pytest.raises(TypeError):
        a.__arrow_c_array__(future=None)


def test_each_export_keeps_the_memory():
    before = live()
    for shape in ((1000,), (10, 100)):
        a = ub.full(shape, 7, dtype="float32", device="host")
        v = pa.array(a)
        part = v.slice(2, 3)
        del a, v
        assert live() == before + 1
        assert set(np.asarray(part.to_numpy(zero_copy_only=False)[0]).ravel()) == {7.0}
        del part
        assert live() == before


def test_unconsumed_capsules_release_the_memory():
    before = live()
    a = ub.zeros((10, 100), device="host")
    count = sys.getrefcount(a)
    for _ in range(100):
        a.__arrow_c_array__()
        a.__arrow_c_device_array__()
    assert sys.getrefcount(a) == count
    del a
    assert live() == before


@pytest.mark.parametrize("shape", [(12,), (3, 4)])
def test_a_moved_child_outlives_its_parent(shape):
    before = live()
    a = ub.asarray(np.arange(12, dtype="i8").reshape(shape), device="host", copy=True)
    schema, memory = a.__arrow_c_array__()
    s, m = struct(schema, b"arrow_schema", Schema), struct(memory, b"arrow_array", Memory)
    if len(shape) == 2:
        assert (s.format, m.n_buffers, m.n_children, m.length) == (b"+w:4", 1, 1, 3)
        s2, m2 = Schema(), Memory()
        ctypes.memmove(ctypes.byref(s2), s.children[0], 72)
        ctypes.memmove(ctypes.byref(m2), m.children[0], 80)
        none = ctypes.c_void_p(0)
        ctypes.memmove(ctypes.byref(s.children[0].contents, Schema.release.offset), ctypes.byref(none), 8)
        ctypes.memmove(ctypes.byref(m.children[0].contents, Memory.release.offset), ctypes.byref(none), 8)
        del s, m, schema, memory, a  # the capsules release the parents
        s, m = s2, m2
        assert s.name == b"item"
    assert (s.format, m.n_buffers, m.length, m.offset, m.null_count) == (b"l", 2, 12, 0, 0)
    assert m.buffers[0] is None
    assert (ctypes.c_int64 * 12).from_address(m.buffers[1])[:] == list(range(12))
    if len(shape) == 2:
        assert live() == before + 1
        s.release(s)
        m.release(m)
    else:
        del s, m, schema, memory, a
    assert live() == before


def test_device_interface_on_the_host():
    a = ub.asarray(np.arange(6, dtype="f8").reshape(2, 3), device="host")
    capsules = a.__arrow_c_device_array__()
    d = struct(capsules[1], b"arrow_device_array", DeviceMemory)
    assert (d.device_type, d.device_id, d.sync_event, list(d.reserved)) == (1, -1, None, [0, 0, 0])
    assert d.array.children[0].contents.buffers[1] == a._pointer


def test_device_memory_is_oneapi(device):
    before = live()
    a = ub.ones((1 << 20,), dtype="float32", usm_type="device")
    with pytest.raises(BufferError, match="cannot read USM device memory"):
        a.__arrow_c_array__()
    a.fill(3)
    capsules = a.__arrow_c_device_array__()
    d = struct(capsules[1], b"arrow_device_array", DeviceMemory)
    assert (d.device_type, d.device_id) == a.__dlpack_device__()
    assert d.array.buffers[1] == a._pointer
    address = a._pointer
    del a
    assert live() == before + 1 and d.array.buffers[1] == address
    del d, capsules
    assert live() == before


def test_dlpack_of_pyarrow():
    arr = pa.array([1, 2, 3], type=pa.int32())
    b = ub.from_dlpack(arr)
    assert b.asnumpy().tolist() == [1, 2, 3] and b.dtype == "int32" and b._pointer == arr.buffers()[1].address
    del arr
    assert b.asnumpy().tolist() == [1, 2, 3]
    # pyarrow's from_dlpack takes strided host arrays, but no USM.
    m = ub.asarray(np.arange(6, dtype="int32").reshape(2, 3), device="host", copy=True)
    for view in (m, m.T, m[:, 1:], m[1]):
        t = pa.Tensor.from_dlpack(view)
        assert t.shape == view.shape and t.to_numpy().ctypes.data == view._pointer and t.to_numpy().tolist() == view.tolist()
    row = pa.Array.from_dlpack(m[1])
    assert row.to_pylist() == [3, 4, 5] and row.buffers()[1].address == m[1]._pointer
    del m, view
    assert row.to_pylist() == [3, 4, 5]
    with pytest.raises(pa.ArrowException):
        ub.from_dlpack(pa.array([1, None]))


# ---- booleans: bits, which are a copy, or bytes if the consumer asks for them -------------------------------


def values(pa, v):
    return v.type, v.to_pylist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1003])
def test_bits(n):
    want = (np.arange(n) * 7 % 3 == 1).tolist()
    for place in places(["shared", "host"]):
        a = ub.asarray(np.asarray(want, bool), **place, copy=True)
        for v in (pa.array(a), pa.array(a, pa.bool_()), pa.array(a.as_readonly())):
            assert values(pa, v) == (pa.bool_(), want) and v.null_count == 0
        assert pa.array(a[::-1]).to_pylist() == want[::-1] and pa.array(a[n // 3 :]).to_pylist() == want[n // 3 :]
        assert ub.asarray(pa.array(a)).tolist() == want and ub.asarray(pa.array(a)).dtype == "bool"


def test_bytes_on_request():
    for place in places(["shared", "host"]):
        a = ub.asarray([True, False, True], **place)
        shared = pa.Array._import_from_c_capsule(*a.__arrow_c_array__(pa.bool8().__arrow_c_schema__()))
        assert values(pa, shared) == (pa.bool8(), [True, False, True]) and shared.storage.buffers()[1].address == a._pointer
        shared = pa.array(a, pa.int8())
        assert values(pa, shared) == (pa.int8(), [1, 0, 1]) and shared.buffers()[1].address == a._pointer
        assert pa.array(a[::-1], pa.int8()).to_pylist() == [1, 0, 1] and pa.array(a[1:], pa.int8()).to_pylist() == [0, 1]
    for method in ("__arrow_c_array__", "__arrow_c_device_array__"):
        a, wish = ub.asarray([True, False], device="host"), pa.bool8().__arrow_c_schema__()
        schema, _ = getattr(a, method)(requested_schema=wish)
        assert pa.Field._import_from_c_capsule(schema).type == pa.bool8()
        for other in (None, pa.utf8().__arrow_c_schema__(), pa.timestamp("s").__arrow_c_schema__(), "no schema"):
            schema, _ = getattr(a, method)(other)
            assert pa.Field._import_from_c_capsule(schema).type == pa.bool_()


def test_booleans_of_more_axes():
    for shape in ((2, 4), (3, 3), (2, 3, 4), (0, 3)):
        x = np.arange(np.prod(shape)).reshape(shape) % 3 == 1
        for place in places(["shared"]):
            a = ub.asarray(x, **place, copy=True)
            for v, want in ((pa.array(a), x), (pa.array(a[::-1]), x[::-1]), (pa.array(a.T), x.T)):
                assert v.type == pa.fixed_shape_tensor(pa.bool_(), want.shape[1:])
                assert v.storage.to_pylist() == want.reshape(len(want), int(np.prod(want.shape[1:]))).tolist()
                assert ub.asarray(v).dtype == "bool" and ub.asarray(v).tolist() == want.tolist()


NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("wish", [*NUMBERS, "bool"])
def test_requested_types(wish):
    """Numbers become the requested type if it holds them. pyarrow does the same with ndarrays, and refuses large integers as floats."""
    t = pa.bool_() if wish == "bool" else pa.from_numpy_dtype(wish)
    limits = [2**53 + 1, 2**62, 2**63 - 1, 2**64 - 1, -(2**53), -1, 127, 128, 255, 256, 65504, 65535, 0]
    inputs = [np.array([x], d) for d in NUMBERS[:8] for x in limits if np.iinfo(d).min <= x <= np.iinfo(d).max]
    inputs += [np.array(x, d) for d in NUMBERS[8:] for x in ([1.0, 0.0], [-0.0], [1.5], [np.nan], [np.inf], [300.0], [-1.0])]
    inputs += [np.array([True, False]), np.array([], "int64")]
    for n in inputs:
        for place in places(["shared"]):
            a = ub.asarray(n, **place, copy=True)
            want = n if wish == "bool" else n.astype(wish, copy=False)
            if wish != "bool" and (n.dtype.kind != "f" or wish in NUMBERS[:8]) and want.tolist() != n.tolist():
                want = None  # numbers that rounding to another floating-point type does not explain
            if want is None:
                with pytest.raises(ValueError, match="requested type"):
                    pa.array(a, type=t)
            else:
                got = pa.array(a, type=t)
                assert got.type == t and np.array_equal(got.to_numpy(zero_copy_only=False), want.astype(wish), equal_nan=wish.startswith("f")), n


def test_requested_types_of_tables():
    for place in places(["shared"]):
        a = ub.asarray([[1, 2], [3, 4]], **place)
        assert pa.chunked_array([a[0]], type=pa.float32()).to_pylist() == [1, 2]
        assert pa.table({"x": a[0]}, schema=pa.schema({"x": pa.int8()}))["x"].to_pylist() == [1, 2]
        for t in (pa.fixed_shape_tensor(pa.float32(), (2,)), pa.list_(pa.float32(), 2)):  # pyarrow asks for the storage of a tensor
            v = pa.array(a, type=t)
            assert v.type == pa.list_(pa.float32(), 2) and v.to_pylist() == [[1, 2], [3, 4]]
        assert pa.array(a > 1, type=pa.list_(pa.bool_(), 2)).to_pylist() == [[False, True], [True, True]]
        assert pa.array(ub.asarray([1.5], dtype="bfloat16", **place), type=pa.float32()).to_pylist() == [1.5]
        for junk in (0, 255, 0, 255):  # the bits behind the last packed element can have any value
            freed = [ub.full(64, junk, dtype="uint8", **place) for _ in range(4)]
            del freed
            assert pa.array(ub.asarray([1, -2, 3], dtype="int4", **place), type=pa.int8()).to_pylist() == [1, -2, 3]


def test_device_memory_stays_bytes(device):
    a = ub.asarray([True, False], usm_type="device")
    schema, _ = a.__arrow_c_device_array__()
    assert pa.Field._import_from_c_capsule(schema).type == pa.bool8()
    with pytest.raises(BufferError, match="device memory"):
        a.__arrow_c_array__()


def test_later_writes_do_not_change_bits():
    a = ub.asarray([True, False, True], device="host")
    v = pa.array(a)
    a[:] = False
    assert v.to_pylist() == [True, False, True]


def test_compute():
    pc = peer("pyarrow.compute")
    for place in places(["shared"]):
        mask = pa.array(ub.asarray([True, False, True], **place))
        assert pc.filter(pa.array([1, 2, 3]), mask).to_pylist() == [1, 3] and pc.sum(mask).as_py() == 2
