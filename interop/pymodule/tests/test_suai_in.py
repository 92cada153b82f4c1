"""Import by __sycl_usm_array_interface__: forms, owners, repeated imports of one owner, errors. robust/test_dictionaries.py has
the table of wrong values."""

import gc
import operator
import pickle
import sys
import types

import pytest
from conftest import peer

import capi
import usmbridge as ub


class Holder:
    """An object with a dictionary that keeps its memory alive."""

    def __init__(self, memory, **changes):
        self.show(memory, **changes)

    def show(self, memory, **changes):
        self.memory = memory
        d = memory.__sycl_usm_array_interface__ | {"data": (memory._pointer, False)} | changes
        self.__sycl_usm_array_interface__ = {k: v for k, v in d.items() if v is not Ellipsis}


@pytest.fixture
def memory(dpctl):
    return dpctl.memory.MemoryUSMShared(256)


def test_capsules_are_renamed_when_used_and_only_then(memory, device, dpctl):
    q = dpctl.SyclQueue(device.filter_string)
    for make, used in ((q._get_capsule, b"used_SyclQueueRef"), (q.sycl_context._get_capsule, b"used_SyclContextRef")):
        for take in (lambda c: ub.from_usm_array_interface(Holder(memory, syclobj=c)), lambda c: ub.empty(3, sycl_queue=c)):
            c = make()
            before = capi.name(c)
            a = take(c)
            assert capi.name(c) == used and before != used
            with pytest.raises(ValueError, match="consumed"):
                take(c)
            del c
            assert a.sycl_queue.sycl_context == q.sycl_context
        c = make()
        with pytest.raises(ValueError):
            ub.from_usm_array_interface(Holder(memory, shape=(-1,), syclobj=c))
        assert capi.name(c) == before
        with pytest.raises((ValueError, MemoryError)):
            ub.empty(1 << 50, sycl_queue=c)
        assert capi.name(c) == before


def test_meaning_of_read_only(memory, dpt):
    assert not ub.from_usm_array_interface(memory).readonly  # dpctl.memory writes True and means writable
    h = Holder(memory, data=(memory._pointer, True))
    first = ub.from_usm_array_interface(h)
    h.show(memory, data=(memory._pointer, False))
    assert first.readonly and not ub.from_usm_array_interface(h).readonly
    x = dpt.ones(4)
    assert not ub.from_usm_array_interface(x).readonly
    x.flags.writable = False
    assert ub.from_usm_array_interface(x).readonly
    # oneDAL's tables write a list and mean mutable by True
    table = type("homogen_table", (), {"__module__": "onedal._onedal_py_dpc"})()
    table.__sycl_usm_array_interface__ = dict(memory.__sycl_usm_array_interface__, data=[memory._pointer, True])
    assert not ub.from_usm_array_interface(table).readonly


def test_buffer_when_data_is_absent(np, dpctl):
    m = dpctl.memory.MemoryUSMShared(64)

    class Mem(dpctl.memory.MemoryUSMShared):
        pass

    x = np.asarray(m)
    d = dict(m.__sycl_usm_array_interface__, shape=(8,), typestr="<f8")
    del d["data"]
    holder = type("H", (), {"__sycl_usm_array_interface__": d})()
    with pytest.raises(ValueError, match="data"):
        ub.from_usm_array_interface(holder)
    sub = type("B", (np.ndarray,), {"__sycl_usm_array_interface__": d})
    y = x.view(sub)
    a = ub.from_usm_array_interface(y)
    assert a._pointer == m._pointer and a.dtype == "float64" and a.usm_type == "shared" and not a.readonly
    n = sys.getrefcount(y)
    del a
    gc.collect()
    ub.trim()  # its address was shown
    assert sys.getrefcount(y) == n - 1
    with pytest.raises(ValueError):
        sub.__sycl_usm_array_interface__ = dict(d, shape=(9,))  # beyond the buffer
        ub.from_usm_array_interface(y)


