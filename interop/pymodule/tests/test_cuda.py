"""Arrays and libraries of CUDA: kDLCUDA, the attribute cuda, and __cuda_array_interface__.

The tests need a CUDA device in SYCL's list. `make test-devices` simulates some. No library of CUDA is needed: the
consumers here behave as those of PyTorch 2.11, CuPy 14 and JAX 0.11 were seen to do.
"""

import ctypes as ct
import gc
import types
import weakref

import numpy as np
import pytest

import capi
import usmbridge as ub
from conftest import in_child, soon


@pytest.fixture
def cuda():
    """The CUDA devices, in CUDA's order."""
    found = [d for d in ub.devices() if d.filter_string.startswith("cuda:")]
    if not found:
        pytest.skip("no CUDA device")
    return found


@pytest.fixture(autouse=True)
def without_the_gil(request):
    """No call that can wait for a device has the GIL. Copies of dpctl have it."""
    driver = find_driver()
    if driver is not None:  # objects of dpctl that earlier tests left end now
        gc.collect()
        ub.trim()
        driver.sim_with_gil()
    yield
    if driver is not None:
        name = driver.sim_with_gil()
        assert name == b"" or "dpctl" in request.fixturenames


def find_driver():
    """The simulated driver, None if there is another one or none."""
    try:
        driver = ct.CDLL("libcuda.so.1")
        driver.sim_with_gil.restype = ct.c_char_p
    except (OSError, AttributeError):
        return None
    return driver


@pytest.fixture
def later():
    """Makes work of a library of CUDA pending on a stream: it fills bytes of an array with a value after 20 ms."""
    driver = ct.CDLL("libcuda.so.1")
    if not hasattr(driver, "simulated_later"):
        pytest.skip("the driver of CUDA is not the simulated one")

    def f(ordinal, a, value, stream=0x77):
        address = ct.c_ulonglong(a if isinstance(a, int) else a._pointer)
        assert driver.simulated_later(ordinal, ct.c_void_p(stream), address, value, ct.c_size_t(64)) == 0

    f.finish = driver.simulated_finish  # waits for all work
    return f


@pytest.fixture
def fail():
    """Makes calls of a function of the driver fail."""
    driver = ct.CDLL("libcuda.so.1")
    if not hasattr(driver, "sim_fail"):
        pytest.skip("the driver of CUDA cannot simulate failures")
    yield lambda name, error, count=1: driver.sim_fail(name.encode(), 0, error, count)
    driver.sim_fail(b"", 0, 0, 0)


class Current:
    """The device of CUDA that is current in the thread, None if no context is."""

    def __init__(self, n):
        self.driver = ct.CDLL("libcuda.so.1")
        self.contexts = [ct.c_void_p() for _ in range(n)]
        for ordinal, context in enumerate(self.contexts):
            assert self.driver.cuDevicePrimaryCtxRetain(ct.byref(context), ordinal) == 0

    def set(self, ordinal):
        assert self.driver.cuCtxSetCurrent(None if ordinal is None else self.contexts[ordinal]) == 0

    def get(self):
        context = ct.c_void_p()
        assert self.driver.cuCtxGetCurrent(ct.byref(context)) == 0
        return next((i for i, c in enumerate(self.contexts) if c.value == context.value), None)

    def close(self):
        self.set(None)
        for ordinal in range(len(self.contexts)):
            self.driver.cuDevicePrimaryCtxRelease_v2(ordinal)


@pytest.fixture
def current(cuda):
    c = Current(len(cuda))
    yield c
    c.close()


def make(device, kind, value=1):
    return ub.full((64,), value, dtype="u1", device=device, usm_type=kind)


def host(a):
    return ub.asarray(a, device="host").tolist()


