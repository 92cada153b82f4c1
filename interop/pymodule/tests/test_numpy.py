"""Array as an argument of NumPy: it sees the same memory or gets an error, never other values. The buffer protocol and
__array_interface__ in both directions, and small protocols of Python and NumPy that libraries rely on."""

import array
import collections.abc
import gc
import hashlib
import io
import mmap
import sys
import threading
import weakref

import pytest
from conftest import in_child, peer, places, run, sycl_device

import usmbridge as ub


def on_the_host(np, x):
    yield ub.asarray(x)
    for place in places(["shared", "host"]):
        yield ub.asarray(x, **place, copy=True)


def test_asarray_is_the_memory(np):
    x = np.arange(6.0).reshape(2, 3)
    for a in on_the_host(np, x):
        for y in (np.asarray(a), a.__array__(), a.__array__(copy=False), a.__array__(None, None), a.__array__("float64", copy=False)):
            assert y.dtype == "float64" and y.ctypes.data == a._pointer and y.flags.writeable and np.array_equal(y, x)
        for y in (a.__array__(copy=True), a.__array__("float32"), np.array(a, copy=True)):
            assert y.ctypes.data != a._pointer and np.array_equal(y, x)
        assert a.__array__("float32").dtype == np.float32
        with pytest.raises(ValueError, match="copy=False"):
            a.__array__("float32", copy=False)
        assert a.T.__array__().strides == x.T.strides


def test_read_only_memory(np):
    x = np.arange(3.0)
    x.flags.writeable = False
    a = ub.asarray(x)
    assert not np.asarray(a).flags.writeable and not a.__array__().flags.writeable and a.__array__(copy=True).flags.writeable
    assert a.asnumpy().flags.writeable and a.asnumpy().ctypes.data != a._pointer


def test_device_memory_is_refused(np, device):
    a, x = ub.asarray([1.0, 2.0, 3.0], device=device, usm_type="device"), np.arange(3.0)
    refused = [
        lambda: np.asarray(a), lambda: np.array(a), lambda: np.array([a, a]), lambda: a.__array__(), lambda: a.__array__(copy=True),
        lambda: np.array_equal(a, x), lambda: np.array_equal(x, a), lambda: np.array_equal(a, a), lambda: np.array_equiv(x, a),
        lambda: np.allclose(x, a), lambda: np.concatenate([a, a]), lambda: np.concatenate([x, a]), lambda: np.stack((a, x)),
        lambda: np.block([[a, a], [a, x]]), lambda: np.where(x > 0, a, x), lambda: np.sum(a), lambda: np.add(x, 1, out=a), lambda: np.spacing(a),
        lambda: np.copyto(x, a), lambda: np.in1d(x, a) if hasattr(np, "in1d") else np.isin(x, a), lambda: np.pad(a, mode="edge", pad_width=1),
        lambda: np.einsum("i,i", a, x), lambda: np.ones_like(a), lambda: np.full(3, a), lambda: x.__setitem__(slice(None), a),
    ]
    for f in refused:
        with pytest.raises(TypeError, match="asnumpy"):
            f()
    assert np.array_equal(a.asnumpy(), [1, 2, 3]) and a.asnumpy().flags.writeable


def test_functions_of_numpy_see_the_memory(np):
    x = np.arange(6.0).reshape(2, 3)
    for a in on_the_host(np, x):
        assert np.array_equal(a, x) and np.array_equal(x, a) and not np.array_equal(x + 1, a) and np.allclose(a, x)
        assert np.array_equal(np.concatenate([a, x]), np.concatenate([x, x])) and np.concatenate((a, a)).dtype == x.dtype
        assert np.array_equal(np.block([[a, x], [x, a]]), np.block([[x, x], [x, x]])) and np.shape(a) == (2, 3)
        assert np.array_equal(np.stack([a, a]), np.stack([x, x])) and np.array_equal(np.where(a, a, 7), np.where(x, x, 7))
        assert np.array_equal(np.sqrt(a), np.sqrt(x)) and np.array_equal(np.add(x, a), x + x) and np.sum(a, axis=0).tolist() == x.sum(0).tolist()
        out = ub.zeros((2, 3), "float64", device="host")
        np.copyto(out, a)
        assert np.array_equal(out, x)
        np.clip(x, 1, 3, out=np.asarray(out))
        assert np.sum(a=a, axis=0, out=np.asarray(out)[0]).tolist() == x.sum(0).tolist() == out[0].tolist()
        assert type(np.zeros_like(a)) is np.ndarray and np.zeros_like(a).shape == a.shape
        np.testing.assert_array_equal(a, x)


