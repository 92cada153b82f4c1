"""Memory that others can access without a call of this library, and addresses in USM that come back by other objects."""

import ctypes
import gc
import multiprocessing
import threading
import weakref

import numpy as np
import pyarrow as pa
import pytest

import usmbridge as ub
import usmbridge.array_api as xp
from conftest import peer, run, soon

N = 1 << 18
HOST_KINDS = ("shared", "host")


@pytest.fixture(autouse=True)
def sycl(device):
    peer("dpnp.tensor")


def ones(kind="shared", n=N):
    return ub.ones(n, "float32", usm_type=kind)


# ---- observed memory ---------------------------------------------------------------------------

# The ways to access the memory of an Array without a call, as a function that returns what keeps the memory observed and an
# ndarray on the memory.
OBSERVERS = {
    "ndarray": lambda a: [np.asarray(a)] * 2,
    "slice of an ndarray": lambda a: [np.asarray(a)[::2]] * 2,
    "memoryview": lambda a: (m := memoryview(a), np.frombuffer(m, "float32")),
    "slice of a memoryview": lambda a: (m := memoryview(a)[1:], np.frombuffer(m, "float32")),
    "np.from_dlpack": lambda a: [np.from_dlpack(a, device="cpu")] * 2,
    "capsule": lambda a: (a.__dlpack__(dl_device=(1, 0), max_version=(1, 0)), on_address(a)),
    "legacy capsule": lambda a: (a.__dlpack__(dl_device=(1, 0)), on_address(a)),
    "pyarrow": lambda a: (p := pa.array(a), p.to_numpy()),
    "Arrow structs": lambda a: (a.__arrow_c_array__(), on_address(a)),
    "ctypes": lambda a: (c := (ctypes.c_float * N).from_buffer(a), np.frombuffer(c, "float32")),
    "of a view": lambda a: [np.asarray(a[1:])] * 2,
    "of an Array of the host": lambda a: [np.asarray(ub.asarray(a, device="host"))] * 2,
    "of a tensor": lambda a: [np.asarray(ub.from_dlpack(np.asarray(a)))] * 2,
}


def on_address(a):
    """An ndarray that keeps nothing."""
    return np.frombuffer((ctypes.c_float * len(a)).from_address(a._pointer), "float32")


def with_mask(a, v):
    a[ub.ones(N, "bool", usm_type=a.usm_type)] = v


def raised_after_work(a, v):
    with pytest.raises(RuntimeError):
        xp._call(a, "", "_work_and_raise", (a, v), {})


def work_and_raise(x, v):
    x *= v
    raise RuntimeError


xp._functions[True, "", "_work_and_raise"] = work_and_raise