# The types of devices that from_dlpack of a library accepts, and its arguments of __dlpack__.
CONSUMERS = {
    "torch": ([2], {"max_version": (1, 0), "stream": 1}),
    "cupy": ([2, 13], {"stream": 1, "max_version": (1, 0), "copy": None}),
    "jax": ([2], {"stream": 0x7F0000001000}),
}


def consume(name, x):
    """Returns the capsule that the library gets, or None if it refuses the device."""
    types, keywords = CONSUMERS[name]
    return x.__dlpack__(**keywords) if x.__dlpack_device__()[0] in types else None


class Producer:
    """Gives the memory of an Array as a library of CUDA does. Old ones take no max_version."""

    def __init__(self, a, device=None, old=False):
        self.a, self.device, self.old, self.asked = a, device or a.cuda.__dlpack_device__(), old, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **kw):
        self.asked.append(kw)
        if self.old and set(kw) - {"stream"}:
            raise TypeError("unexpected keyword")
        return self.a.__dlpack__(**{"dl_device": self.device, **kw})


class Described:
    def __init__(self, d):
        self.d = d

    @property
    def __cuda_array_interface__(self):
        return self.d


# ---- without a CUDA device -----------------------------------------------------------


def elsewhere():
    return [ub.zeros(3, device=d) for d in ub.devices() if not d.filter_string.startswith("cuda:")]


def test_absent_elsewhere():
    for a in elsewhere():
        for name in ("cuda", "__cuda_array_interface__"):
            assert not hasattr(a, name)
            with pytest.raises(AttributeError, match="libur_adapter_cuda.so.0.*docs/gpu.md"):
                getattr(a, name)


@pytest.mark.parametrize("dl_device", [(2, 0), (3, 0), (13, 0)])
def test_export_elsewhere(dl_device):
    for a in elsewhere():
        for kw in ({}, {"copy": True}, {"copy": False}):
            with pytest.raises(BufferError, match="CUDA backend"):
                a.__dlpack__(dl_device=dl_device, **kw)


def test_imports_say_what_is_missing():
    if any(d.filter_string.startswith("cuda:") for d in ub.devices()):
        pytest.skip("there is a CUDA device")
    x = np.arange(4.0)
    for device in (2, 13):
        p = capi.Producer(x.ctypes.data, (4,), dtype=(2, 64, 1), device=(device, 0))
        for o in (p, p.capsule()):
            with pytest.raises(BufferError, match=r"kDLCUDA.*libur_adapter_cuda"):
                ub.from_dlpack(o)
        assert not p.deleted
    d = {"shape": (4,), "typestr": "<f8", "data": (x.ctypes.data, False), "version": 3}
    with pytest.raises(BufferError, match="libur_adapter_cuda"):
        ub.asarray(Described(d))

    class Copies:
        __cuda_array_interface__ = d

        def __array__(self, dtype=None, copy=None):
            return x

    assert ub.asarray(Copies()).tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="__cuda_array_interface__"):
        ub.asarray(object())


# ---- exports -------------------------------------------------------------------------


def test_devices(cuda):
    for ordinal, d in enumerate(cuda):
        for kind, wants in (("device", [(2, ordinal)]), ("shared", [(2, ordinal), (13, ordinal)]), ("host", [(3, 0)])):
            a = make(d, kind)
            assert a.cuda.__dlpack_device__() == wants[0]
            assert a.__dlpack_device__() == d.dlpack_device and a.__dlpack_device__()[0] == 14
            for want in wants:
                for copy in (None, False, True):
                    m = capi.tensor(c := a.__dlpack__(dl_device=want, max_version=(1, 3), copy=copy))
                    assert (m.t.device_type, m.t.device_id, m.flags) == (*want, 2 if copy else 0)
                    assert (m.t.data == a._pointer) == (not copy)
                    del c
            for other in {(2, 0), (2, 1), (2, 9), (3, 0), (3, 1), (13, 0), (13, 1)} - set(wants):
                with pytest.raises(BufferError, match=r"can be asked for as"):
                    a.__dlpack__(dl_device=other, stream=0)  # the device is checked first


