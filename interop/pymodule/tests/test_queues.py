"""The queue that an Array names, and its effects: computing together, sharing, order of work. device=, to_device and stream= in
all forms that name a device or a queue."""

import gc
import sys
import types

import pytest
from conftest import peer, run

import usmbridge as ub

KINDS = ("device", "shared", "host")


def kept_queue(dpctl, device):
    """Returns the queue that dpctl keeps for a root device."""
    manager = peer("dpctl._sycl_queue_manager")
    return manager.get_device_cached_queue(dpctl.SyclDevice(device.filter_string))


def holder(keep, **changes):
    return types.SimpleNamespace(keep=keep, __sycl_usm_array_interface__=dict(keep.__sycl_usm_array_interface__, **changes))


def syclobj(a):
    return a.__sycl_usm_array_interface__["syclobj"]


def test_the_queue_that_dpctl_keeps(device, dpctl):
    """If no queue was given: dpctl's own object for the context and device."""
    kept = kept_queue(dpctl, device)
    for kind in KINDS:
        a = ub.empty((2, 3), usm_type=kind, device=device)
        assert a.sycl_queue is kept and syclobj(a) is kept and a[1:].sycl_queue is kept
        assert a.copy().sycl_queue is kept and a.T.sycl_queue is kept
    assert ub.empty(3, sycl_queue=device.filter_string).sycl_queue is kept
    assert ub.empty(3, sycl_queue=kept.sycl_context).sycl_queue is kept
    m = dpctl.memory.MemoryUSMShared(64)
    assert m.sycl_queue is kept and ub.asarray(m).sycl_queue is kept
    assert ub.asarray(holder(m, syclobj=device.filter_string)).sycl_queue is kept
    assert ub.asarray(holder(m, syclobj=kept.sycl_context)).sycl_queue is kept


def test_the_queue_of_another_context(device, dpctl):
    d = dpctl.SyclDevice(device.filter_string)
    context = dpctl.SyclContext([d])
    manager = peer("dpctl._sycl_queue_manager")
    kept = manager.get_device_cached_queue((context, d))
    a = ub.empty(4, usm_type="shared", sycl_queue=context)
    assert a.sycl_context == context and a.sycl_queue is kept and syclobj(a) is kept
    assert dpctl.memory.as_usm_memory(a).sycl_queue == kept


def test_the_given_queue_object(device, dpctl):
    """The queue given at creation or import is the array's, through views and copies too."""
    d = dpctl.SyclDevice(device.filter_string)
    for prop in ([], "in_order", "enable_profiling"):
        q = dpctl.SyclQueue(d, property=prop)
        for kind in KINDS:
            a = ub.zeros((4, 5), usm_type=kind, sycl_queue=q)
            for b in (a, a[1:, ::2], a.T, a.reshape(20), a.copy(), ub.asarray(a), ub.asarray(a, copy=True), ub.from_dlpack(a)):
                assert b.sycl_queue is q and syclobj(b) is q
            assert ub.asarray(a, device="host").sycl_queue is None
        m = dpctl.memory.MemoryUSMShared(64, queue=q)
        assert m.sycl_queue is q
        assert ub.asarray(m).sycl_queue is q and ub.from_usm_array_interface(m)[3:].sycl_queue is q


def test_capsules_and_subclasses(device, dpctl):
    class Mine(dpctl.SyclQueue):
        pass

    q = dpctl.SyclQueue(device.filter_string, property="in_order")
    for given in (q._get_capsule(), Mine(device.filter_string), type("Q", (), {"_get_capsule": lambda self: q._get_capsule()})()):
        same = given if isinstance(given, Mine) else q
        a = ub.empty(3, sycl_queue=given)
        assert type(a.sycl_queue) is dpctl.SyclQueue and a.sycl_queue == same
        assert a.sycl_queue is a.sycl_queue is syclobj(a) is a[1:].sycl_queue
    m = dpctl.memory.MemoryUSMShared(64, queue=q)
    assert ub.asarray(holder(m, syclobj=q._get_capsule())).sycl_queue == q


