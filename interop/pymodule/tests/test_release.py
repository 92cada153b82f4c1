"""Release of owners: immediately if the consumer's deleter runs with the GIL held."""

import ctypes as ct
import sys
import threading
import weakref

import pytest

import capi
import usmbridge as ub
from conftest import live, run


USED = b"used_dltensor_versioned"  # lives as long as the capsules with that name


def watched(np, n=4):
    x = np.arange(float(n)).view(type("Watched", (np.ndarray,), {}))
    return x, weakref.ref(x)


def test_del_releases_the_source_at_once(np):
    for consume in (np.from_dlpack, memoryview, np.asarray, lambda a: a.__dlpack__(), lambda a: a.__dlpack__(max_version=(1, 3))):
        for take in (ub.from_dlpack, ub.asarray):
            for _ in range(50):
                x, gone = watched(np)
                y = consume(take(x))
                before = sys.getrefcount(x)
                del y
                assert sys.getrefcount(x) < before
                del x
                assert gone() is None


def test_reference_counts_of_numpys_tests(np):
    x = np.arange(5)
    before = sys.getrefcount(x)
    y = np.from_dlpack(ub.from_dlpack(x))
    assert sys.getrefcount(x) > before
    del y
    assert sys.getrefcount(x) == before
    capsule = ub.from_dlpack(x).__dlpack__()
    del capsule
    assert sys.getrefcount(x) == before


def test_pyarrow_counts(np, pyarrow):
    before = pyarrow.total_allocated_bytes()
    a = pyarrow.array(range(1000), type=pyarrow.int64())
    assert pyarrow.total_allocated_bytes() > before
    y = np.from_dlpack(ub.from_dlpack(a))
    del a
    assert pyarrow.total_allocated_bytes() > before
    del y
    assert pyarrow.total_allocated_bytes() == before


def test_stats_are_exact(np):
    def counts():
        s = ub.stats()
        return s["live_buffers.all.current"], s["allocated_bytes.all.current"], s["allocation.all.current"]

    live()
    base = counts()
    for _ in range(200):
        a = ub.empty(1000, device="host")
        y = np.from_dlpack(a)
        b = ub.from_dlpack(y)
        z = np.from_dlpack(b)
        assert counts()[0] > base[0]
        del a, y, b, z
        assert counts() == base


def test_a_chain_of_owners(np):
    """Each link owns the one before through a capsule: all are released at once, without recursion."""
    x, gone = watched(np)
    link = x
    del x
    for _ in range(3000):
        link = np.from_dlpack(ub.from_dlpack(link))
    assert gone() is not None
    del link
    assert gone() is None


def test_an_exception_passes(np):
    """A deleter that runs while an exception is set neither sees nor loses it."""
    seen = []

    class Noisy(np.ndarray):
        def __del__(self):
            seen.append(sys.exc_info()[0])
            raise KeyError("ignored")

    def fail():
        y = np.from_dlpack(ub.from_dlpack(np.arange(3.0).view(Noisy)))
        raise LookupError(y.shape)

    hook, sys.unraisablehook = sys.unraisablehook, lambda *_: None
    try:
        with pytest.raises(LookupError, match="3"):
            fail()
    finally:
        sys.unraisablehook = hook
    assert len(seen) == 1


def deleter_of(np, x):
    """Returns a versioned tensor on x whose deleter is called by address, and that address."""
    capsule = ub.from_dlpack(x).__dlpack__(max_version=(1, 3))
    managed = ct.addressof(capi.tensor(capsule))
    capi.py.PyCapsule_SetName(capsule, USED)
    return managed


def test_with_and_without_the_gil(np):
    """ctypes releases the GIL for functions of CDLL and keeps it for those of PyDLL."""
    for kind, prompt in ((ct.PYFUNCTYPE, True), (ct.CFUNCTYPE, False)):
        for _ in range(20):
            x, gone = watched(np)
            managed = deleter_of(np, x)
            del x
            assert gone() is not None
            # deleter: third word of a versioned tensor.
            deleter = ct.cast(managed, ct.POINTER(ct.c_void_p))[2]
            kind(None, ct.c_void_p)(deleter)(managed)
            if not prompt:
                ub.stats()  # the next entry with the GIL
            assert gone() is None


def test_from_a_foreign_thread(np):
    """Called without the GIL on a thread whose Python thread state is not the current one."""
    for _ in range(20):
        x, gone = watched(np)
        managed = deleter_of(np, x)
        del x
        deleter = ct.cast(managed, ct.POINTER(ct.c_void_p))[2]
        t = threading.Thread(target=ct.CFUNCTYPE(None, ct.c_void_p)(deleter), args=(managed,))
        t.start()
        t.join()
        ub.stats()
        assert gone() is None


def test_threads(np):
    """Many threads import and release at once; nothing is lost or released twice."""
    refs, lock = [], threading.Lock()

    def work():
        mine = []
        for _ in range(300):
            x, gone = watched(np)
            y = np.from_dlpack(ub.from_dlpack(x))
            mine.append(gone)
            del x, y
        with lock:
            refs.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ub.stats()
    assert len(refs) == 2400 and not any(r() for r in refs)


def test_in_a_child_and_at_the_end(np):
    run(
        """
import numpy as np, weakref
x = np.arange(4.).view(type("W", (np.ndarray,), {}))
gone = weakref.ref(x)
y = np.from_dlpack(ub.from_dlpack(x)); del x
pid = os.fork()
if pid == 0:
    del y
    os._exit(0 if gone() is None else 3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert gone() is not None
sys.late = y
"""
    )


def test_after_a_subinterpreter(np):
    """A subinterpreter makes CPython's PyGILState_Check return true on every thread."""
    run(
        """
import numpy as np, weakref, ctypes as ct, threading
try:
    import _xxsubinterpreters as si
except ImportError:
    try: import _interpreters as si
    except ImportError: sys.exit(0)
i = si.create(); si.run_string(i, "x = 1"); si.destroy(i)
api = ct.pythonapi
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ct.c_void_p, [ct.py_object, ct.c_char_p]
api.PyCapsule_SetName.argtypes = [ct.py_object, ct.c_char_p]
name = b"used_dltensor_versioned"
for _ in range(50):
    x = np.arange(4.).view(type("W", (np.ndarray,), {}))
    gone = weakref.ref(x)
    c = ub.from_dlpack(x).__dlpack__(max_version=(1, 3)); del x
    p = api.PyCapsule_GetPointer(c, b"dltensor_versioned"); api.PyCapsule_SetName(c, name)
    f = ct.CFUNCTYPE(None, ct.c_void_p)(ct.cast(p, ct.POINTER(ct.c_void_p))[2])
    t = threading.Thread(target=f, args=(p,)); t.start(); t.join()
    ub.stats()
    assert gone() is None
"""
    )
