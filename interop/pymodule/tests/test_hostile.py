"""Peers that misbehave: foreign code that runs during a call, and the state it leaves."""

import ctypes as ct
import gc
import importlib
import pickle
import sys
import threading

import pytest
from conftest import program, run

import capi
import usmbridge as ub
from test_suai_in import Holder, memory  # noqa: F401 (a fixture)


def holder(memory, **keys):
    return Holder(memory, data=(memory._pointer, False), **dict({"shape": (2, 3), "typestr": "<f4"}, **keys))


def test_an_owner_whose_finalizer_releases_many():
    """The list of kept cells is counted after the owner's end, which may fill it."""
    run("""
class Owner(bytearray):
    def __init__(self, inner):
        super().__init__(8)
        self.inner = inner
    def __del__(self):
        self.inner.clear()
for _ in range(5):
    a = ub.asarray(Owner([ub.asarray(bytearray(8)) for _ in range(40)]))
    assert a.shape == (8,)
    del a
    keep = [ub.asarray(bytearray([i])) for i in range(200)]
    assert [memoryview(a)[0] for a in keep] == list(range(200))
    assert len({a._pointer for a in keep}) == 200
    del keep
for dtype in ("int8", "float32", "uint16"):  # the memory behind the allocation
    if len(ub.devices()) > 1:
        d = ub.zeros(3, dtype, usm_type="shared").__sycl_usm_array_interface__
        assert d["version"] == 1 and d["offset"] == 0 and type(d["version"]) is int
""")


def test_an_exception_on_its_way_survives_the_deleter(memory, floats):
    p = capi.Producer(floats, (4,))

    def delete(_):
        p.deleted += 1
        hasattr(p, "missing")
        try:
            {}["inner"]
        except KeyError:
            pass

    p.callback = capi.DELETER(delete)
    p.m.deleter = ct.cast(p.callback, ct.c_void_p)
    with pytest.raises(KeyError, match="outer"):
        [ub.from_dlpack(p), {}["outer"]]
    assert p.deleted == 1


def test_chains_of_owners_need_no_stack(np):
    """Each array owns a view of the one before: their finalizers must not nest as deep."""
    run("""
a = ub.asarray(bytearray(16))
for _ in range(100000):
    a = ub.asarray(memoryview(a))
del a
for _ in range(100): ub.asarray(bytearray(1))
import numpy as np, weakref
x = np.arange(4.).view(type("Watched", (np.ndarray,), {}))
gone = weakref.ref(x)
for _ in range(100000):
    x = np.from_dlpack(ub.from_dlpack(x))
assert x.tolist() == [0, 1, 2, 3] and gone() is not None
del x
assert gone() is None
""")


def test_a_capsule_is_renamed_before_it_is_taken(device):
    """An import that releases the GIL must not let another one take the same capsule; a failed one restores the name."""
    seen = []
    p = capi.Producer(0, (0,), device=device.dlpack_device)  # memory is allocated for it meanwhile
    c = p.capsule()
    stop = threading.Event()

    def look():
        while not stop.is_set():
            seen.append(capi.name(c))

    t = threading.Thread(target=look)
    t.start()
    a = ub.from_dlpack(c)
    stop.set()
    t.join()
    assert a.size == 0 and p.deleted == 1 and capi.name(c) == b"used_dltensor_versioned"
    bad = capi.Producer(0, (3,), device=device.dlpack_device).capsule()
    with pytest.raises(BufferError):
        ub.from_dlpack(bad)
    assert capi.name(bad) == b"dltensor_versioned"


def test_a_changed_typedescr_is_not_reused(device):
    a = ub.zeros(3, "float32", usm_type="shared")
    keys = set(a.__sycl_usm_array_interface__)
    for change in (list.clear, lambda d: d.append(5), lambda d: d.insert(0, ("x", "<f8")), lambda d: d.__setitem__(0, 5)):
        change(a.__sycl_usm_array_interface__["typedescr"])
        assert a.__sycl_usm_array_interface__["typedescr"] == [("", "<f4")]
        a.__sycl_usm_array_interface__.clear()
        assert set(a.__sycl_usm_array_interface__) == keys


def test_empty_arrays_with_wild_strides(floats, memory):
    a = ub.from_dlpack(capi.Producer(floats, (0, 5), strides=(1, 1 << 62)))
    for view in (a[:, 4], a[:, 2:4], a[:, ::-1], a.T[3]):
        assert view._pointer == a._pointer and view.size == 0
    with pytest.raises(ValueError, match="strides"):
        ub.zeros(0, device="host").reshape((0, 1 << 62, 4))
    with pytest.raises(ValueError, match="counted"):
        ub.from_usm_array_interface(holder(memory, shape=(0, 1 << 62), typestr="<f4"))