def test_array_function_returns_notimplemented_for_other_types(np):
    class Other:
        def __array_function__(self, func, types, args, kwargs):
            return "other"

    a = ub.zeros(3, device="host")
    assert np.concatenate([a, Other()]) == "other" and np.concatenate([Other(), a]) == "other"
    assert type(np.zeros(3, like=a)) is np.ndarray
    for bad in ((), (np.sum,), (np.sum, (), [], {}), (np.sum, (), (), None), (np.sum, 5, (), {})):
        with pytest.raises(TypeError):
            a.__array_function__(*bad)
    assert a.__array_function__(np.sum, (), (1,), {}) is NotImplemented
    with pytest.raises(np.exceptions.AxisError):
        np.sum(a, axis=5)
    deep = inner = []
    for _ in range(100):
        inner.append([])
        inner = inner[0]
    inner.append(a)
    a.__array_function__(len, (ub.Array,), (deep,), {})


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__", "__sycl_usm_array_interface__"])
def test_memory_that_a_property_makes(np, name):
    """A property can make the memory that its value describes: the Array keeps the last value alive."""
    seen, make = [], np.ones
    if "sycl" in name:
        sycl_device()
        make = peer("dpnp.tensor").ones

    class Owner:
        pass

    def value(self):
        memory = make(4)
        seen.append(weakref.ref(memory))
        described = getattr(memory, name)
        if name != "__array_struct__":  # whose capsule holds the ndarray
            described["keep"] = memory
        return described

    setattr(Owner, name, property(value))
    a = ub.asarray(Owner())
    gc.collect()
    assert len(seen) == (1 if "sycl" in name else 2) and seen[-1]() is not None and a.tolist() == [1, 1, 1, 1]
    view = a[1:]
    del a
    gc.collect()
    assert seen[-1]() is not None and view.tolist() == [1, 1, 1]
    del view
    gc.collect()
    assert seen[-1]() is None


def test_interfaces_without_data(np):
    """Without 'data' the memory is that of the object's buffer."""

    class Owner(bytearray):
        __array_interface__ = {"shape": (4,), "typestr": "|u1", "version": 3}

    o = Owner(b"1234")
    assert ub.asarray(o).tolist() == [49, 50, 51, 52]


# ---- buffers ----------------------------------------------------------------------------------------------


def test_refused_buffers(device, np):
    with pytest.raises(BufferError, match="device memory"):
        memoryview(ub.empty(3, usm_type="device"))
    with pytest.raises(AttributeError, match="device memory"):
        ub.empty(3, usm_type="device").__array_interface__
    with pytest.raises(BufferError, match="contiguous"):
        hashlib.sha256(ub.zeros((4, 4), device="host")[:, ::2])
    assert hashlib.sha256(ub.zeros(4, "uint8", device="host")).digest() == hashlib.sha256(bytes(4)).digest()
    with pytest.raises((BufferError, TypeError), match="read"):
        io.BytesIO(b"xyz").readinto(ub.asarray(b"abc"))
    w = ub.zeros(3, "uint8", device="host")
    assert io.BytesIO(b"xyz").readinto(w) == 3 and bytes(w) == b"xyz"


