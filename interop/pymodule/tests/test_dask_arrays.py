"""dask.array on Arrays, with usmbridge.dask imported or not: the values are those of the same operations on ndarrays."""

import pytest
from conftest import peer, places, run

import usmbridge as ub

OPERATIONS = {
    "sum": lambda x, a, np: x.sum(), "sum of an axis": lambda x, a, np: x.sum(axis=0), "mean": lambda x, a, np: x.mean(axis=1), "std": lambda x, a, np: x.std(axis=0),
    "max": lambda x, a, np: x.max(axis=0), "argmax": lambda x, a, np: x.argmax(axis=0), "any": lambda x, a, np: (x > 3).any(axis=0), "@": lambda x, a, np: x @ x.T,
    "x @ a": lambda x, a, np: x @ a.T, "a @ x": lambda x, a, np: a.T @ x, "x + a": lambda x, a, np: x + a, "a + x": lambda x, a, np: a + x,
    "a == x": lambda x, a, np: a == x, "sqrt": lambda x, a, np: np.sqrt(x), "add": lambda x, a, np: np.add(a, x), "transpose": lambda x, a, np: x.T,
    "slice": lambda x, a, np: x[1:3, ::2], "cumsum": lambda x, a, np: x.cumsum(axis=0), "element": lambda x, a, np: x[1, 2], "astype": lambda x, a, np: x.astype("f4"),
}


@pytest.mark.parametrize("chunks", [(2, 3), (4, 6)], ids=str)
def test_operations(np, device, chunks):
    da = peer("dask.array")
    n = np.arange(24.0).reshape(4, 6)
    for place in places(["shared"]):
        a = ub.asarray(n, **place, copy=True)
        x = da.from_array(a, chunks=chunks)
        results = {name: (f(x, a, np).compute(), f(n, n, np)) for name, f in OPERATIONS.items()}
        mask, rows = ub.asarray([True, False, True, False], **place), ub.asarray([2, 0], **place)
        results.update({
            "rechunk": (x.rechunk((1, 6)).sum(axis=1).compute(), n.sum(axis=1)), "rows": (x[rows].compute(), n[[2, 0]]), "columns": (x[:, rows].compute(), n[:, [2, 0]]),
            "mask": (x[mask].compute(), n[[0, 2]]), "mask of all": (x[ub.asarray(n > 5, **place)].compute(), n[n > 5]),
            "tensordot": (da.tensordot(x, x, axes=2).compute(), np.tensordot(n, n, 2)), "concatenate": (da.concatenate([x, x]).compute(), np.concatenate([n, n])),
            "blocks": (x.map_blocks(lambda b: b * 2).compute(), n * 2), "where": (da.where(x > 3, x, 0).compute(), np.where(n > 3, n, 0)),
        })
        for name, (got, want) in results.items():
            assert np.shape(got) == np.shape(want) and np.allclose(np.asarray(got), want), name


def test_with_the_module(np):
    """The same in a process that has imported usmbridge.dask."""
    peer("dask.array")
    out = run("import usmbridge.dask, dask.array as da, numpy as np\nn = np.arange(24.).reshape(4, 6)\na = ub.asarray(n, device='host')\nx = da.from_array(a, chunks=(2, 3))\n"
              "rows = ub.asarray([2, 0], device='host')\n"
              "for got, want in ((x.sum(axis=0), n.sum(axis=0)), (x @ x.T, n @ n.T), (x.rechunk((4, 2)), n), (x[rows], n[[2, 0]]), (a + x, n + n)):\n"
              "    assert np.array_equal(np.asarray(got.compute()), want)\nprint('all')")
    assert out.strip() == "all"
