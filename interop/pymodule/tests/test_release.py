"""Release of owners: immediately if the consumer's deleter runs with the GIL held. release(), with, weak references, and the
cycle collector."""

import copy
import ctypes as ct
import gc
import importlib
import operator
import pickle
import struct
import sys
import threading
import types
import weakref

import pytest

import capi
import usmbridge as ub
from conftest import in_threads, peer, run, soon, sycl_device
from usmbridge import cute


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


# ---- release() and the collector ------------------------------------------------------------------------


def count():
    return ub.stats()["live_buffers.all.current"]


def becomes(n):
    """Waits for a count: memory that is released by Go's background list is counted later."""
    soon(lambda: count() == n, lambda: f"{count()} owners are alive, want {n}")
    return True


def kinds(np):
    yield lambda: ub.zeros((2, 3), device="host")
    yield lambda: ub.asarray(np.zeros((2, 3)))
    yield lambda: ub.asarray(memoryview(np.zeros((2, 3))))
    for kind in ("device", "shared"):
        yield lambda: ub.zeros((2, 3), device=sycl_device(), usm_type=kind)


def test_memory_goes_at_release(np):
    for make in kinds(np):
        a = make()
        held = count()
        assert a.release() is None and becomes(held - 1)
        a.release()
        assert count() == held - 1
        del a
        with make() as b:
            assert b.shape == (2, 3)
        with pytest.raises(ValueError, match="released"):
            b.shape
        with pytest.raises(LookupError):
            with make() as b:
                raise LookupError
        with pytest.raises(ValueError, match="released"):
            with b:
                pass


def show(a):
    """Reads the dictionaries of a. Their consumers keep the Array alive, and no other reference of its memory."""
    for name in ("__sycl_usm_array_interface__", "__array_interface__"):
        getattr(a, name, None)


@pytest.mark.parametrize("before", [lambda a: None, show], ids=["plain", "dictionary was read"])
def test_every_use_after_release_is_refused(np, dpctl, before, tmp_path):
    for make in kinds(np):
        a = make()
        before(a)
        public = [n for n in dir(a) if n not in dir(object) and n not in ("release", "_end_use", "__exit__", "__dlpack_c_exchange_api__", "__array_namespace__", "__module__")]
        a.release()
        assert repr(a) == "<Array, released>" and a != None and isinstance(a, ub.Array)  # noqa: E711
        operators = {"__contains__", "__neg__", "__pos__", "__abs__", "__invert__"}
        refused = 0
        for name in public:
            if name in operators or name.strip("_").lstrip("ri") in "add sub mul truediv floordiv mod divmod matmul lshift rshift shift and or xor pow lt le gt ge eq ne".split():
                continue
            calls = {
                "reshape": (6,), "to_device": ("host",), "astype": ("int8",), "view": ("int8",), "fill": (0,), "__getitem__": (0,), "__setitem__": (0, 1), "__delitem__": (0,),
                "__array_function__": (np.sum, (), (), {}), "__array_ufunc__": (np.sin, "__call__", a), "__format__": ("",), "__buffer__": (0,), "__deepcopy__": ({},), "__reduce_ex__": (5,),
                "dot": (1,), "repeat": (1,), "searchsorted": (1,), "swapaxes": (0, 0), "take": (0,),
                "argpartition": (0,), "partition": (0,), "dump": (tmp_path / "dump",), "tofile": (tmp_path / "bytes",),
            }
            if name in ("__release_buffer__", "__rmod__", "__ror__"):
                continue
            with pytest.raises(ValueError, match="released"):
                f = getattr(a, name)
                f(*calls.get(name, ()))
            refused += 1
        assert refused > 40
        takers = [
            lambda: ub.asarray(a), lambda: ub.from_dlpack(a), lambda: ub.from_usm_array_interface(a), lambda: memoryview(a), lambda: np.from_dlpack(a), lambda: np.asarray(a),
            lambda: ub.asarray([a]), lambda: cute.from_dlpack(a), lambda: len(a), lambda: list(a), lambda: operator.index(a), lambda: bool(a), lambda: np.sum(a), lambda: ub.zeros(2).__setitem__(0, a),
            lambda: ub.zeros_like(a), lambda: copy.copy(a), lambda: copy.deepcopy(a), lambda: ub.asarray(a, device="host"), lambda: ub.full(2, a),
            lambda: peer("tvm_ffi").from_dlpack(a), lambda: dpctl.memory.as_usm_memory(a), lambda: a.__enter__(), lambda: ub.share.serve(str(tmp_path / "s"), {"a": a}), lambda: pickle.dumps(a),
            lambda: ub._native._share_export(a, None), lambda: ub.full_like(a, 1), lambda: ub.zeros(2).fill(a),
        ]
        for f in takers:
            with pytest.raises((ValueError, BufferError), match="released" if before is show else None):
                f()