def test_array_interface(np, device):
    for where in (dict(device="host"), dict(usm_type="shared"), dict(usm_type="host")):
        a = ub.zeros((2, 3), "float32", **where)
        i = a.__array_interface__
        assert i["version"] == 3 and i["data"] == (a._pointer, False) and i["typestr"] == "<f4" and i["strides"] is None and i["shape"] == (2, 3)
        assert a.T.__array_interface__["strides"] == (4, 12)
        holder = type("I", (), {"__array_interface__": a[1].__array_interface__, "a": a})()
        assert np.asarray(holder).ctypes.data == a[1]._pointer
    r = np.arange(3)
    r.flags.writeable = False
    assert ub.asarray(r).__array_interface__["data"][1] is True
    assert np.asarray(ub.zeros((), device="host")).shape == () and np.asarray(ub.zeros((0, 3), device="host")).shape == (0, 3)


def test_buffers_in(np):
    for code, dtype in (("b", "int8"), ("B", "uint8"), ("h", "int16"), ("i", "int32"), ("l", "int64"), ("q", "int64"), ("f", "float32"), ("d", "float64"), ("Q", "uint64")):
        x = array.array(code, [1, 2, 3])
        a = ub.asarray(x)
        assert a.dtype == dtype and a.asnumpy().tolist() == [1, 2, 3] and not a.readonly
        with pytest.raises(BufferError):
            x.append(4)  # the exported buffer prevents it
        del a
        gc.collect()
        x.append(4)
    with mmap.mmap(-1, 4096) as m:
        a = ub.asarray(m)
        assert a.shape == (4096,)
        del a
    m = memoryview(bytes(range(24))).cast("H", (3, 4))
    assert ub.asarray(m).shape == (3, 4) and ub.asarray(m).readonly
    b = b"some bytes"
    n = sys.getrefcount(b)
    a = ub.asarray(b)
    v = a[2:]
    del a
    assert bytes(v) == b"me bytes"
    del v
    gc.collect()
    assert sys.getrefcount(b) == n


# ---- asarray of a view that NumPy or a memoryview has of an Array in USM is an Array in USM again ---------

