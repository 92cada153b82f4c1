"""dask.array over Arrays."""

import pytest
from conftest import peer, sycl_device

import usmbridge as ub

da = peer("dask.array")


@pytest.mark.parametrize("where", [dict(device="host"), dict(usm_type="shared")], ids=["host", "shared"])
def test_blocks_of_an_array(where, np):
    """Rechunking, products, reductions and functions of blocks give what they give for NumPy's array."""
    if "usm_type" in where:
        sycl_device()
    values = np.arange(24, dtype="float32").reshape(4, 6)
    a = ub.asarray(values, copy=True, **where)
    x = da.from_array(a, chunks=(2, 3))
    assert x.dtype == values.dtype and x.shape == values.shape
    assert np.array_equal(x.rechunk((4, 2)).compute(scheduler="synchronous"), values)
    assert np.array_equal(da.tensordot(x, x.T, axes=1).compute(scheduler="synchronous"), values @ values.T)
    assert x.sum().compute(scheduler="synchronous") == values.sum()
    doubled = x.map_blocks(lambda block: np.asarray(block) * 2, dtype=values.dtype)
    assert np.array_equal(doubled.compute(scheduler="synchronous"), values * 2)
    del a, x, doubled