@pytest.mark.parametrize("kind, device_type", [("device", 2), ("shared", 2), ("shared", 13)])
def test_copies_to_another_device(cuda, kind, device_type):
    for d in cuda:
        a = make(d, kind, 6)
        for ordinal, to in enumerate(cuda):
            o = types.SimpleNamespace(
                __dlpack_device__=lambda i=ordinal: (device_type, i),
                __dlpack__=lambda i=ordinal, **kw: a.__dlpack__(**{"dl_device": (device_type, i), "copy": True, **kw}),
            )
            b = ub.from_dlpack(o)
            assert (b.device, b.usm_type, host(b)) == (to, kind, [6] * 64) and b._pointer != a._pointer
        for bad in (len(cuda), -1, 1 << 40):
            with pytest.raises(BufferError, match="can be asked for as"):
                a.__dlpack__(dl_device=(device_type, bad), copy=True)


def test_consumers(cuda):
    a, s, h = (make(cuda[-1], kind) for kind in ("device", "shared", "host"))
    for name, (_, keywords) in CONSUMERS.items():
        for x in (a, s):
            c = consume(name, x.cuda)
            assert capi.name(c) == (capi.VERSIONED if "max_version" in keywords else capi.LEGACY)
            assert capi.tensor(c).t.data == x._pointer and consume(name, x) is None
        assert consume(name, h.cuda) is None
    assert not hasattr(a.cuda, "__dlpack_c_exchange_api__")
    assert capi.tensor(a.cuda.__dlpack__(dl_device=(14, a.__dlpack_device__()[1]), max_version=(1, 0))).t.device_type == 14


def test_streams(cuda):
    a, h = make(cuda[0], "shared"), make(cuda[0], "host")
    for stream in (None, -1, 1, 2, 0x1000):
        for dl_device in ((2, 0), (13, 0)):
            assert capi.name(a.__dlpack__(dl_device=dl_device, stream=stream)) == capi.LEGACY
    for stream, error in ((0, ValueError), (-2, ValueError), (1 << 70, ValueError), ("1", TypeError), (a.sycl_queue, TypeError)):
        for x in (a, h):
            with pytest.raises(error, match="stream"):
                x.cuda.__dlpack__(stream=stream)
    for stream in (1, -1):
        with pytest.raises(ValueError, match="None for kDLCUDAHost"):
            h.cuda.__dlpack__(stream=stream)


def test_readonly(cuda):
    a = make(cuda[0], "device").as_readonly()
    assert capi.tensor(a.cuda.__dlpack__(max_version=(1, 0))).flags == 1
    with pytest.raises(BufferError, match="read-only"):
        a.cuda.__dlpack__(stream=1)
    assert a.__cuda_array_interface__["data"] == (a._pointer, True)


def test_view_keeps_the_array(cuda):
    a = make(cuda[0], "device")
    v = a.cuda
    del a
    gc.collect()
    assert capi.tensor(v.__dlpack__()).t.data
    b = make(cuda[0], "device")
    v = b.cuda
    b.release()
    with pytest.raises(ValueError):
        v.__dlpack__()


def test_interface(cuda):
    for kind in ("device", "shared"):
        a = ub.full((4, 6), 2, dtype="<f4", device=cuda[-1], usm_type=kind)
        assert a.__cuda_array_interface__ == {
            "shape": (4, 6), "typestr": "<f4", "strides": None, "data": (a._pointer, False), "version": 3, "stream": None}
        b = a[::2, ::-1]
        d = b.__cuda_array_interface__
        assert (d["shape"], d["strides"], d["data"][0]) == ((2, 6), (48, -4), a._pointer + 20)
        assert ub.empty((0, 3), device=cuda[-1], usm_type=kind).__cuda_array_interface__["data"][0] == 0
    for bad in (make(cuda[0], "host"), ub.empty(3, "bfloat16", device=cuda[0], usm_type="device")):
        with pytest.raises(AttributeError, match="__cuda_array_interface__"):
            bad.__cuda_array_interface__