def test_arrays_of_peers_and_back(device, dpctl, dpt, dpnp):
    """A dpnp array that is imported and exported again computes with its siblings."""
    for q in (None, dpctl.SyclQueue(device.filter_string, property="in_order"), dpctl.SyclQueue(device.filter_string)):
        x = dpt.arange(6, dtype="float32", sycl_queue=q)
        for a in (ub.asarray(x), ub.from_dlpack(x), ub.from_usm_array_interface(x)):
            assert a.sycl_queue is x.sycl_queue and syclobj(a) is x.sycl_queue
            back = dpt.asarray(a)
            assert back.sycl_queue == x.sycl_queue and back.usm_data._pointer == x.usm_data._pointer
            assert dpt.asnumpy(dpt.add(x, back)).tolist() == [0, 2, 4, 6, 8, 10]
        y = dpnp.arange(6, dtype="float32", sycl_queue=q)
        assert (y + dpnp.asarray(ub.asarray(y))).asnumpy().tolist() == [0, 2, 4, 6, 8, 10]


def test_dpnp_shares(device, np, dpnp, dpt):
    """The functions of dpnp that share memory, as in the table of docs/compatibility.md."""

    def address(x):
        x = x.get_array() if isinstance(x, dpnp.ndarray) else x
        return x.usm_data._pointer

    for kind in KINDS:
        a = ub.asarray(np.arange(6, dtype="float32").reshape(2, 3), usm_type=kind)
        shared = [dpt.asarray(a), dpt.asarray(a, copy=False), dpt.from_dlpack(a), dpnp.from_dlpack(a)]
        shared += [dpnp.asarray(dpt.asarray(a), copy=False), dpnp.asarray(dpnp.from_dlpack(a), copy=False), dpt.reshape(dpt.asarray(a), 6)]
        for i, x in enumerate(shared):
            assert address(x) == a._pointer, i
            x[...] = i
            assert (a.asnumpy() == i).all(), i
        # dpnp.asarray compares queue objects by identity, and dpctl makes a new one for a
        # dictionary: even its own memory behind another object is copied.
        own = dpnp.zeros(3)
        foreign = holder(own)
        assert address(dpnp.asarray(foreign, sycl_queue=own.sycl_queue)) != address(own)
        for copied in (dpnp.asarray(a), dpnp.array(a), dpt.asarray(a, sycl_queue=a.sycl_queue)):
            assert address(copied) != a._pointer and copied.sycl_queue == a.sycl_queue


def test_a_queue_of_another_context_is_ignored(device, dpctl, dpt):
    """An object that looks like dpnp's array and names a queue of another context."""
    x = dpt.zeros(4)
    other = dpctl.SyclQueue(dpctl.SyclContext([dpctl.SyclDevice(device.filter_string)]), dpctl.SyclDevice(device.filter_string))

    class usm_ndarray:
        sycl_queue = other

        def __dlpack__(self, **kw):
            return x.__dlpack__(**kw)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    usm_ndarray.__module__, usm_ndarray.__qualname__ = "dpnp.tensor._usmarray", "usm_ndarray"
    a = ub.from_dlpack(usm_ndarray())
    assert a.sycl_queue is not other and a.sycl_queue.sycl_context == a.sycl_context


def test_queues_are_given_back(device, dpctl):
    q = dpctl.SyclQueue(device.filter_string)
    before = sys.getrefcount(q)
    many = [ub.empty(3, sycl_queue=q)[1:] for _ in range(10)]
    assert sys.getrefcount(q) == before + 20  # of each view and of its base
    dictionaries = [a.__sycl_usm_array_interface__ for a in many]
    del many, dictionaries
    gc.collect()
    assert sys.getrefcount(q) == before


def test_dpctl_is_loaded_later(device, dpctl):
    """Arrays and queues from before dpctl was loaded name dpctl's queue afterwards."""
    said = run(
        """
a = ub.empty(3, usm_type="shared")
light = a.sycl_queue
b = ub.empty(3, sycl_queue=light)
print(type(light).__module__, type(light).__name__)
import dpctl, dpctl.memory
kept = dpctl.memory.MemoryUSMShared(8).sycl_queue
print(a.sycl_queue is kept, b.sycl_queue is kept, b.__sycl_usm_array_interface__["syclobj"] is kept)
""",
        first="",
    ).split()
    assert said == ["usmbridge", "SyclQueue", "True", "True", "True"]