def test_misaligned_interface(np, dpt, memory):
    """Our dictionary and dpctl's require no alignment, and views can be at any byte too. DLPack and Arrow require it,
    in both directions."""
    np.asarray(memory)[:13] = list(range(13))
    want = np.asarray(memory)[1:13].copy().view("<i4")
    outer = Holder(memory, data=(memory._pointer + 1, False), shape=(3,), typestr="<i4")
    for a in (ub.from_usm_array_interface(outer), ub.asarray(memory)[1:13].view("int32"), ub.asarray(dpt.asarray(outer))):
        assert a._pointer == memory._pointer + 1 and a.asnumpy().tolist() == a.copy().asnumpy().tolist() == np.asarray(a).tolist() == want.tolist()
        assert str(want[0]) in repr(a) and (a + 1).tolist() == (want + 1).tolist() and ub.from_usm_array_interface(a)._pointer == a._pointer
        for f in (a.__dlpack__, lambda: a.__dlpack__(max_version=(1, 0)), lambda: ub.from_dlpack(a), lambda: a.__dlpack__(dl_device=(1, 0)), a.__arrow_c_array__):
            with pytest.raises(BufferError, match="aligned"):
                f()
        assert ub.from_dlpack(ub.from_dlpack(a.copy())).asnumpy().tolist() == want.tolist()
    with pytest.raises(BufferError, match="aligned"):
        ub.from_dlpack(capi.Producer(memory._pointer + 1, (3,), device=ub.asarray(memory).__dlpack_device__()))
    with pytest.raises(ValueError, match="unaligned"):
        ub.asarray(memoryview(bytes(14))[1:13].cast("b").cast("i"), copy=False)


def test_packed_elements_before_the_first(device):
    """Negative strides of elements of less than a byte can begin in the byte before."""
    a = ub.asarray([0x21, 0x43, 0x65], dtype="uint8", usm_type="device")
    b = ub.from_dlpack(capi.Producer(a._pointer + 1, (2,), dtype=(17, 4, 1), strides=(-1,), device=device.dlpack_device))
    api = capi.exchange(ub.Array)
    t = capi.DLTensor()
    assert capi.BORROW(api.borrow)(b, ct.byref(t)) == 0
    assert t.data == a._pointer and t.byte_offset == 1
    packed = b.copy().__dlpack__(dl_device=(1, 0), copy=True)
    assert (ct.c_uint8).from_address(capi.tensor(packed).t.data).value == 0x23  # element 0 is 3, the one before it is 2


def test_null_and_broken_exchange_apis():
    api = capi.exchange(ub.Array)
    with pytest.raises(BufferError, match="NULL"):
        capi.TO_PY(api.to_py)(None, ct.byref(ct.py_object()))
    for from_py in (lambda o, out: 0, lambda o, out: -1):
        T = capi.exchanging(from_py)
        for take in (ub.from_dlpack, ub.cute.from_dlpack):
            with capi.as_torch(T), pytest.raises(TypeError, match="no __dlpack__"):
                take(T())


def test_subinterpreters_are_refused():
    out = run("""
try:
    import _xxsubinterpreters as si
except ImportError:
    import _interpreters as si
i = si.create()
code = "try:\\n import usmbridge\\nexcept ImportError as e:\\n assert 'subinterpreter' in str(e), e\\nelse:\\n raise SystemError"
r = si.run_string(i, code) if hasattr(si, "run_string") else si.exec(i, code)
assert r is None, r
si.destroy(i)
sys.modules.pop("usmbridge")
import usmbridge
assert usmbridge.Array is ub.Array and usmbridge.zeros(3, device="host").shape == (3,)
print("ok")
""")
    assert out == "ok\n"


def test_instances_cannot_be_forged():
    a = ub.zeros(3, device="host")
    for f in (ub.Array, ub.Device, ub.SyclQueue, ub.SyclContext, ub.cute.Tensor, lambda: object.__new__(ub.Array),
              lambda: type("X", (ub.Array,), {}),
              lambda: setattr(a, "__class__", ub.Device), lambda: setattr(a, "__class__", ub.cute.Tensor),
              lambda: ub.Array.__dlpack__(3), lambda: ub.Array.shape.__get__(3)):
        with pytest.raises((TypeError, ValueError)):
            f()


