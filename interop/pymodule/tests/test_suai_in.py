"""Import by __sycl_usm_array_interface__: forms, owners, errors."""

import gc
import sys

import pytest

import capi
import usmbridge as ub


class Holder:
    """An object with a dictionary that keeps its memory alive."""

    def __init__(self, memory, **changes):
        self.memory = memory
        d = dict(memory.__sycl_usm_array_interface__)
        d.update(changes)
        self.__sycl_usm_array_interface__ = {k: v for k, v in d.items() if v is not Ellipsis}


@pytest.fixture
def memory(dpctl):
    return dpctl.memory.MemoryUSMShared(256)


class Provider:
    def __init__(self, x):
        self.x = x

    def _get_capsule(self):
        return self.x._get_capsule() if hasattr(self.x, "_get_capsule") else self.x


def test_six_forms(memory, dpctl, device):
    q = dpctl.SyclQueue(device.filter_string)
    forms = [q, q.sycl_context, device.filter_string, q._get_capsule(), q.sycl_context._get_capsule(), Provider(q), Provider(q.sycl_context)]
    for form in forms:
        a = ub.from_usm_array_interface(Holder(memory, syclobj=form))
        assert (a._pointer, a.shape, a.dtype, a.usm_type, a.device) == (memory._pointer, (256,), "uint8", "shared", device)
        b = ub.empty(3, sycl_queue=form if not str(type(form)).count("PyCapsule") else q._get_capsule())
        assert b.device == device


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
    assert ub.from_usm_array_interface(Holder(memory, data=(memory._pointer, True))).readonly
    assert not ub.from_usm_array_interface(Holder(memory, data=(memory._pointer, False))).readonly
    x = dpt.ones(4)
    assert not ub.from_usm_array_interface(x).readonly
    x.flags.writable = False
    assert ub.from_usm_array_interface(x).readonly
    # oneDAL's tables write a list and mean mutable by True
    table = type("homogen_table", (), {"__module__": "onedal._onedal_py_dpc"})()
    table.__sycl_usm_array_interface__ = dict(memory.__sycl_usm_array_interface__, data=[memory._pointer, True])
    assert not ub.from_usm_array_interface(table).readonly


def test_types(memory):
    for typestr, dtype in [("<f4", "float32"), ("|i4", "int32"), ("|f8", "float64"), ("=i2", "int16"), ("|b1", "bool"),
                           ("<c8", "complex64"), ("|c16", "complex128"), ("<f2", "float16"), ("<u1", "uint8"), ("=b1", "bool"), ("<u8", "uint64")]:
        a = ub.from_usm_array_interface(Holder(memory, typestr=typestr, shape=(2, 2)))
        assert a.dtype == dtype and a.__sycl_usm_array_interface__["typestr"][0] == ("|" if a.itemsize == 1 else "<")


def test_layouts(memory, np):
    h = lambda **kw: ub.from_usm_array_interface(Holder(memory, typestr="<i4", **kw))
    p = memory._pointer
    a = h(shape=(4, 3), strides=(-3, 1), offset=9)
    assert a._pointer == p + 36 and a.strides == (-3, 1)
    a = h(shape=(2, 3), strides=(0, 1))
    assert a.strides == (0, 1)
    a = h(shape=(1, 3), strides=(1000, 1))
    assert a.strides == (1000, 1)
    a = h(shape=(2, 3), offset=5)
    assert a._pointer == p + 20 and a.strides == (3, 1)
    a = h(shape=(0, 3))
    assert a.size == 0 and a._pointer == p
    a = h(shape=())
    assert a.shape == ()
    a = h(shape=[2, np.int64(3)], strides=[3, 1], typedescr=[("", "<i4")], extra="ignored")
    assert a.shape == (2, 3)
    a = h(shape=(2, 3), strides=..., offset=..., typedescr=...)
    assert a.strides == (3, 1)


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
    assert sys.getrefcount(y) == n - 1
    with pytest.raises(ValueError):
        sub.__sycl_usm_array_interface__ = dict(d, shape=(9,))  # beyond the buffer
        ub.from_usm_array_interface(y)


def test_owner_is_kept(memory):
    h = Holder(memory, data=(memory._pointer, False))
    n = sys.getrefcount(h)
    a = ub.from_usm_array_interface(h)
    v = a[10:]
    c = v.__dlpack__()
    assert sys.getrefcount(h) == n + 1
    del a, v
    assert sys.getrefcount(h) == n + 1
    del c
    gc.collect()
    assert ub.from_dlpack(ub.from_usm_array_interface(h))._pointer == memory._pointer  # an entry releases deferred owners
    assert sys.getrefcount(h) == n


WILD = 0x123456789000