def test_initial_values_follow_work_on_reused_memory(np, dpctl, device):
    """Memory is reused on an in-order queue while its former user's work runs there: initial values are written
    behind that work."""
    dpt = peer("dpnp.tensor")
    memory = peer("dpctl.memory")
    q = dpctl.SyclQueue(device.filter_string, property="in_order")
    much = [memory.MemoryUSMDevice(128 << 20, queue=q) for _ in range(2)]
    sevens = memory.MemoryUSMDevice(1000, queue=q)
    sevens.copy_from_host(np.full(1000, 7, "uint8"))
    threes = np.full(1000, 3, "uint8")
    on_host = ub.asarray(threes, device="host")
    makers = {
        "zeros": lambda kind: ub.zeros(1000, "uint8", sycl_queue=q, usm_type=kind),
        "full": lambda kind: ub.full(1000, 3, "uint8", sycl_queue=q, usm_type=kind),
        "numbers": lambda kind: ub.asarray([3] * 1000, dtype="uint8", device=q, usm_type=kind),
        "NumPy's": lambda kind: ub.asarray(threes, device=q, usm_type=kind),
        "ours": lambda kind: ub.asarray(on_host, device=q, usm_type=kind),
        "arrays": lambda kind: ub.asarray([on_host], device=q, usm_type=kind),
    }
    for kind in KINDS:
        for how, make in makers.items():
            old = [ub.empty(1000, "uint8", sycl_queue=q, usm_type=kind) for _ in range(64)]
            shown = [dpt.from_dlpack(a).usm_data for a in old]
            q.memcpy_async(*much, much[0].nbytes)
            for m in shown:
                q.memcpy_async(m, sevens, 1000)
            del m, shown, old
            new = [make(kind) for _ in range(64)]
            q.wait()
            wrong = [a for a in new if a.tolist() not in ([0] * 1000, [3] * 1000, [[3] * 1000])]
            assert not wrong, (kind, how, len(wrong))


# ---- devices and queues as arguments ---------------------------------------------------------------------


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


@pytest.mark.parametrize("named, seen, waits", [
    ("default", False, False),
    ("in-order", False, False),
    ("in-order", True, False),
    ("out-of-order", False, False),
    ("out-of-order", True, True),
])
def test_computations_do_not_wait(device, dpctl, spin, named, seen, waits):
    """Computations are submitted while earlier work runs, unless the queue was seen and runs work in any order."""
    from usmbridge import array_api

    kept = ub.ones(1).sycl_queue
    properties = {"property": "in_order"} if named == "in-order" else {}
    for _ in range(20):  # more queues than have a number in the records of memory
        other = ub.ones(3, sycl_queue=type(kept)(kept.sycl_context, kept.sycl_device, **properties))
        assert (other + other).tolist() == [2.0] * 3
    queue = None if named == "default" else type(kept)(kept.sycl_context, kept.sycl_device, **properties)
    x = ub.ones(100, sycl_queue=queue)
    if seen:
        x.sycl_queue
    for compute in (lambda y: y + x, lambda y: y.__iadd__(x), lambda y: array_api.where(y > x, y, x)):
        for seconds in (0.4,) if waits else (0.4, 2, 8):  # a busy machine can take longer than the kernel
            y = compute(ub.ones(100, sycl_queue=queue))
            (queue or kept).wait()
            array_api._unawaited = 0  # some results are waited for
            event = spin(queue or kept, seconds)
            for _ in range(10):
                y = compute(y)
            complete = event.execution_status.name == "complete"
            (queue or kept).wait()
            if not complete:
                break
        assert complete == waits


def test_a_limit_waits_for_computations(device, dpctl):
    """dpnp keeps freed arrays alive until it has computed with them; a request waits for that before it fails."""
    peer("dpnp.tensor")
    out = run("""
n = 4 << 20
w = ub.ones(16)
w += 1
ub._set_limit(100 << 20)  # for three arrays
b = ub.ones(n)
for _ in range(12):
    a = ub.zeros(n)
    a += b
    del a
big = ub.zeros(2 * n)
try:
    ub.zeros(n)
except MemoryError:
    print("refused")
""")
    assert out == "refused\n"