KINDS = ["shared", "host"]
VIEWS = {
    "all": lambda np, n: n, "columns": lambda np, n: n[:, ::2], "odd columns": lambda np, n: n[:, 1::2], "backwards": lambda np, n: n[::-1, ::-1],
    "transposed": lambda np, n: n.T, "part": lambda np, n: n[1:, 2:], "last": lambda np, n: n[2, 3:], "no axes": lambda np, n: n[1, 1:2].reshape(()),
    "empty": lambda np, n: n[1:1], "bytes": lambda np, n: n.view("u1"), "halves": lambda np, n: n.view("u1")[:, 4:12].view("f4"), "new axis": lambda np, n: n[:, None],
    "repeated": lambda np, n: np.broadcast_to(n[0], (5, 4)), "memoryview": lambda np, n: memoryview(n[1:]), "frombuffer": lambda np, n: np.frombuffer(n),
    "matrix": lambda np, n: n.view(np.matrix),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_usm(np, dpctl, kind, name):
    q = dpctl.SyclQueue()
    u = ub.asarray(np.arange(12.0).reshape(3, 4), usm_type=kind, device=q, copy=True)
    x = VIEWS[name](np, np.asarray(u))
    a, n = ub.asarray(x), np.asarray(x)
    assert a.usm_type == kind and a.sycl_queue is q and a.shape == n.shape and a.dtype == n.dtype and a.tolist() == n.tolist()
    assert a.readonly == (not n.flags.writeable) and (a._pointer == n.__array_interface__["data"][0] or not n.size)
    if n.size and not a.readonly:
        a[...] = 5
        assert (np.asarray(x) == 5).all() and 5 in u.view(a.dtype)
    assert ub.asarray(memoryview(u)).usm_type == kind


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_for_views_of_usm(np, device, kind):
    u = ub.ones((2, 3), usm_type=kind)
    n = np.asarray(u)
    shared = ub.asarray(n[:, 1:], copy=False)
    assert shared._pointer == u[:, 1:]._pointer
    copy = ub.asarray(n, copy=True)
    copy[0, 0] = 9
    assert copy.usm_type == kind and n[0, 0] == 1
    assert ub.asarray(n, dtype="int8").usm_type == kind and ub.asarray(n, usm_type="device").usm_type == "device"
    host = ub.asarray(n, device="host", copy=False)  # as asked for
    assert host.usm_type is None and host._pointer == u._pointer and ub.from_dlpack(n)._pointer == u._pointer and ub.from_dlpack(n).usm_type is None
    readonly = n[1:]
    readonly.flags.writeable = False
    assert ub.asarray(readonly).readonly and ub.asarray(np.asarray(u.as_readonly())).readonly and ub.asarray(np.asarray(u.as_readonly())).usm_type == kind
    assert (n + ub.asarray(n)).usm_type == kind and ub.empty_like(n).usm_type == kind and ub.array_api.asarray(n).usm_type == kind


def test_the_memory_outlives_all(np, device):
    u = ub.ones((2, 3), usm_type="shared")
    n = np.asarray(u)[:, 1:]
    a = ub.asarray(n)
    del u, n
    gc.collect()
    assert a.tolist() == [[1, 1], [1, 1]]


def test_other_memory_stays_plain(np, device):
    u = ub.ones((2, 3), usm_type="shared")
    n = np.asarray(u)
    beyond = np.lib.stride_tricks.as_strided(n, (1 << 20,), (8,))
    for x in (np.arange(3.0), n.copy(), bytearray(8), np.asarray(ub.ones(3, device="host")), beyond, np.asarray(n.tolist())):
        assert ub.asarray(x).usm_type is None
    u.release()
    assert ub.asarray(n).usm_type is None and ub.asarray(n).tolist() == [[1] * 3] * 2


def test_work_on_the_view_is_awaited(np, dpnp):
    """The view shares the record of pending work: reading any Array of the memory waits for it."""
    u = ub.zeros((64, 1024), usm_type="shared")
    v = ub.asarray(np.asarray(u)[::2])
    v += 1
    v *= 3
    assert u[::2].asnumpy().tolist() == [[3] * 1024] * 32 and not u[1::2].asnumpy().any()


def test_without_numpy(device):
    assert run("u = ub.ones(3, usm_type='shared')\nprint(ub.asarray(memoryview(u)[1:]).usm_type, 'numpy' in sys.modules)").split() == ["shared", "False"]


def test_in_a_forked_child(np, device):
    u = ub.ones(3, usm_type="shared")
    n = np.asarray(u)
    assert ub.asarray(n).usm_type == "shared" and threading.active_count() >= 1
    in_child(lambda: ub.asarray(n)._pointer == u._pointer)


# ---- small protocols -------------------------------------------------------------------------------------


def test_iteration(np):
    for place in places():
        a = ub.asarray(np.arange(6).reshape(2, 3), **place)
        assert isinstance(a, collections.abc.Iterable) and [x.tolist() for x in a] == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(TypeError, match="0-d"):
            iter(a[0, 0])


def test_format_and_round(np):
    for place in places():
        a = ub.asarray([2.567, 3.5], **place)
        assert f"{a[0]:.2f}" == "2.57" and round(a[0], 1) == 2.6 and round(a[1]) == 4 and f"{a}" == str(a)
        assert "{:>5d}".format(ub.asarray(7, **place)) == "    7"
        for bad in (lambda: f"{a:.2f}", lambda: round(a), lambda: round(a[0], 1.5), lambda: round(a[0], 1, 2)):
            with pytest.raises(TypeError):
                bad()


def test_tobytes(np):
    for place in places():
        n = np.arange(12, dtype="int16").reshape(3, 4)
        a = ub.asarray(n, **place)
        for x, y in ((a, n), (a.T, n.T), (a[::2, ::-1], n[::2, ::-1]), (a[:0], n[:0]), (a[1, 2], n[1, 2])):
            assert x.tobytes() == y.tobytes()
    assert len(ub.zeros(3, "int4", device="host").tobytes()) == 2


def test_print_options(np):
    for place in places():
        a = ub.asarray([1.23456, 2.0], **place)
        with np.printoptions(precision=2):
            assert repr(a).startswith("Array([1.23, 2.  ], dtype=float64")
        assert repr(a).startswith("Array([1.23456, 2.     ]")
    assert "Array([1.5], dtype=float64, device=host)" in run("print(ub.asarray([1.5], device='host')); assert 'numpy' not in sys.modules", first="")
