"""Reads memory while device work on it is pending, in one process; test_order.py runs it in processes of its own.

    usmpython order_matrix.py WORLD [TEXT]

WORLD says when dpctl is imported: "before" the first array, "after" arrays have shown their queues, or "during" the
use of arrays, by the library itself. TEXT selects the combinations whose name begins with it. Each round writes another
value, because reused memory can contain the right one by chance. The last line is JSON: by combination, the number of
reads with a wrong value and the number of reads."""

import ctypes as ct
import itertools
import json
import os
import pickle
import sys

import usmbridge as ub

ROUNDS = int(os.environ.get("USMB_ORDER_ROUNDS", 1))
KINDS = ("shared", "host", "device")
SMALL, LARGE = 1 << 12, 1 << 18  # elements; dpnp works on LARGE for some time
SPINS = 1 << 20  # 2 ms
SOURCE = """
__kernel void late(ulong address, long value, uint n, uint spins) {
    uint x = spins + 1;
    for (uint i = 0; i < spins; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
    __global long *out = (__global long *)address;
    for (uint i = 0; i < n; i++) out[i] = value + (x == 0);
}
"""

named = {}  # queues of the user, q1 and q2, and kept, the one that dpctl keeps for the default device


def load(shown):
    """Imports dpctl and dpnp, and makes the queues and the kernel. early has the queues that arrays have shown
    before, by kind."""
    global np, dpctl, dpt, order_manager, late, kept, early, q1, q2
    import dpctl.memory
    import dpctl.program
    import dpnp.tensor as dpt
    import numpy as np
    from dpctl.utils import SequentialOrderManager as order_manager

    kept = dpt.empty(1).sycl_queue
    early = {kind: dpctl.SyclQueue(queue._get_capsule()) if queue else kept for kind, queue in shown.items()}
    q1, q2 = (dpctl.SyclQueue(kept.sycl_device, property="in_order") for _ in range(2))
    named.update(kept=kept, q1=q1, q2=q2)
    late = dpctl.program.create_program_from_source(kept, SOURCE).get_sycl_kernel("late")


# ---- slow work ----------------------------------------------------------------------------------


def kernel(queue, address, value, n=SMALL):
    """Submits a kernel that writes a value late. Nothing keeps the memory alive for it."""
    return queue.submit_async(late, [ct.c_uint64(address), ct.c_int64(value), ct.c_uint32(n), ct.c_uint32(SPINS)], [1])


def occupy(queue):
    """Submits work that dpnp's next work on the queue runs behind, and returns its event."""
    event = kernel(queue, 0, 0, 0)
    order_manager[queue].add_event_pair(event, event)
    return event


def add_late(t, value):
    """Submits dpnp.tensor.add with an array: for a number, dpnp would wait for the work before."""
    x = dpt.full(t.size, value, dtype="int64", sycl_queue=t.sycl_queue)
    occupy(t.sycl_queue)
    dpt.add(t, x, out=t)


# ---- consumers ----------------------------------------------------------------------------------


class Holder:
    """An object with only a dictionary for elements of int64, or only a DLPack capsule."""

    def __init__(self, keep, address=None, queue=None, n=SMALL):
        self.keep = keep
        if address is not None:
            self.__sycl_usm_array_interface__ = dict(data=(address, False), shape=(n,), typestr="<i8", version=1, syclobj=queue)

    def __dlpack__(self, **unused):
        return self.keep

    def __dlpack_device__(self):
        return ub.devices()[0].dlpack_device


def capsule(a, **stream):
    return a.__dlpack__(max_version=(1, 0), **stream)


def show(a, how, stream=None):
    """Shows an array in one way. Returns a queue, an address, and the array or a capsule."""
    if how == "attribute":
        return a.sycl_queue, a._pointer, a
    if how == "dictionary":
        d = a.__sycl_usm_array_interface__
        return d["syclobj"], d["data"][0], a
    if how == "stream":
        return stream, None, capsule(a, stream=stream)
    return (None, None, capsule(a)) if how == "capsule" else None