def test_references_balance(np, device, memory):
    """A thousand calls of each kind, failing ones included, change no reference count."""
    x, h, s = np.arange(64.0), ub.zeros(64, device="host"), ub.zeros(64, usm_type="shared")
    q = s.sycl_queue
    broken = holder(memory, shape=(-1,))
    beyond = holder(memory, shape=(1 << 20,), syclobj=q)

    def fails(f, *args, **kw):
        with pytest.raises((ValueError, TypeError, BufferError, MemoryError)):
            f(*args, **kw)

    calls = [
        lambda: ub.from_dlpack(x), lambda: ub.from_dlpack(h), lambda: np.from_dlpack(h), lambda: np.asarray(s),
        lambda: ub.from_usm_array_interface(memory), lambda: s.__sycl_usm_array_interface__, lambda: s.__dlpack__(stream=q),
        lambda: s.__dlpack__(dl_device=(1, 0)), lambda: s.__dlpack__(copy=True), lambda: memoryview(s)[1:], lambda: h.__array_interface__,
        lambda: s.reshape(8, 8)[1:, ::2].T, lambda: ub.empty(3, sycl_queue=q), lambda: ub.asarray([[1, 2], [3, 4]]),
        lambda: ub.cute.from_dlpack(x).mark_layout_dynamic(), lambda: s.device, lambda: s.sycl_context,
        lambda: fails(ub.from_usm_array_interface, broken), lambda: fails(ub.from_usm_array_interface, beyond),
        lambda: fails(ub.from_dlpack, 5), lambda: fails(s.__dlpack__, stream=object()), lambda: fails(ub.empty, 1 << 50),
        lambda: fails(s.__dlpack__, dl_device=(2, 0)), lambda: fails(h.__dlpack__, dl_device=(14, 99)),
    ]
    watched = [x, h, s, q, memory, broken, beyond, device, None, True, ub.Array, ub.SyclQueue, ub.cute.Tensor]
    for call in calls:
        for _ in range(20):
            call()
        gc.collect()
        before = [sys.getrefcount(o) for o in watched]
        for _ in range(1000):
            call()
        gc.collect()
        ub.zeros(0, device="host")
        after = [sys.getrefcount(o) for o in watched]
        assert all(abs(a - b) < 40 for a, b in zip(before, after)), (call.__code__.co_firstlineno, before, after)


# The interpreter ends while daemon threads open the devices, or work on one. They must not be inside
# the SYCL library when the process runs its destructors.
ENDING = """
import threading, time, numpy as np
def work(n):
    x = np.arange(8.)
    while True:
        np.from_dlpack(ub.from_dlpack(x))
        a = {array}
        a[...] = 1
        a[::2] = 2
        a.tolist()
for i in range(4): threading.Thread(target=work, args=(1000 * (i + 1),), daemon=True).start()
time.sleep({wait})
"""


@pytest.mark.parametrize("array, waits", [("ub.empty(n, device='host')", (0, .02, .2)), ("ub.zeros(n)", (0, .01, .02, .04, .08, .2, .4))], ids=["host", "device"])
def test_ends_while_daemons_work(np, array, waits):
    for wait in waits:
        run(ENDING.format(array=array, wait=wait))


# Functions of atexit that were registered before the import run after the module's own. They can wait for a lock that a
# daemon thread holds during device work, as logging.shutdown does, or join the thread.
@pytest.mark.parametrize("end", ["lock.acquire()", "stop.set(), t.join()"])
def test_atexit_waits_for_a_daemon(end):
    code = f"""
import atexit, threading, time
lock, stop = threading.Lock(), threading.Event()
atexit.register(lambda: ({end}))
import usmbridge as ub
def work():
    while not stop.is_set():
        with lock:
            ub.zeros(1000, usm_type="device").tolist()
        time.sleep(0)
t = threading.Thread(target=work, daemon=True)
t.start()
time.sleep(.3)
"""
    program("-c", code, timeout=60)


