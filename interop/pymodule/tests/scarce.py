"""Checks every scenario without memory, and with interrupts; test_scarce.py runs it in processes of its own.

    usmpython scarce.py python|c STEP [SCENARIO ...]
    usmpython scarce.py interrupts COUNT [SCENARIO ...]

It repeats each scenario and makes another allocation fail each time: Python's allocations by _testcapi, those of the
C parts by the library that test_scarce.py builds and preloads. The scenario must raise MemoryError or succeed
without the allocation. It must give back everything it took, and succeed the next time. STEP is the distance
between failing allocations; 1 means all of them.

With interrupts, KeyboardInterrupt is raised every 0.1 ms until COUNT of them have hit each scenario. None may crash it,
become another error, or leave memory behind."""

import copy
import ctypes
import gc
import json
import pickle
import signal
import sys
import time
from multiprocessing.reduction import ForkingPickler

import usmbridge as ub

try:
    import numpy as np
except ImportError:
    np = None

HOST = dict(device="host")
SOON = 300
kept = ub.full((4, 6), 3, "int32", **HOST)
lent = ub.full((4, 6), 3, "int32", interprocess=True, **HOST)
many = ub.zeros((1,) * 20, "float32", **HOST)  # more dimensions than an Array of the free list has
wanted = [[3] * 6] * 4


def make():
    for f, args in ((ub.empty, ()), (ub.zeros, ()), (ub.ones, ()), (ub.full, (7,))):
        f((3, 4), *args, dtype="float64", **HOST)
    ub.zeros_like(kept)
    ub.empty(5, interprocess=True, **HOST)


def views():
    a = kept[1:, ::2].T
    assert a.shape == (3, 3) and a.strides == (2, 6)
    kept.reshape(6, 4).transpose((1, 0))
    kept[0, 0].item()
    kept.view("float32")
    kept.as_readonly()[..., None]
    many[0].shape


def values():
    assert kept.tolist() == wanted
    repr(kept), str(kept.dtype), kept.__array_interface__, kept.device
    a = ub.asarray([[1, 2], [3, 4.5]], **HOST)
    a[0] = [5, 6]
    a[1] = 7
    a.fill(1)
    assert a.astype("int8").tolist() == [[1, 1], [1, 1]]
    kept.copy(), copy.deepcopy(a)
    float(a[0, 0])


def buffers():
    m = memoryview(kept)
    assert m.shape == (4, 6)
    b = ub.asarray(bytearray(b"some bytes"))
    del m
    assert b.shape == (10,)
    b.release()


def dlpack():
    for x in (kept, many):
        c = x.__dlpack__(max_version=(1, 0))
        del c
        x.__dlpack__()
        a = ub.from_dlpack(x)
        assert a._pointer == x._pointer
    ub.from_dlpack(kept, copy=True)


def arrow():
    flat = kept.reshape(24)
    schema, array = flat.__arrow_c_array__()
    del schema, array
    flat.__arrow_c_device_array__()


def pickles():
    assert pickle.loads(pickle.dumps(kept)).tolist() == wanted
    buffers = []
    data = pickle.dumps(kept, protocol=5, buffer_callback=buffers.append)
    assert pickle.loads(data, buffers=buffers).tolist() == wanted


def withdrawn():
    """A pickle that fails revokes its handles."""
    try:
        ForkingPickler.dumps([lent, lent[1:], memoryview(b"")])
    except TypeError:
        pass


def handles():
    """The handle of a complete pickle that is lost expires by itself."""
    a = ForkingPickler.loads(bytes(ForkingPickler.dumps(lent)))
    assert a._pointer == lent._pointer


def served():
    with ub.share.serve("", {"a": lent}) as server:
        assert ub.share.names(server.address) == ["a"]
        a = ub.share.attach(server.address, "a")
        assert a.tolist() == wanted
    ub.share.stats()


def counts():
    ub.stats()
    ub.devices()
    ub.trim()


def cute():
    t = ub.cute.from_dlpack(kept)
    assert t.shape == (4, 6)
    str(t.mark_layout_dynamic()), t.stride, t.memspace
    str(t.mark_compact_shape_dynamic(0))


def numpy():
    x = np.arange(24, dtype="int32").reshape(4, 6)
    a = ub.asarray(x)
    b = ub.from_dlpack(x.T)
    assert np.from_dlpack(kept).tolist() == wanted == np.asarray(kept).tolist()
    assert a.asnumpy() is not None and b.shape == (6, 4)
    kept.T.asnumpy()


class Shown:
    def __init__(self, a):
        self.__sycl_usm_array_interface__ = a.__sycl_usm_array_interface__


def usm():
    for a in shared:
        b = ub.from_usm_array_interface(Shown(a.T))
        assert b.shape == (6, 4) and b._pointer == a._pointer
        c = ub.empty((3, 4), usm_type="device")
        c.sycl_queue, c.usm_type
        assert a.copy().tolist() == wanted
        assert ub.asarray(kept, usm_type="shared").tolist() == wanted


def everywhere(**where):
    """The operations of the C module on new memory of a place. The operators are written in Python: CPython 3.11
    crashes if it has no memory for the iterator of a dict."""
    a = ub.full((4, 6), 3, "int32", **where)
    repr(a), str(a)
    assert a.tolist() == wanted
    a[1:, ::2].T.copy(), a.astype("float32"), a.reshape(24)
    a[0] = 5
    a[1, 2:] = [1, 2, 3, 4]
    a.fill(3)
    a[0, 0].item(), int(a[1, 1]), a.tobytes()
    b = pickle.loads(pickle.dumps(a, protocol=5))
    assert b.tolist() == wanted
    ub.from_dlpack(a), a.__dlpack__(), ub.asarray(a, dtype="int64")
    a.to_device("host")
    if np is not None:
        a.asnumpy()
        if a.usm_type != "device":
            np.asarray(a)