def consume(queue, address, keep):
    """Returns a dpnp array on the memory and the queue that an array has shown."""
    if address is None:
        keep = dpt.from_dlpack(Holder(keep))
        address, queue = keep.usm_data._pointer, queue or keep.sycl_queue
    return dpt.usm_ndarray(keep.size, "int64", buffer=dpctl.memory.as_usm_memory(Holder(keep, address, queue, keep.size)))


def write_late(a, how, value, stream=None):
    """Shows an array to a consumer, whose kernel writes a value late. Returns the consumer's array."""
    t = consume(*show(a, how, stream))
    kernel(t.sycl_queue, t.usm_data._pointer, value)
    return t


def seen_on(queue, t):
    """Returns the values that a consumer on a queue sees in the memory of a dpnp array."""
    seen = dpctl.memory.MemoryUSMHost(8 * SMALL, queue=queue)
    queue.memcpy_async(seen, t.usm_data, 8 * SMALL).wait()
    return np.frombuffer(seen, "int64")


def read(a):
    return a.asnumpy() if a.usm_type == "device" else np.asarray(memoryview(a))


def new(kind, queue=None, n=SMALL):
    return ub.zeros(n, "int64", usm_type=kind, sycl_queue=queue)


# ---- the rows: each is one round, and yields arrays in which every value must be v ----------------

ROWS = {}


def row(name, *args, kinds=KINDS):
    def add(f):
        ROWS[name] = f, args, kinds
        return f

    return add


@row("a/out=")
def out(kind, v):
    a = new(kind)
    t = dpt.from_dlpack(a)
    add_late(t, v)
    yield read(a)


@row("a/lost updates", kinds=("shared", "host"))
def lost_updates(kind, v):
    a = new(kind)
    add_late(dpt.from_dlpack(a), -v)
    np.asarray(a)[...] = v
    kept.wait()
    yield read(a)


@row("a/queue shown before dpctl")
def early_queue(kind, v):
    a = new(kind)
    t = dpt.from_dlpack(a)
    kernel(early[kind], t.usm_data._pointer, v)
    yield read(a)


def memory(kind):
    return getattr(dpctl.memory, "MemoryUSM" + kind.capitalize())(8 * SMALL, queue=q1)


def ours(kind):
    a = new(kind, q1)
    return a, ub.asarray(Holder(a, a._pointer, q2))


def dpctls(kind):
    m = memory(kind)
    return ub.asarray(Holder(m, m._pointer, q1)), ub.asarray(Holder(m, m._pointer, q2))


def one_owner(kind):
    m = memory(kind)
    owner = Holder(m, m._pointer, q1)
    a = ub.asarray(owner)
    owner.__sycl_usm_array_interface__["syclobj"] = q2
    return a, ub.asarray(owner)


@row("b/second Array, our memory", ours)
@row("b/second Array, dpctl's memory", dpctls)
@row("b/second Array, the same owner", one_owner)
def two_arrays(kind, v, make):
    for turn in (1, -1):
        a, b = make(kind)[::turn]
        t = write_late(b, "attribute", v)
        yield read(a)


@row("c/a.sycl_queue", "attribute", {})
@row("c/a.sycl_queue, stream=-1", "attribute", dict(stream=-1))
@row("c/dpnp's queue", "dpnp", {})
@row("c/dpnp's queue, stream=-1", "dpnp", dict(stream=-1))
@row("c/queue shown before dpctl", "early", {})
@row("c/queue shown before dpctl, stream=-1", "early", dict(stream=-1))
def reuse(kind, v, which, stream):
    a = new(kind)
    t = dpt.from_dlpack(Holder(capsule(a, **stream)))
    queue = a.sycl_queue if which == "attribute" else early[kind] if which == "early" else t.sycl_queue
    kernel(queue, t.usm_data._pointer, -v)
    del a, t
    b = ub.full(SMALL, v, "int64", usm_type=kind)
    queue.wait()
    yield b.asnumpy()


@row("c/read, stream=-1")
def read_unordered(kind, v):
    a = new(kind)
    t = dpt.from_dlpack(Holder(capsule(a, stream=-1)))
    kernel(t.sycl_queue, t.usm_data._pointer, v)
    yield read(a)