@pytest.mark.parametrize("code", [
    # Forks happen while other threads import, export and allocate.
    """
import threading, warnings, numpy as np
warnings.simplefilter("ignore")
x, stop = np.arange(8.), []
def work():
    while not stop: np.from_dlpack(ub.from_dlpack(x)); ub.from_dlpack(x); ub.empty(100, device="host")
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for i in range(10):
    pid = os.fork()
    if pid == 0:
        for _ in range(50): np.from_dlpack(ub.from_dlpack(x))
        try: ub.stats()
        except RuntimeError: os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
stop.append(1)
for t in threads: t.join()
""",
    # There is no memory for arrays. Go's own heap has enough, because
    # its runtime ends the process without it.
    """
import resource
ub.zeros(3, device="host")
size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (size + (680 << 20),) * 2)
keep = []
try:
    while True: keep.append(ub.zeros(64 << 20, "uint8", device="host"))
except MemoryError:
    pass
assert 1 <= len(keep) <= 10, len(keep)
keep.clear()
assert memoryview(ub.zeros(64 << 20, "uint8", device="host"))[-1] == 0
""",
    # Producers call back, and sequences contain themselves.
    """
class R:
    def __dlpack__(self, **kw): return ub.from_dlpack(self)
    __sycl_usm_array_interface__ = property(lambda self: ub.from_usm_array_interface(self))
loop = []
loop.append(loop)
for f, error in ((lambda: ub.from_dlpack(R()), RecursionError), (lambda: ub.asarray(R()), RecursionError), (lambda: ub.asarray(loop), ValueError)):
    try: f()
    except error: pass
    else: raise AssertionError
""",
    # The collector runs at every allocation.
    """
gc.set_threshold(1)
import numpy as np
for _ in range(100):
    a = ub.asarray([[1, 2], [3, 4]], device="host"); np.from_dlpack(a); repr(a); a.__array_interface__; ub.from_dlpack(a.__dlpack__(max_version=(1, 0)))
""",
], ids=["forks", "memory", "recursion", "collector"])
def test_survives(np, code):
    if "RLIMIT_AS" in code and hasattr(ct.CDLL(None), "__asan_init"):
        pytest.skip("the address sanitizer ends the process itself where memory is short")
    run(code)


def test_an_error_in_a_lookup_is_not_left_set(device):
    """The lookup of dpctl in sys.modules can raise. The caller gets that error, and no later call does."""

    class Key:
        def __hash__(self):
            return hash("dpctl")

        def __eq__(self, other):
            if other is self:
                return True
            raise MemoryError("in a comparison")

    # An array of another context, whose queue has not been looked up before.
    made = importlib.import_module("dpctl")
    context = made.SyclContext([made.SyclDevice(device.filter_string)])
    a, key, missing = ub.zeros(3, sycl_queue=context), Key(), object()
    dpctl = sys.modules.pop("dpctl", missing)
    sys.modules[key] = None
    try:
        for name in ("sycl_queue", "sycl_context", "sycl_device"):
            with pytest.raises(MemoryError, match="comparison"):
                getattr(a, name)
    finally:
        del sys.modules[key]
        if dpctl is not missing:
            sys.modules["dpctl"] = dpctl
    assert a.sycl_queue is not None


def test_strides_too_wide_for_bytes(np):
    """In axes of one element and arrays without elements such strides are never used."""
    buf = (ct.c_double * 4)(1, 2, 3, 4)
    wide = (1 << 62) + 1
    a = ub.from_dlpack(capi.Producer(ct.addressof(buf), (1, 4, 1), (wide, 1, -wide), (2, 64, 1)))
    assert a.strides == (wide, 1, -wide)
    assert memoryview(a).tolist() == [[[1], [2], [3], [4]]]
    assert np.asarray(a[:, ::-1]).tolist() == [[[4], [3], [2], [1]]]
    assert a[0, 1:, 0].strides == (1,) and a[0, :, ::-1].asnumpy().tolist() == [[1], [2], [3], [4]]
    assert a.__array_interface__["strides"] is None or len(a.T.__array_interface__["strides"]) == 3
    assert a.T.reshape(4).asnumpy().tolist() == [1, 2, 3, 4]
    none = ub.from_dlpack(capi.Producer(ct.addressof(buf), (3, 0, 2), (wide, -wide, wide), (2, 64, 1)))
    assert none.nbytes == 0 and memoryview(none).nbytes == 0 and np.asarray(none[1:, :, ::-1]).size == 0
    assert none.T.shape == (2, 0, 3) and none.reshape(0).shape == (0,)


