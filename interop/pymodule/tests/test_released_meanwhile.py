"""release() during an operation, by code that the operation runs and by other threads. The operation continues on
the memory that it began with, and releases it at its end."""

import ctypes
import operator
import pickle
import sys
import threading

import pytest

import usmbridge as ub
from conftest import live, peer, places
from test_release_and_gc import becomes, count


class Releasing:
    """Releases arrays when one of its attributes is read. It also works as 1, as an element type and as a device."""

    def __init__(self, *arrays, text="int32"):
        self.arrays, self.text = arrays, text

    def __index__(self):
        for a in self.arrays:
            a.release()
        return 1

    def __float__(self):
        return float(self.__index__())

    def __bool__(self):
        return bool(self.__index__())

    @property
    def name(self):
        self.__index__()
        return self.text


OPERATIONS = {
    "getitem": (lambda a, r: a[0, r].tolist(), 2.0),
    "getitem, slices": (lambda a, r: a[1:, r:].tolist(), [[5.0, 6.0]]),
    "item": (lambda a, r: a.item(1, r), 5.0),
    "view": (lambda a, r: a.view(r).shape, (2, 3)),
    "astype": (lambda a, r: a.astype(r).tolist(), [[1, 2, 3], [4, 5, 6]]),
    "astype, copy": (lambda a, r: a.astype("float64", copy=r).tolist(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    "reshape": (lambda a, r: a.reshape(3, r, 2).tolist(), [[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]),
    "transpose": (lambda a, r: a.transpose(r, 0).tolist(), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]),
    "__dlpack__": (lambda a, r: ub.from_dlpack(a.__dlpack__(max_version=(1, 3), copy=r)).tolist(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
    "__reduce_ex__": (lambda a, r: a.__reduce_ex__(r)[1][2], (2, 3)),
    "zeros_like": (lambda a, r: ub.zeros_like(a, dtype=r).tolist(), [[0] * 3] * 2),
    "full_like": (lambda a, r: ub.full_like(a, r, dtype="float64").tolist(), [[1.0] * 3] * 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_continue(name):
    do, want = OPERATIONS[name]
    for place in places(["device", "shared"]):
        a = ub.asarray([[1, 2, 3], [4, 5, 6]], dtype="float32", **place)
        held = count()
        assert do(a, Releasing(a)) == want
        with pytest.raises(ValueError, match="released"):
            a.shape
        assert becomes(held - 1)


def test_assignments_continue():
    for place in places(["device", "shared"]):
        for write in (lambda a, r: operator.setitem(a, (r, 0), 7), lambda a, r: operator.setitem(a, (1, 0), r), lambda a, r: a.fill(r), lambda a, r: operator.setitem(a, ..., [r, 2, 3])):
            a = ub.zeros((2, 3), **place)
            v, held = a[:], count()
            write(a, Releasing(a))
            assert v.tolist()[1][0] in (7.0, 1.0)
            with pytest.raises(ValueError, match="released"):
                a[0] = 1
            assert count() == held
            del v
            assert becomes(held - 1)


def test_parts_of_a_sequence_are_kept_while_it_is_read():
    for place in places(["device", "shared"]):
        a, b = ub.asarray(5.0, dtype="float32", **place), ub.zeros(3, **place)
        v = b[:]
        held = count()
        assert ub.asarray([a, Releasing(a), 2.0]).tolist() == [5.0, 1.0, 2.0]
        assert becomes(held - 1)
        a = ub.asarray(6.0, dtype="float32", **place)
        b[...] = [a, Releasing(a, b), 2.0]
        assert v.tolist() == [6.0, 1.0, 2.0]
        with pytest.raises(ValueError, match="released"):
            b.shape


def other_thread(step):
    """Runs step repeatedly beside the caller's block."""

    class Beside:
        def __enter__(self):
            self.stop, self.interval = threading.Event(), sys.getswitchinterval()
            sys.setswitchinterval(1e-6)
            self.thread = threading.Thread(target=self.run)
            self.thread.start()

        def run(self):
            while not self.stop.is_set():
                step()

        def __exit__(self, *error):
            self.stop.set()
            self.thread.join()
            sys.setswitchinterval(self.interval)

    return Beside()


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
        with other_thread(step):
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