# A consumer's kernel is pending, and another consumer takes the array.


AGAIN = {
    "stream": lambda a: capsule(a, stream=q2),
    "capsule": lambda a: capsule(a),
    "dictionary": lambda a: a.__sycl_usm_array_interface__,
}


@row("d/dpctl's queue, then stream=", None, "attribute", "stream", "q2")
@row("d/dpctl's queue, then stream=, named", "q1", "capsule", "stream", "q2")
@row("e/dpctl's queue, then the dictionary, named", "q2", "capsule", "dictionary", "q2")
@row("k/stream=, then the dictionary", None, "stream", "dictionary", "kept")
@row("k/stream=, then a capsule", None, "stream", "capsule", "kept")
@row("k/stream=, then stream=", None, "stream", "stream", "q2")
@row("k/stream=, then the dictionary, named", "q2", "stream", "dictionary", "q2")
def next_consumer(kind, v, queue, how, again, reads_on):
    a = new(kind, named.get(queue))
    t = write_late(a, how, v, q1)
    taken = AGAIN[again](a)
    yield seen_on(named[reads_on], t)
    del taken


@row("returned/another queue, from_dlpack", ub.from_dlpack)
@row("returned/another queue, asarray", ub.asarray)
def from_another_queue(kind, v, back):
    a = new(kind)
    t = dpt.from_dlpack(a).to_device(q1)
    kernel(q1, t.usm_data._pointer, v)
    yield read(back(t))


@row("Arrow/device", kinds=("device",))
def arrow(kind, v):
    a = new(kind)
    t = write_late(a, "attribute", v)
    memory = a.__arrow_c_device_array__()  # the work is complete, or behind its event
    yield seen_on(q2, t)
    del memory


@row("many/queues")
def many_queues(kind, v):
    a, n = new(kind), 40
    for i in range(n):
        t = write_late(a, "stream", v if i == n - 1 else -v, dpctl.SyclQueue(kept.sycl_device, property="in_order"))
    yield read(a)


@row("kept/memory")
def kept_memory(kind, v):
    a = new(kind)
    kernel(a.sycl_queue, a._pointer, -v)
    del a
    b = ub.empty(SMALL, "int64", usm_type=kind)
    queue = dpctl.SyclQueue(kept.sycl_device, property="in_order")
    t = write_late(b, "stream", v, queue)
    yield read(b)


# Two Arrays on one memory: a view, or an Array whose memory has returned to this library.
@row("views/step", lambda a: a[::2])
@row("views/reshape", lambda a: a.reshape(2, -1))
@row("returned/capsule", lambda a: ub.from_dlpack(capsule(a)))
@row("returned/dpnp", lambda a: ub.asarray(dpt.from_dlpack(a)))
@row("returned/dictionary", lambda a: ub.asarray(Holder(a, a._pointer, kept)))
def two_names(kind, v, second):
    for how in ("attribute", "dictionary", "capsule", "stream"):
        for reverse in (False, True):
            a = new(kind)
            b = second(a)
            if reverse:
                a, b = b, a
            t = write_late(a, how, v, q1)
            yield read(b)


@row("writes/fill", lambda a, v: a.fill(v))
@row("writes/assign", lambda a, v: a.__setitem__(..., v))
@row("writes/index", lambda a, v: a.__setitem__(backwards(), v))
def write_after(kind, v, write):
    a = new(kind)
    t = write_late(a, "stream", -v, q1)
    write(a, v)
    t.sycl_queue.wait()
    yield read(a)


# Our own functions have pending work on an array with a given queue, and another queue comes next.


def computed(kind, v, queue):
    """Returns an array on a queue with pending work of dpnp that makes its values v."""
    a, x = new(kind, queue), ub.full(SMALL, v, "int64", usm_type=kind, sycl_queue=queue)
    occupy(queue)
    a += x
    return a


