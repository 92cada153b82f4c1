"""The buffer protocol and __array_interface__, exported and imported."""

import array
import gc
import hashlib
import io
import mmap
import sys

import pytest

import usmbridge as ub


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
        i = a.__array_interface__
        assert i["version"] == 3 and i["data"] == (a._pointer, False) and i["typestr"] == "<f4" and i["strides"] is None and i["shape"] == (2, 3)
        assert a.T.__array_interface__["strides"] == (4, 12)
        holder = type("I", (), {"__array_interface__": a[1].__array_interface__, "a": a})()
        assert np.asarray(holder).ctypes.data == a[1]._pointer
    r = np.arange(3)
    r.flags.writeable = False
    assert ub.asarray(r).__array_interface__["data"][1] is True
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