# ---- imports -------------------------------------------------------------------------


def test_import(cuda):
    for ordinal, d in enumerate(cuda):
        for kind, types in (("device", [2]), ("shared", [2, 13])):
            a = make(d, kind, 3)
            for device_type in types:
                for old in (False, True):
                    p = Producer(a, (device_type, ordinal), old)
                    for b in (ub.from_dlpack(p), ub.asarray(p)):
                        assert (b.device, b.usm_type, b._pointer) == (d, kind, a._pointer)
                        assert b.__dlpack_device__() == a.__dlpack_device__() and host(b) == [3] * 64
                    assert all(kw["stream"] == 1 for kw in p.asked)
                b = ub.from_dlpack(a.__dlpack__(dl_device=(device_type, ordinal)))
                assert b._pointer == a._pointer and b.device == d
            assert ub.from_dlpack(Producer(a), device="host").tolist() == [3] * 64
            empty = ub.from_dlpack(Producer(ub.empty((0, 3), device=d, usm_type=kind)))
            assert empty.shape == (0, 3) and empty.device == d
            empty = ub.from_dlpack(capi.Producer(0x1000, (0,), dtype=(1, 8, 1), device=(2, ordinal)))
            assert empty.shape == (0,) and empty.device == d


def test_import_refusals(cuda):
    a = make(cuda[0], "device")
    x = np.arange(64, dtype="u1")
    for pointer, device in ((x.ctypes.data, (2, 0)), (a._pointer, (2, len(cuda))), (x.ctypes.data, (13, 0))):
        p = capi.Producer(pointer, (64,), dtype=(1, 8, 1), device=device)
        for o in (p, p.capsule()):
            with pytest.raises(BufferError, match="cannot be imported"):
                ub.from_dlpack(o)
        assert not p.deleted
    for o in (p := capi.Producer(x.ctypes.data, (16,), device=(3, 0)), p.capsule()):
        with pytest.raises(BufferError, match="copy"):
            ub.from_dlpack(o)
    assert not p.deleted


def test_import_interface(cuda):
    for kind in ("device", "shared"):
        a = ub.full((4, 6), 2, dtype="<f4", device=cuda[-1], usm_type=kind)
        b = ub.asarray(Described(a.__cuda_array_interface__))
        assert (b.device, b.usm_type, b._pointer, b.readonly) == (a.device, kind, a._pointer, False)
        a[0, 5] = 7
        assert ub.asarray(Described(a[::2, ::-1].__cuda_array_interface__), device="host").tolist()[0][0] == 7
        d = a.__cuda_array_interface__
        for version in ({"version": 2, "stream": None}, {"stream": 1}, {"stream": 2}, {"data": (a._pointer, True)}):
            c = ub.asarray(Described({**d, **version}))
            assert c._pointer == a._pointer and c.readonly == ("data" in version)
        d.pop("stream")
        assert host(ub.asarray(Described(d))[1]) == [2] * 6
        for bad, error in (
            ({"stream": 0}, ValueError), ({"stream": "1"}, ValueError), ({"mask": b}, BufferError), ({"shape": 4}, ValueError),
            ({"shape": (1 << 60,)}, BufferError), ({"strides": (3, 4)}, ValueError), ({"strides": (4,)}, ValueError),
            ({"data": (5, False)}, BufferError), ({"data": 5}, ValueError), ({"data": (None, False)}, ValueError),
            ({"data": (-1, False)}, ValueError), ({"typestr": ">f4"}, TypeError), ({"typestr": None}, ValueError),
        ):
            with pytest.raises(error):
                ub.asarray(Described({**d, **bad}))
    with pytest.raises(TypeError):
        ub.asarray(Described(3))
    assert ub.asarray(Described({"shape": (0,), "typestr": "<f4", "data": (0, False), "version": 3})).shape == (0,)