@pytest.mark.parametrize("changes, error, match", [
    # each key missing
    (dict(version=...), ValueError, "version"), (dict(data=...), ValueError, "data"), (dict(shape=...), ValueError, "shape"),
    (dict(typestr=...), ValueError, "typestr"), (dict(syclobj=...), ValueError, "syclobj"),
    (dict(data=None), ValueError, "data"), (dict(shape=None), ValueError, "shape"), (dict(syclobj=None), ValueError, "syclobj"),
    # version
    (dict(version=2), ValueError, "version"), (dict(version=0), ValueError, "version"), (dict(version=-1), ValueError, "version"),
    (dict(version=1 << 80), ValueError, "version"), (dict(version="1"), TypeError, "version"), (dict(version=1.0), TypeError, "version"),
    (dict(version=None), TypeError, "version"),
    # data
    (dict(data=5), TypeError, "data"), (dict(data="12"), TypeError, "data"), (dict(data={}), TypeError, "data"),
    (dict(data=()), ValueError, "data"), (dict(data=(1,)), ValueError, "data"), (dict(data=(1, False, 2)), ValueError, "data"),
    (dict(data=("1", False)), TypeError, "data"), (dict(data=(1.5, False)), TypeError, "data"),
    (dict(data=(-8, False)), OverflowError, "data"), (dict(data=(1 << 64, False)), OverflowError, "data"),
    (dict(data=(0, False)), ValueError, "null"), (dict(data=(0, False), shape=(0,)), ValueError, "null"),
    (dict(data=(WILD, False)), ValueError, "unified shared memory|allocation"), (dict(data=((1 << 64) - 4, False)), ValueError, "data|address"),
    # shape
    (dict(shape=5), TypeError, "shape"), (dict(shape="5"), TypeError, "shape"), (dict(shape=(1.5,)), TypeError, "shape"),
    (dict(shape=("5",)), TypeError, "shape"), (dict(shape=(-1,)), ValueError, "shape"), (dict(shape=(1 << 64,)), OverflowError, None),
    (dict(shape=(1 << 62, 8)), ValueError, "shape"), (dict(shape=(1 << 33, 1 << 33)), ValueError, "shape"),
    (dict(shape=(1,) * 65), ValueError, "shape"),
    # typestr
    (dict(typestr=4), TypeError, "typestr"), (dict(typestr=b"<f4"), TypeError, "typestr"), (dict(typestr=""), ValueError, "typestr"),
    (dict(typestr=">f4"), ValueError, "typestr"), (dict(typestr="|O8"), ValueError, "typestr"), (dict(typestr="|V4"), ValueError, "typestr"),
    (dict(typestr="<U4"), ValueError, "typestr"), (dict(typestr="|S4"), ValueError, "typestr"), (dict(typestr="<M8"), ValueError, "typestr"),
    (dict(typestr="<m8"), ValueError, "typestr"), (dict(typestr="<f3"), ValueError, "typestr"), (dict(typestr="<f16"), ValueError, "typestr"),
    (dict(typestr="f4"), ValueError, "typestr"), (dict(typestr="<x4"), ValueError, "typestr"), (dict(typestr="float32"), ValueError, "typestr"),
    # typedescr
    (dict(typedescr="x"), TypeError, "typedescr"), (dict(typedescr=[5]), TypeError, "typedescr"), (dict(typedescr=[("x",)]), TypeError, "typedescr"),
    (dict(typedescr=[("a", "|u1"), ("b", "|u1")]), ValueError, "structured"), (dict(typedescr=[("", "<f8")]), ValueError, "typedescr"),
    (dict(typedescr=[("a", [("b", "|u1")])]), ValueError, "structured"), (dict(typedescr=[("", "|u1", (2,))]), ValueError, "structured"),
    # strides and offset
    (dict(strides=5), TypeError, "strides"), (dict(strides=(1, 1)), ValueError, "strides"), (dict(strides=(1.0,)), TypeError, "strides"),
    (dict(strides="1"), TypeError, "strides"), (dict(strides=(1 << 62,)), ValueError, None), (dict(strides=(-1,)), ValueError, "allocation"),
    (dict(strides=(2,)), ValueError, "allocation"), (dict(offset="1"), TypeError, "offset"), (dict(offset=1.5), TypeError, "offset"),
    (dict(offset=1), ValueError, "allocation"), (dict(offset=-1), ValueError, "allocation"), (dict(offset=1 << 62), ValueError, None),
    # overruns
    (dict(shape=(257,)), ValueError, "allocation"), (dict(shape=(1 << 22,)), ValueError, "allocation"), (dict(shape=(33,), typestr="<f8"), ValueError, "allocation"),
    # syclobj
    (dict(syclobj=5), TypeError, "syclobj"), (dict(syclobj=object()), TypeError, "syclobj"), (dict(syclobj=Provider(5)), TypeError, "capsule"),
    (dict(syclobj=Provider(None)), TypeError, "capsule"), (dict(syclobj="no:such:thing"), ValueError, None), (dict(syclobj="gpu:77"), ValueError, None),
    (dict(syclobj="host"), ValueError, "host"), (dict(syclobj=""), ValueError, None), (dict(syclobj=capi.py.PyCapsule_New(4096, capi.LEGACY, None)), ValueError, "dltensor"),
])
def test_malformed(memory, device, changes, error, match):
    class Known(type(memory)):  # a subclass of dpctl's memory, whose size is known
        __sycl_usm_array_interface__ = None

    Known.__module__, Known.__qualname__ = "dpctl.memory._memory", "MemoryUSMShared"
    m = Known(memory)
    d = dict(memory.__sycl_usm_array_interface__, **changes)
    Known.__sycl_usm_array_interface__ = {k: v for k, v in d.items() if v is not Ellipsis}
    if "data" in changes and changes["data"] in (..., None):
        m = Holder(memory, **changes)  # an owner without a buffer
    with pytest.raises(error, match=match):
        ub.from_usm_array_interface(m)


