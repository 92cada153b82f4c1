"""device=, to_device and stream= in all forms that name a device or a queue."""

import pytest

import usmbridge as ub
from test_queues import KINDS, kept_queue, syclobj


def forms(device, dpctl, dpt):
    """Returns pairs of an argument and the queue that it names, or None."""
    d = dpctl.SyclDevice(device.filter_string)
    q = dpctl.SyclQueue(d, property="in_order")
    return [
        (device.filter_string, None),
        (device.filter_string.split(":")[1], None),
        (device, None),
        (d, None),
        (q, q),
        (kept_queue(dpctl, device), kept_queue(dpctl, device)),
        (dpt.empty(1).device, kept_queue(dpctl, device)),
        (dpt.empty(1, sycl_queue=q).device, q),
        (ub.empty(1).sycl_queue, kept_queue(dpctl, device)),
    ]


def test_new_arrays(device, np, dpctl, dpt):
    for form, queue in forms(device, dpctl, dpt):
        for make in (
            lambda: ub.empty(3, device=form),
            lambda: ub.zeros(3, device=form, usm_type="shared"),
            lambda: ub.ones(3, device=form),
            lambda: ub.full(3, 7, device=form),
            lambda: ub.zeros_like(ub.empty(3, device="host"), device=form),
            lambda: ub.asarray([1, 2, 3], device=form),
            lambda: ub.asarray(np.arange(3), device=form),
            lambda: ub.from_dlpack(np.arange(3), device=form),
            lambda: ub.empty(3, device="host").to_device(form),
        ):
            a = make()
            assert a.device == device and a.usm_type in KINDS
            assert a.sycl_queue is (queue or kept_queue(dpctl, device)) and syclobj(a) is a.sycl_queue
            assert a.asnumpy().shape == (3,)


def test_memory_on_the_device_is_not_copied(device, np, dpctl, dpt):
    """Nothing is copied; a queue that was given is the array's queue afterwards."""
    for kind in KINDS:
        a = ub.asarray(np.arange(4.0), usm_type=kind)
        for form, queue in forms(device, dpctl, dpt):
            for b in (a.to_device(form), ub.asarray(a, device=form), ub.asarray(a, device=form, copy=False), ub.from_dlpack(a, device=form)):
                assert b._pointer == a._pointer and b.usm_type == kind
                assert b.sycl_queue is (queue or a.sycl_queue)
            b = ub.asarray(a, device=form, copy=True)
            assert b._pointer != a._pointer and b.asnumpy().tolist() == [0, 1, 2, 3]
            assert b.sycl_queue is (queue or a.sycl_queue)
        assert a.to_device(a.sycl_queue) is a and a.to_device(device) is a


def test_another_context(device, np, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    q = dpctl.SyclQueue(dpctl.SyclContext([d]), d)
    a = ub.asarray(np.arange(4.0), usm_type="shared")
    b = a.to_device(q)
    assert b._pointer != a._pointer and b.sycl_queue is q and b.sycl_context == q.sycl_context and b.usm_type == "shared"
    assert b.asnumpy().tolist() == [0, 1, 2, 3] and b.to_device(device).sycl_context == a.sycl_context
    with pytest.raises((ValueError, BufferError), match="copy=False"):
        ub.asarray(a, device=q, copy=False)
    with pytest.raises(BufferError, match="copy=False"):
        ub.from_dlpack(a, device=q, copy=False)


def test_streams(device, np, dpctl, dpt):
    a = ub.zeros(4, usm_type="shared")
    for form, _ in forms(device, dpctl, dpt):
        assert ub.from_dlpack(a.__dlpack__(stream=form, max_version=(1, 3)))._pointer == a._pointer
        assert a.to_device("host", stream=form).usm_type is None
        assert ub.empty(3, device="host").__dlpack__(stream=form)


def test_named_queues_are_waited_for_when_another_is_asked_for(device, np, dpctl, dpt):
    q1 = dpctl.SyclQueue(device.filter_string, property="in_order")
    q2 = dpctl.SyclQueue(device.filter_string, property="in_order")
    for _ in range(5):
        a = ub.zeros(1 << 20, "float64", usm_type="shared", sycl_queue=q1)
        t = dpt.asarray(a)
        dpt.add(t, 3, out=t)
        assert (np.asarray(memoryview(a.to_device(q2))) == 3).all()


def test_objects_that_name_no_device(device, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    calls = (
        lambda x: ub.empty(3, device=x),
        lambda x: ub.asarray([1], device=x),
        lambda x: ub.from_dlpack(ub.empty(3), device=x),
        lambda x: ub.empty(3).to_device(x),
        lambda x: ub.empty(3).to_device("host", stream=x),
    )
    for call in calls:
        for wrong in (7, b"cpu", 1.5, object(), d.default_context if hasattr(d, "default_context") else dpctl.SyclContext(d), ub.empty(1), [device]):
            with pytest.raises(TypeError, match="SyclDevice"):
                call(wrong)
    for call in calls[:4]:
        with pytest.raises(ValueError):
            call("no:such:9")
    with pytest.raises(ValueError, match="not both"):
        ub.empty(3, device=d, sycl_queue=dpctl.SyclQueue(d))
    try:
        part = d.create_sub_devices(partition=1)[0]
    except dpctl.SyclSubDeviceCreationError:
        return
    for call in calls:
        with pytest.raises(ValueError, match="give a SyclQueue"):
            call(part)


def test_devices_that_fail(device):
    """An exception of a peer's device passes; its result is checked."""

    class SyclDevice:
        @property
        def filter_string(self):
            return self.say()

    SyclDevice.__module__, SyclDevice.__qualname__ = "dpctl._sycl_device", "SyclDevice"
    x = SyclDevice()
    x.say = lambda: 7
    with pytest.raises(ValueError, match="filter string"):
        ub.empty(3, device=x)
    x.say = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        ub.empty(3, device=x)

    class Device:
        sycl_queue = 3

    Device.__module__, Device.__qualname__ = "dpnp.tensor._device", "Device"
    with pytest.raises(TypeError):
        ub.empty(3, device=Device())