def doubles(value, n):
    return struct.pack("=d", value) * n


CONSUMERS = {
    "dpnp": lambda a: importlib.import_module("dpnp.tensor").asarray(a),
    "dpctl": lambda a: importlib.import_module("dpctl.memory").as_usm_memory(a),
    "usmbridge": lambda a: ub.asarray(types.SimpleNamespace(keep=a, __sycl_usm_array_interface__=a.__sycl_usm_array_interface__)),
}


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize("name", CONSUMERS)
def test_a_dictionary_keeps_the_memory(dpctl, dpnp, name, kind):
    """A consumer of the dictionary keeps the Array alive: the memory is freed with the object, not by release(). An Array
    of the same memory has a reference of its own."""
    before = count()
    with ub.full(1000, 7.0, usm_type=kind) as a:
        consumer = CONSUMERS[name](a)
    with pytest.raises(ValueError, match="released"):
        a.shape
    others = [ub.zeros(1000, "float64", usm_type=kind) for _ in range(4)]
    memory = dpctl.memory.as_usm_memory(consumer)
    memory.copy_from_host(doubles(99.0, 1000))
    assert [b.tolist() for b in others] == [[0.0] * 1000] * 4
    assert bytes(memory.copy_to_host()) == doubles(99.0, 1000)
    others.clear()
    a = weakref.ref(a)
    assert (a() is None) == (name == "usmbridge")
    del consumer, memory
    assert a() is None and becomes(before)


def test_an_array_interface_keeps_the_memory(np):
    for place in ({"device": "host"}, {"usm_type": "shared"}, {"usm_type": "host"}):
        before = count()
        with ub.full(1000, 7.0, **place) as a:
            x = np.asarray(types.SimpleNamespace(keep=a, __array_interface__=a.__array_interface__))
        b = ub.zeros(1000, "float64", **place)
        x[...] = 99
        assert b.tolist() == [0.0] * 1000 and x.tolist() == [99.0] * 1000
        with pytest.raises(ValueError, match="released"):
            a.tolist()
        a.release()
        assert count() == before + 2
        del x, a, b
        assert becomes(before)


def test_memory_is_back_when_the_object_of_a_dictionary_has_gone(device):
    def allocated():
        return ub.stats()["allocated_bytes.all.current"]

    for kind in ("device", "shared", "host"):
        ub.trim()
        before, n = allocated(), 1 << 20
        a = ub.empty(n, "uint8", usm_type=kind)
        a.__sycl_usm_array_interface__
        a.release()
        assert allocated() == before + n
        del a
        assert allocated() == before
        trimmed = [0]  # the memory is reusable after a barrier on the queue that the dictionary showed
        soon(lambda: trimmed.append(trimmed[-1] + ub.trim()) or trimmed[-1] >= n)


def test_views_and_tensors_do_not_delay_release(np, tvm_ffi):
    """Consumers with a reference of their own do not delay release()."""
    for make in kinds(np):
        a = make()
        made = [a[1:], ub.from_dlpack(a), ub.asarray(a)[0], a.__dlpack__(max_version=(1, 0))]
        if a.usm_type:
            made.append(ub.from_usm_array_interface(a))
        held = count()
        made.clear()
        a.release()
        assert becomes(held - 1)