@row("used/dictionary, named", "dictionary")
@row("used/capsule, named", "capsule")
def export_used(kind, v, how):
    for queue in (q2, dpctl.SyclQueue(kept.sycl_device)):
        yield seen_on(kept, consume(*show(computed(kind, v, queue), how)))


@row("used/many queues")
def many_used(kind, v):
    n = 17
    queues = [dpctl.SyclQueue(kept.sycl_device) for _ in range(n)]
    for queue in queues:
        ub.ones(1, sycl_queue=queue) + ub.ones(1, sycl_queue=queue)
    a = computed(kind, v, queues[-1])
    b = ub.asarray(Holder(a, a._pointer, queues[-2]))
    yield (b + new(kind, queues[-2])).asnumpy()


@row("used/share", kinds=("shared", "host"))
def share_used(kind, v):
    a = ub.zeros(SMALL, "int64", usm_type=kind, interprocess=True)
    x = ub.full(SMALL, v, "int64", usm_type=kind)
    occupy(kept)
    a += x
    yield ub.share.open(ub.share.export(a)).asnumpy()


# A user's kernel is pending on the queue of an array, which may run its work in any order, and our own functions compute.

COMPUTED = {
    "sort": lambda a: ub.array_api.sort(a),
    "concat": lambda a: ub.concat([a, a]),
    "where": lambda a: ub.array_api.where(a == a, a, a),
    "max": lambda a: a.max(),
    "sum": lambda a: a.sum() // SMALL,
    "add": lambda a: a + 0,
    "in place": lambda a: a.__iadd__(0),
    "index": lambda a: a[np.arange(3)],
    "view": lambda a: ub.array_api.sort(a[::2]),
}


def computed_after(kind, v, f):
    for queue in (None, q1, dpctl.SyclQueue(kept.sycl_device)):
        a = new(kind, queue)
        kernel(a.sycl_queue, a._pointer, v)
        yield f(a).asnumpy()
        kernel(a.sycl_queue, a._pointer, v + 1)
        b = a[:]
        del a  # the view has the queue that was seen
        yield f(b).asnumpy() - 1


for name in COMPUTED:
    row(f"seen/{name}", COMPUTED[name])(computed_after)


# Memory of dpnp that was shown, and whose last array is gone, is not reused before the work on it has ended.


@row("freed/result", lambda kind: new(kind) + 1, None)
@row("freed/result, in-order queue", lambda kind: new(kind, q1) + 1, None)
@row("freed/result, out-of-order queue", lambda kind: new(kind, dpctl.SyclQueue(kept.sycl_device)) + 1, None)
@row("freed/result, capsule on another queue", lambda kind: new(kind) + 1, "stream")
@row("freed/view of a result", lambda kind: (new(kind) + 1).reshape(2, -1), None)
@row("freed/array of dpnp", lambda kind: ub.asarray(dpt.ones(SMALL, dtype="int64", usm_type=kind)), None)
@row("freed/memory of dpctl", lambda kind: dpctls(kind)[0], None)
def freed_owner(kind, v, make, how):
    a = make(kind)
    if how is None:
        kernel(a.sycl_queue, a._pointer, -1)
    else:
        c = a.__dlpack__(stream=q2)
        address = dpt.from_dlpack(Holder(a.__dlpack__())).usm_data._pointer
        kernel(q2, address, -1)
        del c
    queues = kept, q1, q2, a.sycl_queue
    del a
    others = [memory(kind) for _ in range(4)]
    for m in others:
        m.copy_from_host(np.full(SMALL, v).view("uint8"))
    for queue in queues:
        queue.wait()
    for m in others:
        yield np.frombuffer(m.copy_to_host(), "int64")


@row("share", kinds=("shared", "host"))
def shared(kind, v):
    a = ub.zeros(SMALL, "int64", usm_type=kind, interprocess=True)
    t = write_late(a, "stream", v, q1)
    yield ub.share.open(ub.share.export(a)).asnumpy()


# ---- the matrix -----------------------------------------------------------------------------------

