"""release() during an operation, by other threads. The operation continues on the memory that it began with, and releases it
at its end. robust/test_changes.py has releases by code that the operation runs."""

import ctypes
import pickle
import threading

import pytest

import usmbridge as ub
from conftest import live, peer, places
from robust.changing import another_thread
from test_release import becomes, count


N = 1 << 14
READS = {
    "assign": lambda a, to: to.__setitem__(..., a), "like": lambda a, to: ub.full_like(a, 3.0), "list": lambda a, to: ub.asarray([a, a]), "copy": lambda a, to: a.copy(),
    "tolist": lambda a, to: a[:2000].tolist(), "pickle": lambda a, to: pickle.loads(pickle.dumps(a)), "asnumpy": lambda a, to: a.asnumpy(),
}


@pytest.mark.parametrize("name", READS)
def test_another_thread_releases(name):
    """Released memory is overwritten immediately: no reader sees that."""
    box = []

    def step():
        while box:
            box.pop().release()
        for place in ({"device": "host"}, {}):
            x = ub.empty(N, "float64", **place)
            x.fill(-1.0)

    step()
    for place in places(["device", "shared"]):
        to = ub.zeros(N, "float64", device="host")
        with another_thread(step, ()):
            for _ in range(5):
                a = ub.full(N, 3.0, **place)
                to.fill(3.0)
                box.append(a)
                try:
                    r = READS[name](a, to)
                except ValueError as e:
                    assert "released" in str(e)
                    continue
                if isinstance(r, ub.Array) and str(r.dtype) == "float64":
                    assert r.shape[-1] == N and r.asnumpy().min() == 3.0
                assert to.asnumpy().min() == 3.0
        box.clear()
        del a
    live()


def test_results_of_compiled_functions_keep_the_memory(numba):
    tail = numba.njit(lambda a: a[1:])
    for place in ({"device": "host"}, {"usm_type": "shared"}):
        a = ub.full(1 << 12, 3.0, **place)
        held = count()
        v = tail(a)
        a.release()
        assert count() == held
        others = [ub.full(1 << 12, -1.0, **place) for _ in range(8)]
        assert v.min() == 3.0
        del others, v
        assert becomes(held - 1)
        with pytest.raises(numba.TypingError, match="released"):
            tail(a)


def test_a_compiled_function_holds_its_arguments(numba):
    """A compiled function releases the GIL: another thread releases the array that it works on."""

    pause = ctypes.CDLL(None).sched_yield  # unknown to the compiler, so that flags are read each time
    pause.argtypes = []

    @numba.njit(nogil=True)
    def wait(a, flags):
        flags[0] = 1
        pause()
        while flags[1] == 0:
            pause()
        return a.min()

    np = peer("numpy")
    wait(ub.full(4, 3.0, device="host"), np.ones(2, "int64"))  # compiles it
    a, flags = ub.full(1 << 12, 3.0, device="host"), np.zeros(2, "int64")
    got = []
    t = threading.Thread(target=lambda: got.append(wait(a, flags)))
    t.start()
    while flags[0] == 0:
        pass
    a.release()
    others = [ub.full(1 << 12, -1.0, device="host") for _ in range(8)]
    flags[1] = 1
    t.join()
    assert got == [3.0] and len(others) == 8