def test_pointers_that_are_not_usm(memory, dpctl, device, np, separate):
    x = np.zeros(64)
    q = dpctl.SyclQueue(device.filter_string)
    # dpctl ends the process if a context has ordinary memory
    for syclobj in (q, q.sycl_context, device.filter_string, q._get_capsule(), q.sycl_context._get_capsule(), Provider(q)):
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


def test_overrun_of_an_unknown_owner(dpctl):
    m = dpctl.memory.MemoryUSMDevice(4096)
    with pytest.raises(ValueError, match="last byte|span|beyond|unified"):
        ub.from_usm_array_interface(Holder(m, shape=(1 << 24,)))
    with pytest.raises(ValueError):
        ub.from_usm_array_interface(Holder(m, shape=(8,), strides=(-(1 << 20),)))


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


def test_failures_keep_no_reference(memory):
    h = Holder(memory, shape=(-1,))
    n = sys.getrefcount(h)
    for _ in range(3):
        with pytest.raises(ValueError):
            ub.from_usm_array_interface(h)
    gc.collect()
    assert sys.getrefcount(h) == n


def test_versions_of_any_size(memory):
    for version in (10**30, -(10**30), 2**64 + 1, 0, -1):
        with pytest.raises(ValueError, match="version") as e:
            ub.from_usm_array_interface(Holder(memory, shape=(2,), typestr="<f4", version=version))
        assert version == -1 or "found -1" not in str(e.value)


@pytest.mark.parametrize("typestr", ["\0f4", "\0\0\0", "f4", "!f4", " f4"])
def test_a_byte_order_is_one_of_three(memory, typestr):
    with pytest.raises(ValueError, match="typestr"):
        ub.from_usm_array_interface(Holder(memory, shape=(2,), typestr=typestr))


def test_spans_as_wide_as_the_address_space(memory, device):
    """The distance from the first element to the last byte exceeds a signed number."""
    for syclobj in (memory.sycl_queue, device.filter_string):
        with pytest.raises(ValueError, match="span|address"):
            ub.from_usm_array_interface(Holder(memory, data=(1 << 63, False), shape=(2,), strides=((1 << 63) - 1,),
                                               offset=-(1 << 62), typestr="|i1", syclobj=syclobj))


@pytest.mark.parametrize("integer", ["int8", "int64", "uint64"])
def test_integers_of_numpy_as_version_and_address(memory, np, integer):
    """Each integer of a dictionary may be any object with __index__, as the entries of the shape may."""
    address = np.uint64(memory._pointer)
    x = ub.from_usm_array_interface(
        Holder(memory, shape=(2,), typestr="<f4", version=getattr(np, integer)(1), data=(address, False))
    )
    assert x.__sycl_usm_array_interface__["data"][0] == memory._pointer


def test_an_index_that_fails_is_reported(memory):
    class Bad:
        def __index__(self):
            raise ZeroDivisionError("bad")

    for change in (dict(version=Bad()), dict(data=(Bad(), False))):
        with pytest.raises(ZeroDivisionError):
            ub.from_usm_array_interface(Holder(memory, **{**dict(shape=(2,), typestr="<f4", version=1), **change}))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_exceptions_that_must_end_the_call(dpt, error):
    """An import that asks a tensor for its memory or its queue does not swallow Ctrl-C."""

    class usm_ndarray:
        __module__, __qualname__ = "dpctl.made", "usm_ndarray"

        def __init__(self, attribute, protocol):
            self.attribute, self.x = attribute, dpt.ones(4, dtype="f4")
            if protocol == "dictionary":
                self.__sycl_usm_array_interface__ = self.x.__sycl_usm_array_interface__

        def __getattr__(self, name):
            if name == self.attribute:
                raise error
            if name == "__sycl_usm_array_interface__":
                raise AttributeError(name)
            return getattr(self.x, name)

    for attribute, protocol in (("usm_data", "dictionary"), ("sycl_queue", "DLPack")):
        with pytest.raises(error):
            ub.asarray(usm_ndarray(attribute, protocol))
        ub.asarray(usm_ndarray("another", protocol))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_views_that_must_end_the_call(np, error):
    """The failure of __array__(copy=False) is not a reason to copy."""

    class Producer:
        def __array__(self, dtype=None, copy=None):
            if copy is False:
                raise error
            return np.zeros(1)

    with pytest.raises(error):
        ub.asarray(Producer())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_classes_that_must_end_the_call(error):
    """A metaclass runs code at each look at the class, also where any other answer is allowed."""

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
