"""dask.array over Arrays."""

import pytest
from conftest import peer, sycl_device

import usmbridge as ub

da = peer("dask.array")


@pytest.mark.parametrize("where", [dict(device="host"), dict(usm_type="shared")], ids=["host", "shared"])
def test_blocks_of_an_array(where, np):
    """Arithmetic, rechunking, products, reductions and functions of blocks equal those of NumPy arrays."""
    if "usm_type" in where:
        sycl_device()
    values = np.arange(24, dtype="float32").reshape(4, 6)
    a = ub.asarray(values, copy=True, **where)
    x = da.from_array(a, chunks=(2, 3))
    assert x.dtype == values.dtype and x.shape == values.shape
    assert np.array_equal(x.rechunk((4, 2)).compute(scheduler="synchronous"), values)
    assert np.array_equal(da.tensordot(x, x.T, axes=1).compute(scheduler="synchronous"), values @ values.T)
    assert np.array_equal((x + 1).compute(scheduler="synchronous"), values + 1)
    assert np.array_equal((x[1:, ::2] * x[:-1, 1::2] - 2).compute(scheduler="synchronous"), values[1:, ::2] * values[:-1, 1::2] - 2)
    assert np.array_equal(da.sqrt(x).max(axis=1).compute(scheduler="synchronous"), np.sqrt(values).max(axis=1))
    assert x.sum().compute(scheduler="synchronous") == values.sum()
    doubled = x.map_blocks(lambda block: np.asarray(block) * 2, dtype=values.dtype)
    assert np.array_equal(doubled.compute(scheduler="synchronous"), values * 2)
    del a, x, doubled