@pytest.mark.parametrize("where", ["instance", "getattr", "slots", "subclass"])
def test_interface_of_any_attribute(cuda, where):
    a = make(cuda[-1], "device", 3)

    class Plain:
        pass

    class Proxy:
        def __getattr__(self, name):
            return getattr(a, name) if name == "__cuda_array_interface__" else self.__getattribute__(name)

    class Slots:
        __slots__ = ("__cuda_array_interface__",)

    class Subclass(Plain):
        __cuda_array_interface__ = property(lambda self: a.__cuda_array_interface__)

    o = {"instance": Plain, "getattr": Proxy, "slots": Slots, "subclass": Subclass}[where]()
    if where in ("instance", "slots"):
        o.__cuda_array_interface__ = a.__cuda_array_interface__
    b = ub.asarray(o)
    assert b._pointer == a._pointer and b.device == cuda[-1]
    assert ub.asarray([o, o], device="host").tolist() == [[3] * 64] * 2


def test_interface_that_raises(cuda):
    class Raises:
        def __getattr__(self, name):
            if name == "__cuda_array_interface__":
                raise self.error
            raise AttributeError(name)

    for error in (AttributeError("no"), KeyError("no"), KeyboardInterrupt()):
        (o := Raises()).error = error
        with pytest.raises(TypeError if isinstance(error, AttributeError) else type(error)):
            ub.asarray(o)


def test_host_memory(cuda):
    """kDLCUDAHost, whose number is always 0."""
    for d in cuda:
        h = make(d, "host", 4)
        for o in (h.cuda, Producer(h), h.__dlpack__(dl_device=(3, 0)), Foreign(h)):
            b = ub.from_dlpack(o)
            h[0] = i = len(str(o)) % 7
            assert (b.usm_type, b.__dlpack_device__()[0]) == ("host", 14) and b.tolist() == [i] + [4] * 63
    assert ub.from_dlpack(capi.Producer(0x1000, (0,), dtype=(1, 8, 1), device=(3, 0))).shape == (0,)


def test_host_memory_elsewhere(cuda):
    h = make(cuda[-1], "host", 4)
    for device in ("host", *cuda):
        assert host(ub.from_dlpack(h.cuda, device=device)) == [4] * 64


class Foreign:
    """Gives the memory of an Array in a tensor that usmbridge did not make, as another library does."""

    def __init__(self, a):
        self.a, self.device = a, a.cuda.__dlpack_device__()
        self.p = capi.Producer(a._pointer, (64,), dtype=(1, 8, 1), device=self.device)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **kw):
        if kw.get("dl_device") not in (None, self.device):
            raise BufferError("cannot export to another device")
        return self.p.capsule()


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_to_the_host(cuda, kind):
    """The producers of CUDA that refuse other devices, as PyTorch does, are copied as asarray copies them."""
    for d in cuda:
        for o in (Foreign(make(d, kind, 5)), Producer(make(d, kind, 5))):
            assert ub.asarray(o, device="host").tolist() == ub.from_dlpack(o, device="host").tolist() == [5] * 64
            assert ub.from_dlpack(o, device="host", copy=True).tolist() == [5] * 64


