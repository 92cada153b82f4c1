"""Release of owners: immediately if the consumer's deleter runs with the GIL held."""

import ctypes as ct
import sys
import threading
import weakref

import pytest

import capi
import usmbridge as ub
from conftest import in_threads, run


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


def deleter_of(np, x):
    """Returns a versioned tensor on x whose deleter is called by address, and that address."""
    capsule = ub.from_dlpack(x).__dlpack__(max_version=(1, 3))
    managed = ct.addressof(capi.tensor(capsule))
    capi.py.PyCapsule_SetName(capsule, USED)
    return managed


@pytest.mark.parametrize("way", ["with the GIL", "without it", "on another thread"])
def test_deleters_by_address(np, way):
    """ctypes keeps the GIL for functions of PyDLL and releases it for those of CDLL, also on a thread whose Python thread state
    is not the current one."""
    kind = ct.PYFUNCTYPE if way == "with the GIL" else ct.CFUNCTYPE
    for _ in range(20):
        x, gone = watched(np)
        managed = deleter_of(np, x)
        del x
        assert gone() is not None
        delete = kind(None, ct.c_void_p)(ct.cast(managed, ct.POINTER(ct.c_void_p))[2])  # the third word of a versioned tensor
        if way == "on another thread":
            in_threads(lambda: delete(managed))
        else:
            delete(managed)
        if way != "with the GIL":
            ub.stats()  # the next entry with the GIL
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

    in_threads(*[work] * 8)
    ub.stats()
    assert len(refs) == 2400 and not any(r() for r in refs)


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
