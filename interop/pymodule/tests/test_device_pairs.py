"""All pairs of devices of the process: exchange, placement, copies and refusals. `make test-devices` runs them on
several platforms; elsewhere the devices are those of one platform and the parts of the first that can be divided."""

import itertools
import types

import numpy as np
import pytest

import usmbridge as ub
from conftest import peer, sycl_device

dpctl = peer("dpctl")
memory = peer("dpctl.memory")

KINDS = ("device", "shared", "host")
COUNT = 1000


def queues():
    """Returns one queue for each device that has USM, and one for each of two parts of a device; and two queues for these parts
    in one context. Intel's CPU driver never ends work on one part that depends on an event of the other one in that context."""
    found = [dpctl.SyclQueue(d) for d in dpctl.get_devices() if d.has_aspect_usm_device_allocations]
    for queue in found:
        try:
            parts = queue.sycl_device.create_sub_devices(partition=1)[:2]
        except dpctl.SyclSubDeviceCreationError:
            continue
        context = dpctl.SyclContext(parts)
        return found + [dpctl.SyclQueue(part) for part in parts], [dpctl.SyclQueue(context, part) for part in parts]
    return found, []


APART, TOGETHER = queues()
QUEUES = APART + TOGETHER
NUMBERS = range(len(QUEUES))
PAIRS = list(itertools.product(range(len(APART)), repeat=2))
ROUNDS = itertools.count(1)


def values():
    """Returns values that differ each time, because recycled memory hides stale reads."""
    return np.arange(COUNT, dtype="i4") * next(ROUNDS)


def new(queue, kind, of):
    a = ub.empty(of.shape, dtype=of.dtype, usm_type=kind, sycl_queue=queue)
    a[...] = of
    return a


def host(a):
    return ub.asarray(a, device="host").asnumpy()


def pointer(a):
    return a.__sycl_usm_array_interface__["data"][0]


def root(device):
    while device.parent_device is not None:
        device = device.parent_device
    return device


def is_root(queue):
    return queue.sycl_device.parent_device is None


def dictionary(array, syclobj):
    """Returns an object with the dictionary of an array and another syclobj."""
    return types.SimpleNamespace(owner=array, __sycl_usm_array_interface__=array.__sycl_usm_array_interface__ | {"syclobj": syclobj})


def skip_if_the_driver_errs(array, queue):
    """PoCL names the first device of a context as the device of each pointer in it."""
    if memory.as_usm_memory(dictionary(array, queue.sycl_context)).sycl_device != queue.sycl_device:
        pytest.skip("the driver reports another device for the pointer")


def test_there_is_a_device():
    """Without one, the tests below have no parameters and would be skipped."""
    sycl_device()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", NUMBERS)
def test_dictionary(number, kind):
    queue, expected = QUEUES[number], values()
    a = new(queue, kind, expected)
    assert a.sycl_device == queue.sycl_device and a.usm_type == kind
    for form in (queue.sycl_context, queue.sycl_context._get_capsule()):
        assert ub.zeros(3, usm_type=kind, sycl_queue=form).sycl_context == queue.sycl_context
    m = memory.as_usm_memory(a)
    assert (m.sycl_device, m.get_usm_type(), m._pointer) == (queue.sycl_device, kind, pointer(a))
    if kind != "host":
        skip_if_the_driver_errs(a, queue)
    forms = [queue, queue._get_capsule()]
    forms += [queue.sycl_context, queue.sycl_context._get_capsule()] if kind != "host" else []
    forms += [queue.sycl_device.filter_string] if is_root(queue) else []
    forms += [type("Provider", (), {"_get_capsule": lambda self, form=form: form._get_capsule()})() for form in forms if hasattr(form, "_get_capsule")]
    for form in forms:
        b = ub.asarray(dictionary(a, form))
        assert pointer(b) == pointer(a) and b.usm_type == kind, form
        assert b.sycl_device == queue.sycl_device, form
        assert (host(b) == expected).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", NUMBERS)
def test_dlpack(number, kind):
    queue, expected = QUEUES[number], values()
    a = new(queue, kind, expected)
    identity = (14, dpctl.get_devices().index(root(queue.sycl_device)))
    assert a.__dlpack_device__() == identity
    if queue.sycl_context != root(queue.sycl_device).sycl_platform.default_context:
        with pytest.raises(BufferError, match="default context"):
            a.__dlpack__()
        b = ub.from_dlpack(a.__dlpack__(copy=True, max_version=(1, 0)))
        assert b.__dlpack_device__() == identity and b.usm_type == kind and (host(b) == expected).all()
        return
    b = ub.from_dlpack(a)
    assert pointer(b) == pointer(a) and b.usm_type == kind and (host(b) == expected).all()
    assert root(b.sycl_device) == root(queue.sycl_device)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", PAIRS)
def test_copies(pair, kind):
    source, target = (QUEUES[n] for n in pair)
    expected = values()
    a = new(source, kind, expected)
    b = a.to_device(target)
    assert b.sycl_device == target.sycl_device and (host(b) == expected).all()
    for view in (np.s_[::3], np.s_[::-1], np.s_[5:900:7]):
        c = new(target, kind, np.zeros(COUNT, "i4"))
        c[view] = a[view]
        zeros = np.zeros(COUNT, "i4")
        zeros[view] = expected[view]
        assert (host(c) == zeros).all()
    d = ub.asarray(a, device=target, copy=True)
    a[...] = 0
    assert (host(d) == expected).all() and d.sycl_device == target.sycl_device


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [p for p in PAIRS if p[0] != p[1]])
def test_refusals(pair, kind):
    source, target = (QUEUES[n] for n in pair)
    expected = values()
    a = new(source, kind, expected)
    if source.sycl_context == target.sycl_context:
        return  # the memory can be used on both devices
    with pytest.raises((ValueError, BufferError)):
        ub.asarray(a, device=target, copy=False)
    if source.backend != target.backend:
        # Contexts of one CUDA device share its memory; those of different backends do not.
        with pytest.raises(ValueError, match="syclobj|context"):
            ub.asarray(dictionary(a, target))
    if is_root(target) and is_root(source):
        identity = (14, dpctl.get_devices().index(target.sycl_device))
        with pytest.raises(BufferError):
            a.__dlpack__(dl_device=identity, copy=False)
        b = ub.from_dlpack(a, device=target.sycl_device)
        assert b.sycl_device == target.sycl_device and (host(b) == expected).all()
    assert (host(a) == expected).all()


@pytest.mark.parametrize("number", NUMBERS)
def test_lists_of_devices_agree(number):
    if is_root(QUEUES[number]):
        device = QUEUES[number].sycl_device
        ours = [d for d in ub.devices() if d.filter_string == device.filter_string]
        assert len(ours) == 1 and ours[0].dlpack_device == (14, dpctl.get_devices().index(device))
        assert (ours[0].name, ours[0].global_mem_size) == (device.name, device.global_mem_size) and len(ub.devices()) == len(dpctl.get_devices()) + 1