def test_the_collector_frees_a_cycle_of_a_dictionary():
    class Owner(bytearray):
        pass

    for released in (False, True):
        x = Owner(8)
        gone = weakref.ref(x)
        x.array = ub.asarray(x)
        show(x.array)
        if released:
            x.array.release()
        del x
        gc.collect()
        assert gone() is None


def test_buffers_keep_the_memory(np):
    for make in (lambda: ub.zeros((2, 3), device="host"), lambda: ub.zeros((2, 3), usm_type="shared"), lambda: ub.asarray(np.zeros((2, 3), "float32"))):
        a = make()
        m, x = memoryview(a), np.asarray(a)
        held = count()
        a.release()
        with pytest.raises(ValueError, match="released"):
            a.shape
        with pytest.raises(ValueError, match="released"):
            memoryview(a)
        assert count() == held and m.shape == (2, 3) and m.tolist() == [[0.0] * 3] * 2
        x[0] = 5
        assert m[0, 0] == 5
        m.release()
        assert count() == held and x.tolist()[0] == [5] * 3
        del x
        assert becomes(held - 1)


def test_weak_references():
    a = ub.zeros(3, device="host")
    gone = []
    r = weakref.ref(a, lambda _: gone.append(1))
    assert r() is a and weakref.getweakrefcount(a) == 1
    cache = weakref.WeakValueDictionary(x=a)
    assert cache["x"] is a
    for _ in range(200):  # arrays are reused
        weakref.ref(ub.zeros(3, device="host"))
    del a
    assert r() is None and gone == [1] and not cache
    b = ub.zeros(3, device="host")
    s = weakref.ref(b)
    b.release()
    assert s() is b


class Owner:
    """Memory by the dictionary, of an object that can hold arrays made of itself."""

    alive = 0

    def __init__(self, memory):
        Owner.alive += 1
        self.__sycl_usm_array_interface__ = {"data": (memory._pointer, False), "shape": (4,), "strides": None, "typestr": "<f4", "version": 1, "syclobj": memory.sycl_queue}
        self.memory = memory

    def __del__(self):
        Owner.alive -= 1


def collected():
    gc.collect()
    return Owner.alive


def test_cycles_through_the_owner(dpctl):
    memory = dpctl.memory.MemoryUSMShared(1024)
    shapes = [
        lambda o: [ub.asarray(o)], lambda o: [ub.asarray(o)[1:]], lambda o: [ub.asarray(o)] * 2, lambda o: (lambda a: [a, a[1:], a[::-1]])(ub.asarray(o)),
        lambda o: [ub.asarray(o), ub.asarray(o)], lambda o: (lambda a: [a[1:], a[:2][1:]])(ub.asarray(o)), lambda o: [ub.asarray(o, device="host")],
        lambda o: [ub.asarray(o, device="host")[1:].view("int32")],
    ]
    for make in shapes:
        gc.collect()
        o = Owner(memory)
        o.arrays = make(o)
        assert Owner.alive == 1
        del o
        assert collected() == 0, make


def test_a_cycle_with_an_outside_reference_stays(dpctl):
    memory = dpctl.memory.MemoryUSMShared(1024)
    for keep in (lambda a: a, lambda a: a[1:], lambda a: a.__dlpack__(max_version=(1, 0)), lambda a: memoryview(a), lambda a: a[1:][1:].view("int32")):
        o = Owner(memory)
        a = ub.asarray(o)
        o.arrays = [a, a[1:], a[:2]]
        kept = keep(a)
        del o, a
        assert collected() == 1, keep
        if isinstance(kept, ub.Array):
            assert kept.tolist() is not None
        del kept
        assert collected() == 0, keep