def test_device_is_current(cuda, current):
    """PyTorch exports tensors of the current device only."""

    class Checks(Producer):
        refuse = None

        def __dlpack__(self, **kw):
            seen.append(current.get())
            if self.refuse:
                current.set(None)
                raise self.refuse
            return super().__dlpack__(**kw)

    for ordinal, d in enumerate(cuda):
        for kind, types_ in (("device", [2]), ("shared", [2, 13])):
            for device_type in types_:
                a = make(d, kind)
                for mine in (None, *range(len(cuda))):
                    for get in (ub.from_dlpack, ub.asarray, lambda o: ub.from_dlpack(o, device="host")):
                        for old in (False, True):
                            seen = []
                            current.set(mine)
                            get(Checks(a, (device_type, ordinal), old))
                            assert set(seen) == {ordinal}
                    for error in (BufferError("no"), TypeError("no"), KeyboardInterrupt()):
                        p = Checks(a, (device_type, ordinal))
                        p.refuse = error
                        current.set(mine)
                        with pytest.raises(type(error)):
                            ub.from_dlpack(p)
                        assert current.get() == mine and set(seen) == {ordinal}
    for bad in (len(cuda), -1, 1 << 40):
        p = Checks(a, (2, bad))
        p.refuse = BufferError("no")
        current.set(0)
        with pytest.raises(BufferError):
            ub.from_dlpack(p)


def test_failed_wait_at_import(cuda, fail):
    a = make(cuda[-1], "device", 6)
    d = {**a.__cuda_array_interface__, "stream": 5}
    for get in (
        lambda: ub.from_dlpack(Producer(a)), lambda: ub.from_dlpack(Foreign(a)), lambda: ub.from_dlpack(Foreign(a), device="host"),
        lambda: ub.asarray(Foreign(a)), lambda: ub.asarray(Described(d)),
    ):  # fmt: skip
        fail("cuStreamSynchronize", 700)
        with pytest.raises(RuntimeError, match="failed"):
            get()
        fail("", 0, 0)
        assert host(get()) == [6] * 64


def test_import_keeps_the_owner(cuda, dpctl):
    memory = dpctl.memory.MemoryUSMDevice(64, queue=dpctl.SyclQueue(cuda[0].filter_string))
    memory.copy_from_host(bytes([4]) * 64)
    o, gone = Described({"shape": (8,), "typestr": "|u1", "data": (memory._pointer + 8, False), "version": 2}), []
    weakref.finalize(o, gone.append, memory)
    del memory
    b = ub.asarray(o)
    del o
    gc.collect()
    assert not gone and host(b) == [4] * 8 and b.device == cuda[0]
    del b
    gc.collect()
    assert gone


def test_exchange_api(cuda):
    """No stream of CUDA goes where a queue of SYCL is expected, nor the reverse."""
    api, out = capi.exchange(ub.Array), ct.c_void_p(1)
    for device_type in (2, 3, 13):
        assert capi.STREAM(api.stream)(device_type, 0, ct.byref(out)) == 0 and out.value is None
    a = make(cuda[0], "device")

    class Tensor(capi.TorchFlags):
        """Has an exchange API, as torch.Tensor has; it does not order work, so it is not used for memory of CUDA."""

        __dlpack_device__ = staticmethod(a.cuda.__dlpack_device__)
        asked = []

        def __dlpack__(self, **kw):
            self.asked.append(kw)
            return a.cuda.__dlpack__(**kw)

    def fail(*_):
        raise AssertionError

    own = capi.exchanging(fail, fail)
    Tensor.__dlpack_c_exchange_api__ = own.__dlpack_c_exchange_api__
    with capi.as_torch(Tensor):
        assert ub.from_dlpack(Tensor())._pointer == a._pointer
        assert ub.asarray(Tensor())._pointer == a._pointer
    assert [kw["stream"] for kw in Tensor.asked] == [1, 1]


# ---- order ---------------------------------------------------------------------------


def shown(a):
    """Shows the memory to libraries of CUDA in each way, and yields the consumer's object."""
    yield a.cuda.__dlpack__(stream=1)
    yield a.__cuda_array_interface__
    yield a.cuda.__dlpack__(stream=-1)