def plain_place():
    everywhere(device="host")


def shared_place():
    everywhere(usm_type="shared")


def device_place():
    everywhere(usm_type="device")


shared = [ub.full((4, 6), 3, "int32", usm_type="shared")] if len(ub.devices()) > 1 else []
SCENARIOS = [make, views, values, buffers, dlpack, arrow, pickles, withdrawn, handles, served, counts, cute, usm]
if np is not None:
    SCENARIOS.append(numpy)
SCENARIOS.append(plain_place)
if shared:
    SCENARIOS += [shared_place, device_place]


def taken(f):
    s = ub.stats()
    shared = ub.share.stats()
    now = s["live_buffers.all.current"], s["allocated_bytes.all.current"], s["allocation.all.current"], shared["opened"], shared["leases"]
    return now if f is handles else (*now, shared["unopened"])


def at_rest(f):
    """Returns the counters once ended leases have been reported."""
    gc.collect()
    end = time.monotonic() + SOON
    while True:
        shared = ub.share.stats()
        if shared["opened"] == shared["leases"] == 0 or time.monotonic() > end:
            return taken(f)
        time.sleep(0.001)


def settled(f, before):
    end = time.monotonic() + SOON
    while taken(f) != before:
        gc.collect()
        if time.monotonic() > end:
            return f"it took {before}, and has {taken(f)} now"
        time.sleep(0.001)
    return None


class Python:
    """Allocations by Python's allocator."""

    def __init__(self):
        import _testcapi

        self.api = _testcapi

    def positions(self, f):
        """Counts the allocations: the first position from which on the scenario succeeds although all
        allocations fail. (If no memory is left, a handle is not revoked either, and expires by itself.)"""
        n = 1
        while True:
            self.api.set_nomemory(n, 0)
            try:
                f()
                done = True
            except MemoryError:
                done = False
            finally:
                self.api.remove_mem_hooks()
            if done:
                return n
            n += max(n // 8, 1)

    def arm(self, n):
        self.api.set_nomemory(abs(n), n + 1 if n > 0 else 0)

    def disarm(self):
        self.api.remove_mem_hooks()


class C:
    """malloc, calloc, realloc and aligned_alloc of the C parts."""

    def __init__(self):
        self.lib = ctypes.CDLL(None)
        self.lib.usmb_scarce_count.restype = ctypes.c_long

    def positions(self, f):
        self.lib.usmb_scarce_arm(ctypes.c_long(0))
        f()
        return self.lib.usmb_scarce_count()

    def arm(self, n):
        self.lib.usmb_scarce_arm(ctypes.c_long(n))

    def disarm(self):
        self.lib.usmb_scarce_arm(ctypes.c_long(0))


def sweep(f, way, step):
    for _ in range(3):
        f()  # creates the objects that are created only once
    gc.collect()
    raised, failures = 0, []
    last = way.positions(f)
    before = at_rest(f)
    tried = [*range(1, last + 1, step)]
    if isinstance(way, Python) and f.__name__.endswith("_place"):
        tried += [-n for n in tried]  # all allocations from the n-th on fail
    for n in tried:
        what = None
        way.arm(n)
        try:
            try:
                f()
            finally:
                way.disarm()
        except MemoryError:
            raised += 1
        except SystemError as e:
            # Python's MemoryError, if it cannot allocate the exception that it is raising.
            if not str(e).startswith("error return without exception set"):
                what = f"SystemError: {e}"
        except BaseException as e:
            what = f"{type(e).__name__}: {e}"
        what = what or settled(f, before)
        if what is None:
            try:
                f()
            except BaseException as e:
                what = f"and then {type(e).__name__}: {e}"
        if what:
            failures.append([n, what])
    return dict(name=f.__name__, tried=len(tried), raised=raised, failures=failures)


MOST = 3  # interrupts at once: the second and third hit the handling of the first
left = 0


def interrupt(*unused):
    global left
    if left > 0:
        left -= 1
        raise KeyboardInterrupt


def tried(f, at_once, depth):
    """Runs a scenario and returns its result. Each level of depth handles one interrupt."""
    global left
    try:
        if depth > 0:
            return tried(f, at_once, depth - 1)
        left = at_once
        f()
        left = 0
        return "done"
    except KeyboardInterrupt:
        return "hit"
    except BaseException as e:
        return f"{type(e).__name__}: {e}"


def storm(f, way, most):
    global left
    for _ in range(3):
        f()
    before = at_rest(f)
    counts = {"done": 0, "hit": 0}
    at_once = 1 if f is withdrawn else MOST  # a second interrupt can prevent the revoking of handles
    failures = []
    while counts["hit"] < most and counts["done"] < 100 * most and not failures:
        what = tried(f, at_once, MOST + 1)
        left = 0
        if what in counts:
            counts[what] += 1
        else:
            failures.append(what)
    gc.collect()
    stays = settled(f, before)
    if stays:
        failures.append(stays)
    f()
    return dict(name=f.__name__, tried=counts["done"], raised=counts["hit"], failures=failures)


def main():
    check, way = sweep, {"python": Python, "c": C, "interrupts": type(None)}[sys.argv[1]]()
    if way is None:
        check = storm
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    for f in SCENARIOS:
        if len(sys.argv) > 3 and f.__name__ not in sys.argv[3:]:
            continue
        print("begin", f.__name__, file=sys.stderr, flush=True)
        print(json.dumps(check(f, way, int(sys.argv[2]))), flush=True)
    signal.setitimer(signal.ITIMER_REAL, 0)  # Python removes the signal handler at its end


if __name__ == "__main__":
    main()
