"""Exchanges with the real peers in both directions, with the arguments that each of them passes."""


import pytest

import capi
import usmbridge as ub
from conftest import peer


def test_pyarrow(pyarrow, np):
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


def test_arguments_of_other_consumers(np, device):
    """Arguments of consumers that are not installed: CuTe DSL and mpi4py pass stream=-1, torch (1, 0) and more."""
    a = ub.zeros(3, device="host")
    assert capi.name(a.__dlpack__(stream=-1)) == capi.LEGACY
    assert capi.name(a.__dlpack__(stream=None, max_version=(1, 0), dl_device=None, copy=None)) == capi.VERSIONED
    assert capi.name(a.__dlpack__(max_version=(1, 3))) == capi.VERSIONED
    u = ub.zeros(3)
    assert capi.name(u.__dlpack__(stream=-1)) == capi.LEGACY