@pytest.mark.parametrize("take", [ub.from_dlpack, ub.cute.from_dlpack], ids=["array", "cute"])
def test_a_tensor_is_read_once(device, np, take):
    """Other threads write into a producer's struct during the import: without the GIL, as NumPy copies here, and with
    it, while memory is allocated for an empty tensor. The values that were checked are the values that are used."""
    p = capi.Producer(0, (0,) + (1,) * 63, device=device.dlpack_device)
    stop = threading.Event()

    def often(address, dtype, values):
        """Writes the values in turn, mostly without the GIL."""
        one = np.ctypeslib.as_array((ct.c_byte * np.dtype(dtype).itemsize).from_address(address)).view(dtype)
        where = np.lib.stride_tricks.as_strided(one, (1 << 20,), (0,))
        values = np.resize(np.array(values, dtype), where.shape)
        while not stop.is_set():
            where[...] = values

    at = ct.addressof(p.m) + capi.Versioned.t.offset + capi.DLTensor.ndim.offset
    threads = [threading.Thread(target=often, args=(at, "int32", (64, 1))),
               threading.Thread(target=often, args=(ct.addressof(p.shape), "int64", (0, 5)))]
    [x.start() for x in threads]
    try:
        for _ in range(2000):
            try:
                a = take(capi.py.PyCapsule_New(ct.addressof(p.m), p.name, None))
            except BufferError as e:
                assert "NULL" in str(e)  # five elements at a null address
                continue
            assert a.shape in ((0,), (0,) + (1,) * 63)
            assert take is not ub.from_dlpack or (a.size, a.ndim) == (0, len(a.shape))
    finally:
        stop.set()
        [x.join() for x in threads]


@pytest.mark.parametrize("f", [ub.cute.from_dlpack, ub.cute.from_dlpack_dynamic])
def test_calls_without_arguments(f):
    with pytest.raises(TypeError, match="lacks an argument: tensor"):
        next(iter(f, None))  # calls without an argument array
    with pytest.raises(TypeError, match="lacks an argument: tensor"):
        f()


@pytest.mark.parametrize("way", ["from_dlpack", "a sequence", "a pickle"])
@pytest.mark.parametrize("after", range(6))
def test_released_by_the_collector_while_it_is_viewed(way, after):
    shape = (1, 1, 1, 1, 1, 1 << 16)  # more axes than an Array of the free list has
    a = ub.full(shape[5:], 7, dtype="uint8", device="host")[None, None, None, None, None]
    flat = a.reshape(-1)
    buffer = pickle.PickleBuffer(flat)
    take = {
        "from_dlpack": lambda: ub.from_dlpack(a),
        "a sequence": lambda: ub.asarray([a])[0],
        "a pickle": lambda: ub._native._unpickle(buffer, "uint8", shape, "C", False, None, None, False),
    }[way]
    left = after

    def release(phase, info):
        nonlocal left
        left -= phase == "start"
        if left < 0:
            a.release()
            flat.release()

    thresholds = gc.get_threshold()
    gc.callbacks.append(release)
    gc.set_threshold(1)
    try:
        v = take()
    except ValueError as e:  # this result is correct too
        assert "released" in str(e)
        return
    finally:
        gc.callbacks.remove(release)
        gc.set_threshold(*thresholds)
        buffer.release()
    assert v.shape == shape
    others = [ub.full(shape, 9, dtype="uint8", device="host") for _ in range(64)]
    assert v._pointer not in [o._pointer for o in others]
    assert v.reshape(-1).tolist() == [7] * (1 << 16)


@pytest.fixture
def ending():
    """A capsule of a name, whose destructor runs Python code: it adds to the list ended."""

    @ct.PYFUNCTYPE(None, ct.c_void_p)
    def end(capsule):
        make.ended.append(len(make.ended))

    def make(name):
        return capi.py.PyCapsule_New(1, name, ct.cast(end, ct.c_void_p))

    make.ended = []
    return make


def test_capsules_of_arrow_that_run_code_at_their_end(ending):
    other = type("Other", (), {"__arrow_c_array__": lambda self, requested_schema=None: (ending(b"other"), ending(b"other"))})
    with pytest.raises(TypeError, match="returned other capsules"):
        ub.asarray(other())
    assert ending.ended == [0, 1]


def test_capsules_of_queues_that_run_code_at_their_end(memory, ending):
    class Queue:
        def _get_capsule(self):
            return ending(name)

    name = b"other"
    a = ub.zeros(3, device="host")
    for f in (lambda: ub.empty(3, sycl_queue=Queue()), lambda: a.__dlpack__(stream=Queue()),
              lambda: ub.asarray(holder(memory, syclobj=Queue()))):
        with pytest.raises(ValueError, match='a capsule named "other" is neither'):
            f()
    name = b"SyclContextRef"
    for wrong, error in ((dict(order="X"), ValueError), (dict(usm_type=3), TypeError), (dict(interprocess=3), TypeError)):
        with pytest.raises(error, match=f"{next(iter(wrong))} must be"):
            ub.empty(3, sycl_queue=Queue(), **wrong)
    assert ending.ended == [0, 1, 2, 3]