# Functions that multiply an Array of ones by v with devices.
WORK = {
    "in place": lambda a, v: a.__imul__(v),
    "in place, by an Array": lambda a, v: a.__imul__(ones(a.usm_type) * v),
    "assignment": lambda a, v: a.__setitem__(..., ones(a.usm_type) * v),
    "mask": with_mask,
    "a view": lambda a, v: a[:].__imul__(v),
    "two halves": lambda a, v: (a[: N // 2].__imul__(v), a[N // 2 :].__imul__(v)),
    "an Array of another view": lambda a, v: ub.asarray(np.asarray(a)).__imul__(v),
    "reshaped": lambda a, v: xp.reshape(a, (2, N // 2)).__imul__(v),
    "an exception": raised_after_work,
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("observer", OBSERVERS)
def test_work_on_observed_memory_ends_before_the_call_returns(observer, work):
    for v, kind in enumerate(HOST_KINDS, 2):
        a = ones(kind)
        keeper, n = OBSERVERS[observer](a)
        if kind == "host":
            t = threading.Thread(target=WORK[work], args=(a, v))
            t.start()
            t.join()
        else:
            WORK[work](a, v)
        assert n[-1] == v and n[0] == v and (n == v).all(), kind
        del keeper, n


# Computations that read a.
READS = {
    "operator": lambda a: a * 2,
    "reflected": lambda a: 2 * a,
    "operand": lambda a: ones(a.usm_type) * a * 2,
    "array_api": lambda a: xp.multiply(a, 2),
    "a list": lambda a: xp.concat([a, a])[:N] * 2,
    "method": lambda a: a.cumsum() * 0 + a * 2,
    "ufunc": lambda a: np.multiply(a, np.float32(2)),
}


@pytest.mark.parametrize("read", READS)
def test_observers_may_write_after_a_call_that_reads(read):
    for kind in HOST_KINDS:
        a = ones(kind)
        n = np.asarray(a)
        for v in range(1, 4):
            n[:] = v
            r = READS[read](a)
            n[:] = -1
            assert (r.asnumpy() == 2 * v).all(), (kind, v)


def test_observers_are_counted():
    for kind in HOST_KINDS:
        for name, observe in OBSERVERS.items():
            a = ones(kind)
            assert not a._observed, name
            kept = [observe(a) for _ in range(3)]
            assert a._observed and a[1:]._observed, name
            del kept[1:]
            gc.collect()
            assert a._observed, name
            kept.clear()
            gc.collect()
            assert not a._observed, name
    a = ub.ones(3, device="host")
    m = memoryview(a)
    assert not a._observed
    m.release()


def test_more_observers_than_can_be_counted():
    a = ones(n=8)
    views = [memoryview(a) for _ in range(5000)]
    assert a._observed
    del views[1:]
    assert a._observed
    views.clear()
    a += 1
    assert a.tolist() == [2.0] * 8
    b = ones(n=8)  # the same memory, most likely
    address = a._pointer
    del a
    ub.trim()
    assert not b._observed and address


def test_observers_end_on_other_threads():
    for _ in range(20):
        a = ones(n=1 << 10)
        views = [np.asarray(a) for _ in range(50)] + [np.from_dlpack(a, device="cpu") for _ in range(50)]
        threads = [threading.Thread(target=views.__delitem__, args=(slice(0, 10),)) for _ in range(10)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not views and not a._observed


def times(a, v):
    a *= v


def test_interprocess_memory_is_observed():
    a = ub.ones(N, "float32", usm_type="shared", interprocess=True)
    assert a._observed and a[1:]._observed
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for v in range(2, 8):
            a[...] = 1
            pool.apply(times, (a, v))
            assert (a.asnumpy() == v).all()


@pytest.mark.parametrize("first, second", [(slice(N // 2), slice(None)), (slice(3 * N // 4), slice(N // 4, None)), (slice(None), slice(N // 2, None))])
def test_views_of_dpnp_share_their_observers(first, second):
    import dpnp.tensor as dpt

    x = dpt.ones(N, dtype="float32", usm_type="shared")
    n, a = np.asarray(ub.asarray(x[first])), ub.asarray(x[second])
    assert a._observed
    a *= 3
    assert n[-1] == 3
    assert ub.asarray(n).usm_type == "shared"
    del n
    assert not a._observed


@pytest.mark.parametrize("take", [ub.asarray, ub.from_dlpack])
def test_read_only_and_writable_imports_share_their_observers(take):
    import dpnp.tensor as dpt

    x = dpt.ones(N, dtype="float32", usm_type="shared")
    x.flags.writable = False
    r = take(x)
    x.flags.writable = True
    n, a = np.asarray(r), take(x)
    assert r.readonly and not a.readonly and a._observed
    a *= 3
    assert n[-1] == 3
    del a
    assert ub.asarray(n).usm_type == "shared"


# ---- addresses in USM --------------------------------------------------------------------------

VIEWS = {
    "ndarray": lambda a: np.asarray(a),
    "slice": lambda a: np.asarray(a)[:],
    "memoryview": lambda a: memoryview(a),
    "np.from_dlpack": lambda a: np.from_dlpack(a, device="cpu"),
    "pyarrow": lambda a: pa.array(a),
    "ctypes": lambda a: (ctypes.c_float * len(a)).from_buffer(a),
    "address": lambda a: on_address(a),
    "from_dlpack": lambda a: ub.from_dlpack(np.asarray(a)),
    "asarray, host": lambda a: ub.asarray(a, device="host"),
}
PLAIN = {"np.from_dlpack", "from_dlpack", "asarray, host"}  # what their makers asked for


def filled(dst, n, key=...):
    dst[key] = n
    return dst


def added(dst, n):
    dst += n
    return dst


def target(device=None):
    return ub.zeros(N, "float32", **({"device": device} if device else {"usm_type": "shared"}))


# Functions of a view n of an Array, and the place of the result: "of n" for that of the Array or of plain memory.
TAKERS = {
    "asarray": (lambda n: ub.asarray(n), "of n"),
    "asarray, copy": (lambda n: ub.asarray(n, copy=True), "of n"),
    "asarray, dtype": (lambda n: ub.asarray(n, dtype="float64"), "of n"),
    "asarray, host": (lambda n: ub.asarray(n, device="host"), None),
    "asarray, device memory": (lambda n: ub.asarray(n, usm_type="device"), "device"),
    "asarray of a list": (lambda n: ub.asarray([n, n])[1], "of n"),
    "array_api.asarray": (lambda n: xp.asarray(n, copy=True, device="host"), None),
    "from_dlpack": (lambda n: ub.from_dlpack(n), None),
    "from_dlpack, copy": (lambda n: ub.from_dlpack(n, copy=True), None),
    "full": (lambda n: ub.full(N, ub.asarray(n, device="host")[-1:], usm_type="shared"), "shared"),
    "assignment": (lambda n: filled(target(), n), "shared"),
    "assignment, host": (lambda n: filled(target("host"), n), None),
    "assignment to a slice": (lambda n: filled(target(), n, slice(0, N)), "shared"),
    "assignment to a mask": (lambda n: filled(target(), n, ub.ones(N, "bool", usm_type="shared")), "shared"),
    "assignment to a mask, host": (lambda n: filled(target("host"), n, ub.ones(N, "bool", device="host")), None),
    "index": (lambda n: xp.take(ub.asarray(range(9), dtype="float32", usm_type="shared"), ub.asarray(n, dtype="int64")), "shared"),
    "in place": (lambda n: added(target(), n), "shared"),
    "in place, host": (lambda n: added(target("host"), n), None),
    "operator": (lambda n: target() + n, "shared"),
    "ufunc": (lambda n: np.add(n, target()), "shared"),
    "ufunc, host": (lambda n: np.add(n, target("host")), "any"),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("view", VIEWS)
def test_functions_wait_for_work_on_views_of_usm(view, taker):
    import dpnp.tensor as dpt

    take, place = TAKERS[taker]
    for v, kind in enumerate(HOST_KINDS, 3):
        a = ub.zeros(N, "float32", usm_type=kind)
        n, x = VIEWS[view](a), dpt.asarray(a)
        if "from_dlpack" in taker and not hasattr(n, "__dlpack__"):
            continue
        for _ in range(3):
            dpt.sin(x, out=x)  # work of the user that is pending
        dpt.add(x, float(v), out=x)
        try:
            r = take(n)
        except ValueError as e:
            assert type(n) is ub.Array and n.usm_type is None and "plain memory and in USM" in str(e), e
            continue
        got = r.usm_type if type(r) is ub.Array else None
        want = (None if view in PLAIN else kind) if place == "of n" else place
        assert place == "any" or got == want
        got = r.asnumpy() if type(r) is ub.Array else np.asarray(r)
        assert got[-1] == v and (got == v).all(), kind


@pytest.mark.parametrize("dtype", ["unaligned", "another byte order"])
def test_copies_of_elements_that_cannot_be_shared_wait(dtype):
    import dpnp.tensor as dpt

    for v in range(3, 6):
        a = ub.zeros(N, "float32", usm_type="shared")
        n, x = np.asarray(a), dpt.asarray(a)
        n = n.view(">f4") if dtype != "unaligned" else n.view("u1")[1:-3].view("f4")[::2]
        for _ in range(3):
            dpt.sin(x, out=x)
        dpt.add(x, float(v), out=x)
        got = ub.asarray(n).asnumpy()
        assert (got == n).all() and got.size and got[0] != 0


def test_addresses_outside_of_one_live_block_are_plain():
    a, b = ones(n=1 << 10), ones(n=1 << 10)
    views = [memoryview(a), memoryview(b)]
    size = 4 << 10

    def at(address, n=size):
        return ub.asarray((ctypes.c_char * n).from_address(address))

    lo = a._pointer
    assert at(lo).usm_type == "shared" and at(lo + 4, 8).usm_type == "shared" and at(lo + size - 1, 1).usm_type == "shared"
    other = ub.ones(1 << 10, "float32", device="host")
    assert at(other._pointer).usm_type is None
    assert at(lo, 1 << 30).usm_type is None and at(lo - 4, size).usm_type is None  # over an edge: no element is read
    m = memoryview(a)
    n = np.frombuffer(m, "float32")
    assert ub.asarray(n).usm_type == "shared"
    assert ub.asarray(np.empty(0, "float32")).usm_type is None
    address = b._pointer
    views.clear()
    del b
    ub.trim()
    assert (ctypes.c_char * size).from_address(address) is not None
    c = (ctypes.c_char * size).from_address(lo)
    del m, n
    a.release()
    del a
    freed = ub.asarray(c)
    assert freed.usm_type is None


def test_addresses_in_device_memory_are_not_those_of_the_host():
    a = ub.zeros(8, "uint8", usm_type="device")
    b = ub.asarray((ctypes.c_char * 8).from_address(a._pointer))  # no element is read
    assert b.usm_type is None


def test_read_only_views_stay_read_only():
    a = ones(n=8)
    n = np.asarray(a)
    n.flags.writeable = False
    b = ub.asarray(n)
    assert b.usm_type == "shared" and b.readonly
    with pytest.raises(ValueError, match="read-only"):
        b[0] = 1
    n = np.asarray(a)
    b = ub.asarray(n)
    b[0] = 5
    assert a.tolist()[0] == 5 and n[0] == 5


def test_views_keep_the_queue_of_the_array():
    dpctl = peer("dpctl")
    queue = dpctl.SyclQueue(property="in_order")
    a = ub.zeros(8, usm_type="shared", device=queue)
    for n in (np.asarray(a), np.asarray(a)[1:], memoryview(a)):
        assert ub.asarray(n).sycl_queue == queue


def test_the_memory_outlives_its_views():
    a = ones(n=1 << 10)
    b = ub.asarray(np.asarray(a)[1:3])
    del a
    gc.collect()
    b += 1
    assert b.tolist() == [2.0, 2.0]
    live = ub.stats()["live_buffers.all.current"]
    del b
    gc.collect()
    soon(lambda: ub.stats()["live_buffers.all.current"] < live)


def test_many_lent_arrays_leave_nothing():
    for _ in range(3):
        kept = [ones(n=16) for _ in range(500)]
        views = [np.asarray(a) for a in kept]
        assert all(ub.asarray(n).usm_type == "shared" for n in views)
        del views, kept
    a = ones(n=16)
    assert ub.asarray(np.asarray(a)).usm_type == "shared"


# Ways to read an Array of plain memory on USM.
HOST_READERS = {
    "np.from_dlpack": lambda h: np.from_dlpack(h),
    "np.from_dlpack on the host": lambda h: np.from_dlpack(h, device="cpu"),
    "legacy capsule": lambda h: np.asarray(ub.from_dlpack(h.__dlpack__())),
    "capsule": lambda h: (h.__dlpack__(max_version=(1, 0)), on_address(h))[1],
    "slice": lambda h: np.from_dlpack(h[1:]),
    "retyped": lambda h: np.from_dlpack(h.view("int32")).view("float32"),
    "np.asarray": lambda h: np.asarray(h),
    "pyarrow": lambda h: pa.array(h).to_numpy(),
}


@pytest.mark.parametrize("reader", HOST_READERS)
def test_exports_of_plain_memory_on_usm_wait(reader):
    import dpnp.tensor as dpt

    a = ones(n=1 << 22)
    h, x = ub.asarray(a, device="host"), dpt.asarray(a)
    assert not a._observed
    a *= 3
    n = HOST_READERS[reader](h)
    assert n[-1] == 3 and n[0] == 3
    del n
    dpt.multiply(x, 2.0, out=x)  # work of the user
    n = HOST_READERS[reader](h)
    assert n[-1] == 6 and n[0] == 6


def test_views_without_elements():
    a = ub.ones((4, 3), "float32", usm_type="shared")
    for n in (np.asarray(a)[:0], np.asarray(a[4:]), np.asarray(a)[:, 3:], memoryview(a[:0])):
        b = ub.asarray(n)
        assert b.usm_type == "shared" and b.shape == n.shape
    assert ub.asarray(np.from_dlpack(a, device="cpu")[:0]).usm_type is None


def test_arrays_of_views_do_not_observe():
    a = ones()
    for view in (np.asarray, memoryview, lambda a: memoryview(np.asarray(a))):
        b = ub.asarray(view(a))
        assert not a._observed and not b._observed


def test_cycles_through_views_are_collected():
    import dpnp.tensor as dpt

    class Owner:
        pass

    for view in (np.asarray, memoryview, lambda a: memoryview(np.asarray(a)), lambda a: np.asarray(a)[1:]):
        o = Owner()
        o.tensor = dpt.ones(8, dtype="float32", usm_type="shared")
        o.__sycl_usm_array_interface__ = o.tensor.__sycl_usm_array_interface__
        o.view = ub.asarray(view(ub.asarray(o)))
        assert o.view.usm_type == "shared"
        ended = weakref.ref(o)
        del o
        gc.collect()
        assert ended() is None
    o = Owner()
    o.tensor = dpt.ones(8, dtype="float32", usm_type="shared")
    for readonly in (True, False):
        d = o.tensor.__sycl_usm_array_interface__
        o.__sycl_usm_array_interface__ = {**d, "data": (d["data"][0], readonly)}
        setattr(o, f"import_{readonly}", ub.asarray(o))
    assert o.import_True.readonly and not o.import_False.readonly
    ended = weakref.ref(o)
    del o
    gc.collect()
    assert ended() is None


def test_a_base_that_is_a_property():
    run(
        """
import numpy as np
class Made(np.ndarray):
    @property
    def base(self):
        return np.ones(4).view(Made)
class Wrong(np.ndarray):
    @property
    def base(self):
        return other
a = ub.ones(8, "float32", usm_type="shared")
other = ub.zeros(8, "float32", usm_type="shared", device=a.sycl_device)
for made in (Made, Wrong):
    b = ub.asarray(np.asarray(a).view(made))
    assert b.usm_type == "shared" and b._pointer == a._pointer
""",
        PYTHONMALLOC="debug",
    )


class Dictionary:
    """Memory by a dictionary alone, which does not say how far the memory of its owner goes."""

    def __init__(self, x):
        self.x = x
        self.__sycl_usm_array_interface__ = x.__sycl_usm_array_interface__


@pytest.mark.parametrize("take", [
    pytest.param(lambda x: ub.from_dlpack(x.__dlpack__(max_version=(1, 0))), id="capsule"),
    pytest.param(lambda x: ub.asarray(Dictionary(x)), id="dictionary"),
    pytest.param(ub.asarray, id="asarray"),
    pytest.param(ub.from_dlpack, id="from_dlpack"),
])
def test_slices_that_overlap(device, take):
    """Imports of overlapping slices share one record, in whatever order they come and go."""
    n, rng = 1 << 19, np.random.default_rng(5)
    for _ in range(12):
        x = peer("dpnp.tensor").ones(n, dtype="f4", usm_type="shared")
        whole = take(x) if rng.integers(2) else None
        taken = []
        for _ in range(4):
            lo = int(rng.integers(0, n // 2))
            hi = int(rng.integers(n // 2 + 1, n))
            a = take(x[lo:hi])
            taken.append((a, np.asarray(a)))
            if rng.integers(3) == 0:
                del taken[0], a
        for a, _ in taken:
            before = [(view, view[[0, -1]].copy(), view.ctypes.data) for _, view in taken]
            a *= 3
            lo, hi = a._pointer, a._pointer + 4 * a.size
            for view, old, at in before:
                for i, address in ((0, at), (-1, at + 4 * (view.size - 1))):
                    assert view[i] == old[i] * (3 if lo <= address < hi else 1)
                assert ub.asarray(view).usm_type == "shared"
        del whole, before, taken