def test_pointers_that_are_not_usm(memory, dpctl, device, np, separate):
    x = np.zeros(64)
    q = dpctl.SyclQueue(device.filter_string)
    # dpctl ends the process if a context has ordinary memory
    for syclobj in (q, q.sycl_context, device.filter_string, q._get_capsule(), q.sycl_context._get_capsule(), types.SimpleNamespace(_get_capsule=q._get_capsule)):
        for pointer in (x.ctypes.data, 4096, (1 << 47) - 4096):
            with pytest.raises(ValueError, match="unified shared memory"):
                ub.from_usm_array_interface(Holder(memory, data=(pointer, False), syclobj=syclobj))
    if not separate:
        return
    d = dpctl.SyclDevice(device.filter_string)
    other = dpctl.SyclContext([d])
    for syclobj in (other, dpctl.SyclQueue(other, d), other._get_capsule()):
        with pytest.raises(ValueError, match="context"):
            ub.from_usm_array_interface(Holder(memory, syclobj=syclobj))
    mine = dpctl.memory.MemoryUSMDevice(64, queue=dpctl.SyclQueue(other, d))
    a = ub.from_usm_array_interface(mine)
    assert a.usm_type == "device" and a._pointer == mine._pointer
    with pytest.raises(ValueError, match="context"):
        ub.from_usm_array_interface(Holder(mine, syclobj=device.filter_string))


def test_the_attribute(memory):
    class Sub(dict):
        pass

    for bad in (Sub(memory.__sycl_usm_array_interface__), None, 5, [("version", 1)]):
        h = Holder(memory)
        h.__sycl_usm_array_interface__ = bad
        with pytest.raises(TypeError, match="dict"):
            ub.from_usm_array_interface(h)
    with pytest.raises(TypeError, match="has no"):
        ub.from_usm_array_interface(object())

    class Raises:
        @property
        def __sycl_usm_array_interface__(self):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        ub.from_usm_array_interface(Raises())
    with pytest.raises(LookupError, match="mine"):
        ub.asarray(Raises())

    class BadProvider:
        def _get_capsule(self):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        ub.from_usm_array_interface(Holder(memory, syclobj=BadProvider()))


def test_spans_as_wide_as_the_address_space(memory, device):
    """The distance from the first element to the last byte exceeds a signed number."""
    for syclobj in (memory.sycl_queue, device.filter_string):
        with pytest.raises(ValueError, match="span|address"):
            ub.from_usm_array_interface(Holder(memory, data=(1 << 63, False), shape=(2,), strides=((1 << 63) - 1,),
                                               offset=-(1 << 62), typestr="|i1", syclobj=syclobj))


# ---- repeated imports of the memory of one owner: cached facts, and checks that are repeated ----