SHOWN = ("capsule", "stream", "attribute", "dictionary", "internally")
INSIDE = ("mask", "index")  # this library calls dpnp
WRITERS = ("kernel", "memcpy", "add") + INSIDE
# from_dlpack is last, because it exports the memory.
READERS = {
    "asarray": lambda a: np.asarray(a),
    "memoryview": lambda a: np.asarray(memoryview(a)),
    "asnumpy": lambda a: a.asnumpy(),
    "pickle": lambda a: pickle.loads(pickle.dumps(a)).asnumpy(),
    "copy": lambda a: a.copy().asnumpy(),
    "from_dlpack": lambda a: np.from_dlpack(a, device="cpu", copy=a.usm_type == "device" or None),
}
FAR = ("asnumpy", "pickle", "copy", "from_dlpack")  # for device memory too


def every(n=LARGE, queue=None):
    return ub.ones(n, "bool", sycl_queue=queue)


def backwards(n=SMALL, queue=None):
    return ub.asarray(np.arange(n)[::-1], copy=True, device=queue or kept)


class Case:
    """An array that a writer writes again and again, and a consumer to which it was shown in one way."""

    def __init__(self, kind, how, writer, queue=None):
        self.writer, self.queue = writer, queue
        self.a = new(kind, queue, LARGE if writer in INSIDE else SMALL)
        self.shown = show(self.a, how, named.get("q2") or (self.a.sycl_queue if how == "stream" else None))
        self.v = 0

    def start(self):
        """Makes the objects that need dpctl."""
        self.t = self.shown and consume(*self.shown)
        self.own = self.queue or kept
        self.works_on = self.t.sycl_queue if self.t is not None and self.writer not in INSIDE else self.own
        self.key = every(self.a.size, self.own) if self.writer == "mask" else backwards(self.a.size, self.own)
        self.source = dpctl.memory.MemoryUSMShared(self.a.nbytes, queue=self.works_on)

    def write(self, v):
        a, t, queue, add, self.v = self.a, self.t, self.works_on, v - self.v, v
        if self.writer == "kernel":
            kernel(queue, t.usm_data._pointer, v, a.size)
        elif self.writer == "memcpy":
            self.source.copy_from_host(np.full(a.size, v).view("uint8"))
            queue.memcpy_async(t.usm_data, self.source, a.nbytes, [occupy(queue)])
        elif self.writer == "add":
            add_late(t, add)
        else:
            a[self.key] = v


def cases(queue=None):
    # Capsules first: until a queue is shown, there is only the one of dpctl.
    for how in SHOWN:
        for writer in INSIDE if how == "internally" else WRITERS:
            for kind in KINDS:
                yield f"{writer}/%s/{kind}/{how}", Case(kind, how, writer, queue)


def main():
    world, text = sys.argv[1], "".join(sys.argv[2:])
    used = list(cases()) if world == "during" else None
    shown = {kind: None if world == "before" else new(kind).sycl_queue for kind in KINDS}
    if world == "during":
        ub.zeros(8)[ub.ones(8, "bool")] = 1  # imports dpnp
    load(shown)
    counts = {}

    def count(name, got, v, *queues):
        wrong, total = counts.get(name, (0, 0))
        counts[name] = wrong + bool((got != v).any()), total + 1
        for queue in queues:
            queue.wait()

    values = iter(range(1, 1 << 60))
    queues = {"default": None}
    if world != "during":
        queues.update({"in-order": q1, "out-of-order": dpctl.SyclQueue(kept.sycl_device)})
    for order, queue in queues.items():
        for name, case in used or cases(queue):
            name = name % order
            readers = [r for r in (FAR if case.a.usm_type == "device" else READERS) if f"{name}/{r}".startswith(text)]
            if readers:
                case.start()
            for r in readers:
                for v in itertools.islice(values, ROUNDS):
                    case.write(v)
                    count(f"{name}/{r}", READERS[r](case.a), v, case.own, case.works_on)
    for name, (f, args, kinds) in ROWS.items():
        for kind in kinds:
            for v in itertools.islice(values, ROUNDS + 1 if f"{name}/{kind}".startswith(text) else 0):
                for got in f(kind, v, *args):
                    count(f"{name}/{kind}", got, v, kept, q1, q2, *early.values())
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
