"""The buffer protocol and __array_interface__, exported and imported."""

import array
import ctypes as ct
import gc
import hashlib
import io
import mmap
import sys

import pytest

import usmbridge as ub


def test_memoryview(device):
    for where in (dict(device="host"), dict(usm_type="shared"), dict(usm_type="host")):
        a = ub.zeros((2, 3), "int32", **where)
        m = memoryview(a)
        assert (m.shape, m.strides, m.format, m.itemsize, m.nbytes, m.readonly, m.ndim) == ((2, 3), (12, 4), "i", 4, 24, False, 2)
        m[1, 2] = 7
        assert a.asnumpy().tolist() == [[0, 0, 0], [0, 0, 7]]
        v = memoryview(a[::-1, ::2])
        assert v.strides == (-12, 8) and v.tolist() == [[0, 7], [0, 0]]
        assert bytes(a) == bytes(m)
        with pytest.raises(TypeError):
            memoryview(a[:, ::2]).cast("B")


def test_the_view_keeps_the_memory(device):
    m = memoryview(ub.zeros(4, "uint8", usm_type="shared"))
    gc.collect()
    ub.zeros(4, "uint8", usm_type="shared")
    m[0] = 1
    assert m.tolist() == [1, 0, 0, 0]
    m.release()


def test_refused(device, np):
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


def test_numpy(np, device):
    for where in (dict(device="host"), dict(usm_type="shared"), dict(usm_type="host")):
        a = ub.zeros((2, 3), "float32", **where)
        x = np.asarray(a)
        assert x.ctypes.data == a._pointer and x.shape == (2, 3) and x.flags.writeable
        i = a.__array_interface__
        assert i["version"] == 3 and i["data"] == (a._pointer, False) and i["typestr"] == "<f4" and i["strides"] is None and i["shape"] == (2, 3)
        assert a.T.__array_interface__["strides"] == (4, 12)
        holder = type("I", (), {"__array_interface__": a[1].__array_interface__, "a": a})()
        assert np.asarray(holder).ctypes.data == a[1]._pointer
    r = np.arange(3)
    r.flags.writeable = False
    assert not np.asarray(ub.asarray(r)).flags.writeable and ub.asarray(r).__array_interface__["data"][1] is True
    assert np.asarray(ub.zeros((), device="host")).shape == () and np.asarray(ub.zeros((0, 3), device="host")).shape == (0, 3)


def test_in(np):
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


def test_in_refused(np):
    class NoDLPack(np.ndarray):
        __dlpack__ = property()

    for bad in (np.array(["a"]), np.array([object()]), np.arange(3).astype(">i4"), np.zeros(2, "i4,f4"), np.zeros(2, "M8[s]")):
        with pytest.raises((TypeError, BufferError, ValueError)):
            ub.asarray(bad.view(NoDLPack))
    x = np.zeros(4, dtype=np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [0], "itemsize": 6}))["a"]
    with pytest.raises(BufferError, match="multiple"):
        ub.asarray(x.view(NoDLPack))


def test_buffer_requests(device):
    """Each flag of PEP 3118, on layouts that have and do not have the requested property."""

    class Buffer(ct.Structure):
        _fields_ = [("buf", ct.c_void_p), ("obj", ct.c_void_p), ("len", ct.c_ssize_t), ("itemsize", ct.c_ssize_t), ("readonly", ct.c_int),
                    ("ndim", ct.c_int), ("format", ct.c_char_p), ("shape", ct.c_void_p), ("strides", ct.c_void_p),
                    ("suboffsets", ct.c_void_p), ("internal", ct.c_void_p)]

    get = ct.pythonapi.PyObject_GetBuffer
    get.argtypes = [ct.py_object, ct.POINTER(Buffer), ct.c_int]
    release = ct.pythonapi.PyBuffer_Release
    release.argtypes = [ct.POINTER(Buffer)]
    WRITABLE, FORMAT, ND, STRIDES, C, F, ANY, INDIRECT = 1, 4, 8, 0x18, 0x38, 0x58, 0x98, 0x118
    a = ub.zeros((3, 4), "float32", device="host")
    arrays = {"c": a, "f": a.T, "none": a[::2, ::2], "both": a[0]}
    fits = {0: {"c", "both"}, ND: {"c", "both"}, STRIDES: set(arrays), C: {"c", "both"}, F: {"f", "both"}, ANY: {"c", "f", "both"}, INDIRECT: set(arrays)}
    for flags, ok in fits.items():
        for name, x in arrays.items():
            for extra in (0, FORMAT, WRITABLE, FORMAT | WRITABLE):
                b = Buffer()
                if name not in ok:
                    with pytest.raises(BufferError):
                        get(x, ct.byref(b), flags | extra)
                    assert not b.obj
                    continue
                assert get(x, ct.byref(b), flags | extra) == 0
                assert (b.buf, b.len, b.itemsize, b.readonly) == (x._pointer, x.nbytes, 4, 0)
                assert b.format == (b"f" if extra & FORMAT else None)
                assert bool(b.shape) == bool(flags & ND) and bool(b.strides) == (flags & STRIDES == STRIDES) and not b.suboffsets
                release(ct.byref(b))
    with pytest.raises(BufferError, match="device"):
        memoryview(ub.zeros(3, usm_type="device"))