@pytest.fixture
def contexts(device, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    return [dpctl.SyclQueue(d), dpctl.SyclQueue(dpctl.SyclContext([d]), d)]


def test_repeated_imports(device, dpctl, contexts, separate):
    """Every form of syclobj, any part of the span, each with its own queue and layout. Another span and another context are
    looked up."""
    q = contexts[0]
    m = dpctl.memory.MemoryUSMShared(64, queue=q)
    h = Holder(m, syclobj=q, shape=(16,))
    first = ub.from_usm_array_interface(h)
    in_order = dpctl.SyclQueue(device.filter_string, property="in_order")
    for syclobj, named in ((q, q), (in_order, in_order), (q.sycl_context, None), (device.filter_string, None), (q._get_capsule(), None)):
        h.show(m, syclobj=syclobj, shape=(3, 4), typestr="<f4", strides=(4, 1), offset=2)
        a = ub.from_usm_array_interface(h)
        assert a._pointer == m._pointer + 8 and a.shape == (3, 4) and a.usm_type == "shared" and not a.readonly
        assert named is None or a.sycl_queue is named
    h.show(m, syclobj=q, data=(m._pointer, True))
    assert ub.asarray(h).readonly and not first.readonly
    h.show(m, syclobj=q, shape=(1 << 40,))
    with pytest.raises(ValueError):
        ub.asarray(h)
    for syclobj in (contexts[1], contexts[1].sycl_context, contexts[1]._get_capsule()) if separate else ():
        h.show(m, syclobj=syclobj)
        with pytest.raises(ValueError, match="syclobj"):
            ub.asarray(h)
    assert first.nbytes == 16


def test_freed_and_allocated_again_in_another_context(device, dpctl, contexts, separate):
    """The owner frees its memory although an Array holds it, and shows other memory at the same address."""
    same = 0
    for size in (64, 4096, 1 << 20):
        for _ in range(10):
            for kind in (dpctl.memory.MemoryUSMShared, dpctl.memory.MemoryUSMDevice):
                h = Holder(kind(size, queue=contexts[0]), syclobj=contexts[0])
                first = ub.asarray(h)
                address = first._pointer
                h.memory = None
                del h.__sycl_usm_array_interface__
                gc.collect()
                again = kind(size, queue=contexts[1])
                h.show(again, syclobj=contexts[1])
                same += again._pointer == address
                b = ub.asarray(h)
                assert b._pointer == again._pointer and b.sycl_context == contexts[1].sycl_context
                # In the former context the pointer is not USM, and is refused again.
                h.show(again, syclobj=contexts[0])
                if again._pointer != address and separate:
                    with pytest.raises(ValueError, match="syclobj"):
                        ub.asarray(h)
                del first, b, again, h
    if not same:
        pytest.skip("the allocator gave no address again: only what differs was tried")


def test_another_owner_at_the_same_address(device, dpctl, contexts):
    """Python reuses the address of a freed owner for the next object."""
    for i in range(300):
        m = dpctl.memory.MemoryUSMShared(64, queue=contexts[i % 2])
        h = Holder(m, syclobj=contexts[i % 2])
        a = ub.asarray(h)
        assert a._pointer == m._pointer and a.sycl_context == contexts[i % 2].sycl_context
        del a, h, m


def test_memory_objects(device, dpctl, contexts):
    """dpctl.memory's own objects, without their dictionary; subclasses with it."""
    for q in contexts:
        for kind in (dpctl.memory.MemoryUSMShared, dpctl.memory.MemoryUSMDevice, dpctl.memory.MemoryUSMHost):
            m = kind(48, queue=q)
            for f in (ub.asarray, ub.from_usm_array_interface):
                a, b = f(m), f(m)
                for x in (a, b):
                    assert x._pointer == m._pointer and x.shape == (48,) and x.dtype == "uint8" and not x.readonly
                    assert x.usm_type == m.get_usm_type() and x.sycl_queue is m.sycl_queue

    class Mine(dpctl.memory.MemoryUSMShared):
        @property
        def __sycl_usm_array_interface__(self):
            return dict(super().__sycl_usm_array_interface__, shape=(8,))

    assert ub.asarray(Mine(48)).shape == (8,)


# ---- exceptions that must end the call ----


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_exceptions_that_must_end_the_call(np, dpt, pyarrow, error):
    """An import that asks an object for more than its memory, or tries another protocol, does not swallow Ctrl-C."""

    def fail(self, *args, **keywords):
        raise error

    def copies(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("Unable to avoid copy")
        return np.zeros(1)

    x, v = dpt.ones(4, dtype="f4"), pyarrow.array([1])
    dictionary = {"__sycl_usm_array_interface__": x.__sycl_usm_array_interface__}
    tensor = {"__dlpack__": lambda self, **kw: x.__dlpack__(**kw), "__dlpack_device__": lambda self: x.__dlpack_device__()}
    arrow = {"__arrow_c_array__": lambda self, schema=None: v.__arrow_c_array__(schema)}
    for right, wrong in (
        (dictionary, {"usm_data": property(fail)}), (tensor, {"sycl_queue": property(fail)}),
        ({}, {"__array__": lambda self, dtype=None, copy=None: fail(self) if copy is False else np.zeros(1)}),
        ({**arrow, "__array__": copies}, {"__array__": fail}), ({**arrow, "__array__": copies}, {"__arrow_c_array__": fail}),
    ):
        named = {"__module__": "dpctl.made", **right}
        for copy in (None, False):
            with pytest.raises(error):
                ub.asarray(type("usm_ndarray", (), named | wrong)(), copy=copy)
        assert not right or ub.asarray(type("usm_ndarray", (), named)()).size


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_questions_that_must_end_the_call(error):
    """A metaclass runs code at each look at the class, and a tensor's flags are methods: any other answer is allowed there."""

    class Meta(type):
        def __getattribute__(cls, name):
            if name in raising:
                raise error
            return super().__getattribute__(name)

    class Strange(metaclass=Meta):
        pass

    a = ub.ones(2, device="host")
    for name, use in (("__array_priority__", lambda: a + Strange()), ("__array_ufunc__", lambda: a == Strange()), ("__dlpack__", lambda: Strange() in a),
                      ("__module__", lambda: ub.from_dlpack(Strange())), ("__module__", lambda: ub.DType("int8") == Strange)):
        raising = [name]
        with pytest.raises(error):
            use()

    def fail(self):
        raise error

    for flag in ("is_neg", "is_conj", "requires_grad"):
        cls = capi.exchanging(capi.Producer(), __dlpack__=None, **{flag: property(fail) if flag == "requires_grad" else fail})
        with capi.as_torch(cls):
            for o in (cls(), type("Sub", (cls,), {})()) if flag == "is_neg" else (cls(),):
                for take in (ub.from_dlpack, ub.asarray, ub.cute.from_dlpack):
                    with pytest.raises(error):
                        take(o)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a class of Python has a buffer from Python 3.12 on")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_buffers_of_numbers_that_must_end_the_call(error):
    class Number:
        def __float__(self):
            return 1.0

        def __buffer__(self, flags):
            raise error

    with pytest.raises(error):
        ub.asarray(Number())


@pytest.mark.parametrize("take", [ub.asarray, ub.from_usm_array_interface])
@pytest.mark.parametrize("owner", ["dictionary", "same object", "memory", "dpnp"])
def test_each_import_keeps_its_owner(device, dpctl, dpnp, take, owner):
    """A dictionary can claim memory of others, who then still own it."""
    blocks = sorted((dpctl.memory.MemoryUSMShared(64) for _ in range(20)), key=lambda b: b._pointer)
    first, second = min(zip(blocks, blocks[1:]), key=lambda p: p[1]._pointer - p[0]._pointer)
    del blocks
    wide = Holder(first)
    wide.show(first, data=(first._pointer, False), typestr="|u1", typedescr=Ellipsis, shape=(second._pointer + 64 - first._pointer,), strides=None, offset=0)
    try:
        claim = take(wide)
    except ValueError:
        pytest.skip("the runtime finds the end of the first block")
    references = sys.getrefcount(second)
    if owner == "dictionary":
        o = Holder(second, typestr="|u1", typedescr=Ellipsis, shape=(64,), strides=None)
    elif owner == "same object":
        o = wide
        o.show(second, typestr="|u1", typedescr=Ellipsis, shape=(64,), strides=None, owner=second)  # a dictionary can keep it
    elif owner == "memory":
        o = second
    else:
        o = dpnp.tensor.usm_ndarray((64,), dtype="u1", buffer=second)
    a = take(o)
    wide.__dict__.clear()
    del o
    assert sys.getrefcount(second) > references and a.tolist() == claim[-64:].tolist()


# What can be done with an Array that an import accepted.
USES = {
    "repr": repr, "tolist": lambda a: a.tolist(), "copy": lambda a: a.copy(), "asnumpy": lambda a: a.asnumpy(), "to_device": lambda a: a.to_device("host"),
    "astype": lambda a: a.astype("complex128"), "tobytes": lambda a: a.tobytes(), "reversed": lambda a: a[::-1].copy(), "as_readonly": lambda a: repr(a.as_readonly()),
    "flags": lambda a: (a.flags, a.base, a.nbytes), "asarray": lambda a: repr(ub.asarray(a, copy=True)), "again": lambda a: repr(ub.asarray(Holder(a, data=(a._pointer, a.readonly)))),
    "pickle": lambda a: pickle.loads(pickle.dumps(a)), "float": lambda a: a.size == 1 and complex(a[0]), "add": lambda a: repr(a + a), "equal": lambda a: repr(a == a),
    "fill": lambda a: a.readonly or a.fill(1), "assign": lambda a: a.readonly or a.__setitem__(..., a), "in place": lambda a: a.readonly or operator.iadd(a, a),
}


def test_accepted_arrays_work(device, dpctl, dpnp):
    """Any dictionary over one block, beside Arrays that other dictionaries over it made: every use has the elements, or the import is refused."""
    if device.backend == "cuda":
        pytest.skip("dpnp's wheels have no kernels for CUDA")
    hypothesis, given = peer("hypothesis"), peer("hypothesis.strategies")
    np = peer("numpy")
    one = given.tuples(given.sampled_from(["|u1", "<i2", "<f4", "<f8", "<c16"]), given.integers(0, 70), given.sampled_from([0, 1, 1, 2, 3, 100]), given.sampled_from([1, 1, 2, 3, -1, 125]),
                       given.integers(0, 3), given.booleans(), given.booleans())

    @hypothesis.settings(max_examples=150)
    @hypothesis.given(given.lists(one, min_size=1, max_size=4), given.sampled_from(["dictionary", "array"]))
    def check(dictionaries, owner):
        block = dpctl.memory.MemoryUSMShared(512)
        values = np.asarray(block)
        values[:] = np.arange(512) % 7
        base = block if owner == "dictionary" else ub.asarray(block)
        holder, alive = Holder(base), []
        for typestr, at, n, step, offset, readonly, same in dictionaries:
            h = holder if same else Holder(base)
            h.show(base, data=(base._pointer + at, readonly), typestr=typestr, typedescr=Ellipsis, shape=(n,), strides=(step,), offset=offset)
            try:
                a = ub.asarray(h)
            except ValueError as e:
                assert "address" in str(e) or "alloc" in str(e) or "memory" in str(e) or "agree" in str(e), e
                continue
            alive.append(a)
            size = np.dtype(typestr).itemsize
            first = at + offset * size
            index = (first + np.arange(n)[:, None] * step * size + np.arange(size)).ravel()
            if n and (index.min() < 0 or index.max() >= 512):
                continue  # outside the block: the owner is not known, and the bytes are those of an adjacent one
            values[:] = np.arange(512) % 7
            want = values[index].view(typestr)
            for name, use in USES.items():
                try:
                    use(a)
                except Exception as e:
                    raise AssertionError(f"{name}: {e!r}") from e
                found = a.asnumpy()  # waits for the work
                assert name in ("fill", "assign", "in place") or found.tobytes() == want.tobytes()
                values[:] = np.arange(512) % 7

    check()


def test_no_elements_use_no_address(device, dpnp, np):
    if device.backend == "cuda":
        pytest.skip("dpnp's wheels have no kernels for CUDA")
    for shape, offset in (((2, 3), -5), ((3, 0), 2), ((2, 3), 5), ((4, 2, 3), 7), ((4, 2, 3), -7)):
        x = dpnp.ones(shape)
        want = np.diagonal(np.ones(shape), offset, -2, -1).shape
        for make in (lambda: ub.asarray(dpnp.diagonal(x, offset, -2, -1)), lambda: ub.from_dlpack(dpnp.diagonal(x, offset, -2, -1)),
                     lambda: ub.array_api.linalg.diagonal(ub.asarray(x), offset=offset), lambda: ub.asarray(x).diagonal(offset, -2, -1)):
            a = make()
            assert a.shape == want and a.size == 0 and a.tolist() == a.copy().tolist() == np.zeros(want).tolist() and repr(a)
            assert (a + 1).shape == want and ub.asarray(Holder(a)).shape == want
        for place in (dict(device="host"), dict(usm_type="device")):
            assert ub.array_api.linalg.diagonal(ub.zeros(shape, **place), offset=offset).shape == want


@pytest.mark.parametrize("key", ["shape", "strides", "offset"])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 1 << 200])
def test_integers_of_more_than_64_bits(key, number):
    holder = Holder(ub.ones(4), **{key: number if key == "offset" else (number,)})
    for function in (ub.asarray, ub.from_usm_array_interface):
        with pytest.raises(ValueError, match=key):
            function(holder)
