"""asarray of a view that NumPy or a memoryview has of an Array in USM is an Array in USM again."""

import gc
import threading

import pytest
from conftest import in_child, run

import usmbridge as ub

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
def test_views(np, dpctl, kind, name):
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
def test_arguments(np, device, kind):
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
