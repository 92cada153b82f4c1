"""Repeated imports of the memory of one owner: cached facts, and checks that are repeated."""

import gc

import pytest

import usmbridge as ub


class Holder:
    def __init__(self, memory, syclobj, **changes):
        self.show(memory, syclobj, **changes)

    def show(self, memory, syclobj, **changes):
        self.memory = memory
        self.__sycl_usm_array_interface__ = dict(
            memory.__sycl_usm_array_interface__, **{"syclobj": syclobj, "data": (memory._pointer, False), **changes}
        )


@pytest.fixture
def contexts(device, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    return [dpctl.SyclQueue(d), dpctl.SyclQueue(dpctl.SyclContext([d]), d)]


def test_repeated_imports(device, dpctl, contexts):
    """Every form of syclobj, any part of the span, each with its own queue and layout."""
    q = contexts[0]
    m = dpctl.memory.MemoryUSMShared(64, queue=q)
    h = Holder(m, q)
    first = ub.from_usm_array_interface(h)
    assert first.nbytes == 64
    in_order = dpctl.SyclQueue(device.filter_string, property="in_order")
    for syclobj, named in ((q, q), (in_order, in_order), (q.sycl_context, None), (device.filter_string, None), (q._get_capsule(), None)):
        h.show(m, syclobj, shape=(3, 4), typestr="<f4", strides=(4, 1), offset=2)
        a = ub.from_usm_array_interface(h)
        assert a._pointer == m._pointer + 8 and a.shape == (3, 4) and a.usm_type == "shared" and not a.readonly
        assert named is None or a.sycl_queue is named
    h.show(m, q, data=(m._pointer, True))
    assert ub.asarray(h).readonly and not first.readonly


def test_read_only_first(device, dpctl, contexts):
    m = dpctl.memory.MemoryUSMShared(64)
    h = Holder(m, contexts[0], data=(m._pointer, True))
    first = ub.asarray(h)
    h.show(m, contexts[0], data=(m._pointer, False))
    assert first.readonly and not ub.asarray(h).readonly


def test_freed_and_allocated_again_in_another_context(device, dpctl, contexts, separate):
    """The owner frees its memory although an Array holds it, and shows other memory at the same address."""
    same = 0
    for size in (64, 4096, 1 << 20):
        for _ in range(10):
            for kind in (dpctl.memory.MemoryUSMShared, dpctl.memory.MemoryUSMDevice):
                h = Holder(kind(size, queue=contexts[0]), contexts[0])
                first = ub.asarray(h)
                address = first._pointer
                h.memory = None
                del h.__sycl_usm_array_interface__
                gc.collect()
                again = kind(size, queue=contexts[1])
                h.show(again, contexts[1])
                same += again._pointer == address
                b = ub.asarray(h)
                assert b._pointer == again._pointer and b.sycl_context == contexts[1].sycl_context
                # In the former context the pointer is not USM, and is refused again.
                h.show(again, contexts[0])
                if again._pointer != address and separate:
                    with pytest.raises(ValueError, match="syclobj"):
                        ub.asarray(h)
                del first, b, again, h
    if not same:
        pytest.skip("the allocator gave no address again: only what differs was tried")


def test_a_wider_span_is_looked_up(device, dpctl, contexts):
    m = dpctl.memory.MemoryUSMShared(64)
    h = Holder(m, contexts[0], shape=(16,))
    first = ub.asarray(h)
    h.show(m, contexts[0], shape=(1 << 40,))
    with pytest.raises(ValueError):
        ub.asarray(h)
    h.show(m, contexts[0], shape=(64,))
    assert ub.asarray(h).nbytes == 64 and first.nbytes == 16


def test_the_context_is_looked_up_each_time(device, dpctl, contexts, separate):
    if not separate:
        pytest.skip("the contexts of the device share its memory")
    m = dpctl.memory.MemoryUSMShared(64, queue=contexts[0])
    h = Holder(m, contexts[0])
    first = ub.asarray(h)
    for syclobj in (contexts[1], contexts[1].sycl_context, contexts[1]._get_capsule()):
        h.show(m, syclobj)
        with pytest.raises(ValueError, match="syclobj"):
            ub.asarray(h)
    assert first.nbytes == 64


def test_another_owner_at_the_same_address(device, dpctl, contexts):
    """Python reuses the address of a freed owner for the next object."""
    for i in range(300):
        m = dpctl.memory.MemoryUSMShared(64, queue=contexts[i % 2])
        h = Holder(m, contexts[i % 2])
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