@pytest.mark.parametrize("kind", ["device", "shared"])
def test_reads_come_after_work(cuda, later, kind):
    ordinal = len(cuda) - 1
    for n in range(3):
        a = make(cuda[ordinal], kind)
        keep = next(c for i, c in enumerate(shown(a)) if i == n)
        later(ordinal, a, 9)
        assert host(a)[0] == 9
        later(ordinal, a, 8)
        assert a[3:].copy().tolist()[0] == 8
        if kind == "shared":
            later(ordinal, a, 7)
            assert np.asarray(a)[0] == 7
        later(ordinal, a, 6)
        a[1] = 5  # a copy to the device comes after that work too
        assert host(a)[:3] == [6, 5, 6]
        later(ordinal, a, 4)
        a.__dlpack__()  # so do exports to libraries of SYCL
        assert host(a)[0] == 4
        del keep


def test_reads_come_after_work_behind_host_tasks(cuda, dpctl):
    """SYCL submits such work to CUDA only when the task has ended."""
    queue = dpctl.SyclQueue(cuda[0].filter_string)
    for n in range(10):
        new, memory, other = (dpctl.memory.MemoryUSMShared(64, queue=queue) for _ in range(3))
        new.copy_from_host(bytes([9]) * 64)
        memory.copy_from_host(bytes(64))
        d = {**memory.__sycl_usm_array_interface__, "shape": (64,), "typestr": "|u1", "strides": None, "offset": 0}
        a = ub.asarray(types.SimpleNamespace(__sycl_usm_array_interface__=d))
        keep = a.cuda.__dlpack__(stream=-1, max_version=(1, 0))
        event = queue.memcpy_async(other, new, 64)
        for _ in range(20):
            event = queue.memcpy_async(other, new, 64, [event])
        task = queue._submit_keep_args_alive((new, other), [event])
        last = queue.memcpy_async(memory, new, 64, [task])
        assert np.asarray(a)[0] == 9
        last.wait()
        del keep


def test_address_only(cuda, later):
    """Work of a consumer that has the address alone."""
    a = make(cuda[0], "device")
    later(0, a, 9)
    assert host(a)[0] == 9


@pytest.mark.parametrize("kind", ["device", "shared"])
def test_reuse_comes_after_work(cuda, later, kind):
    for n in range(2):
        near = [make(cuda[0], kind) for _ in range(3)]  # trim does not give their segment back
        a = make(cuda[0], kind)
        keep = next(c for i, c in enumerate(shown(a)) if i == n)
        address = a._pointer
        later(0, a, 8)
        del keep, a
        gc.collect()
        others = []

        def reused():
            ub.trim()  # waits for the work; requests for so little leave that memory alone
            others.extend(make(cuda[0], kind, 5) for _ in range(100))
            return any(b._pointer == address for b in others[-100:])

        soon(reused)
        later.finish()
        assert all(host(b) == [5] * 64 for b in others if b._pointer == address) and near


def test_imported_memory(cuda, later):
    a = make(cuda[0], "device")
    p = Producer(a)
    later(0, a, 9, stream=1)
    b = ub.from_dlpack(p)
    later(0, a, 8)
    assert host(b)[0] == 8
    later(0, a, 7, stream=5)
    c = ub.asarray(Described({**a.__cuda_array_interface__, "stream": 5}))
    assert host(c)[0] == 7


READS = {
    "numpy": np.asarray,
    "buffer": memoryview,
    "list": lambda a: a.tolist(),
    "copy": lambda a: a.asnumpy(),
    "plain copy": host,
    "bytes": lambda a: a.tobytes(),
    "interface": lambda a: a.__array_interface__,
    "dlpack": lambda a: a.__dlpack__(dl_device=(1, 0), max_version=(1, 0)),
    "arrow": lambda a: a.__arrow_c_array__(),
    "item": lambda a: int(a[0]),
}


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
@pytest.mark.parametrize("read", READS)
def test_forked_child_reads_no_memory(cuda, kind, read):
    a = make(cuda[0], kind)

    def child():
        repr(a)
        with pytest.raises((RuntimeError, TypeError, BufferError, AttributeError), match="fork|host cannot read"):
            READS[read](a)
        return True

    in_child(child)