def test_collected_arrays_are_released(dpctl):
    memory = dpctl.memory.MemoryUSMShared(1024)
    seen = []

    class Late:
        """Its finalizer runs while the cycle is cleared."""

        def __del__(self):
            try:
                seen.append(self.array.tolist())
            except ValueError as e:
                seen.append(str(e))

    o = Owner(memory)
    o.late = Late()
    o.late.array = o.array = ub.asarray(o)
    del o
    assert collected() == 0 and len(seen) == 1


def test_arrays_without_python_owners_are_not_tracked(np):
    assert not gc.is_tracked(ub.zeros(3, device="host")) and not gc.is_tracked(ub.asarray(np.zeros(3))) and not gc.is_tracked(ub.zeros(3))
    # The collector must not clear a memoryview while its buffer is in use (test_cycles.py).
    assert not gc.is_tracked(ub.asarray(memoryview(b"abc")))
    a = ub.asarray(bytearray(b"abc"))
    assert gc.is_tracked(a) and gc.is_tracked(a[1:])
    a.release()
    assert not gc.is_tracked(a)
    for _ in range(300):
        ub.asarray(memoryview(b"abc"))[1:]
        gc.collect(0)


class Foreign:
    """An object with memory in USM, as foreign libraries have it."""

    def __init__(self, memory, queue):
        self.memory = memory
        self.__sycl_usm_array_interface__ = dict(data=(memory._pointer, False), shape=(memory.nbytes // 8,), typestr="<i8", version=1, syclobj=queue)


def owned(queue, nbytes=64):
    """Returns an Array on the memory of an object, and a weak reference to that object."""
    memory = importlib.import_module("dpctl.memory").MemoryUSMShared(nbytes, queue=queue)
    owner = Foreign(memory, queue)
    return ub.asarray(owner), weakref.ref(owner)


SEEN = {
    "nobody": lambda a, q: None,
    "a view of NumPy": lambda a, q: importlib.import_module("numpy").asarray(a),
    "an address": lambda a, q: a._pointer,
    "a queue": lambda a, q: a.sycl_queue,
    "a dictionary": lambda a, q: a.__sycl_usm_array_interface__,
    "a capsule": lambda a, q: a.__dlpack__(),
    "a stream": lambda a, q: a.__dlpack__(stream=q),
}


@pytest.mark.parametrize("named", ["default", "given"])
@pytest.mark.parametrize("way", SEEN)
def test_owners_of_shown_memory_wait(spin, way, named):
    """The object is dropped when the work of the queues that users saw has ended, and at once if nobody saw the memory. Each
    of several operations drops it."""
    kept = ub.ones(1).sycl_queue
    other = type(kept)(kept.sycl_context, kept.sycl_device, property="in_order")
    queue = other if named == "given" else kept
    x = ub.ones(3)
    x + x  # imports dpnp
    # Older releases of SYCL do not say whether a queue is empty: only waits find out.
    asks = peer("dpctl").__version__.split(".")[:2] >= ["0", "22"]
    for drain in (lambda: x + x, lambda: ub.zeros(3, device="host"), ub.stats, ub.trim) if asks else (ub.trim,):
        a, gone = owned(queue)
        kept.wait(), other.wait()
        SEEN[way](a, other)
        shown = way not in ("nobody", "a view of NumPy")
        event = spin(other if way == "a stream" else queue, 0.1)
        del a
        assert (gone() is None) != shown
        event.wait()
        soon(lambda: (drain(), gone() is None)[1])


def test_kept_owners_are_bounded(spin):
    """An operation waits if there are too many of them, or too many bytes."""
    kept = ub.ones(1).sycl_queue
    x = ub.ones(3)
    for n, nbytes in ((100, 64), (3, 40 << 20)):
        event, owners = spin(kept, 0.3), []
        for _ in range(n):
            a, gone = owned(kept, nbytes)
            a._pointer
            owners.append(gone)
            del a
            assert all(o() is not None for o in owners), "no release waits"
        x + x
        event.wait()
        assert sum(o() is not None for o in owners) == 0
