"""Functions for the tests of the order of device work: see order_test.go of packages executor and workers.

Each function of the second part submits a slow kernel that writes the value v to all elements of its
argument a, with dpctl on a queue of its own or on the array's, and does not wait for it.
"""

import ctypes

import dpctl
import dpctl.memory
import dpctl.program
import dpnp
import dpnp.tensor as dpt

# The kernel runs as one work-item, so that all elements change late. The state of xorshift is never 0.
SOURCE = """
kernel void slow(global int *x, int n, int v, uint turns) {
    uint s = turns;
    for (uint i = 0; i < turns; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; }
    for (int i = 0; i < n; i++) x[i] = v + (s == 0);
}
"""
TURNS = 1 << 20  # some milliseconds

queues = {}
kernel = None
ones = {}
used, kept = [], []


def prepare(filter_string):
    """Makes the queues and the kernel. All are in the default context."""
    global kernel
    for name, properties in (("in-order", "in_order"), ("out-of-order", []), ("second", "in_order")):
        queues[name] = dpctl.SyclQueue(filter_string, property=properties)
        ones[name] = dpt.ones(64, dtype="int32", sycl_queue=queues[name])
    kernel = dpctl.program.create_program_from_source(queues["in-order"], SOURCE).get_sycl_kernel("slow")
    x = dpt.zeros(64, dtype="int32", sycl_queue=queues["in-order"])
    submit(queues["in-order"], x, 1)
    dpt.add(x, ones["in-order"], out=x)  # dpnp's first call
    assert dpt.asnumpy(x).tolist() == [2] * 64


class Tensor:
    """An object whose DLPack capsule was made with a stream of our choice."""

    def __init__(self, a, **kw):
        self.capsule = a.__dlpack__(max_version=(1, 0), **kw)
        self.device = a.__dlpack_device__()

    def __dlpack__(self, **kw):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def imported(a, **kw):
    return dpt.from_dlpack(Tensor(a, **kw))


def submit(q, x, v):
    memory = x if isinstance(x, dpctl.memory._memory._Memory) else x.usm_data
    used.append(q)
    q.submit_async(kernel, [memory, ctypes.c_int(memory.nbytes // 4), ctypes.c_int(v), ctypes.c_uint(TURNS)], [1])


def finish():
    """Ends the work of a round."""
    for q in used:
        q.wait()
    used.clear()
    kept.clear()


# Functions that return the memory of their argument as another object.


def asarray(a):
    return dpt.asarray(a)


def tensor(a):
    return dpt.from_dlpack(a)


def ndarray(a):
    return dpnp.from_dlpack(a)


def streamed(a):
    return imported(a, stream=queues["second"])


def moved(a):
    return dpt.asarray(a).to_device(queues["second"])


def itself(a):
    return a


def again(a):
    import usmbridge

    return usmbridge.asarray(dpt.asarray(a))


# Functions that leave work pending.


def stream(a, q, v):
    submit(queues[q], imported(a, stream=queues[q]), v)


def stream_and_keep(a, q, v):
    kept[:] = [imported(a, stream=queues[q])]
    submit(queues[q], kept[0], v)


def stream_capsule_only(a, q, v):
    x = dpt.asarray(a)
    kept[:] = [a.__dlpack__(stream=queues[q])]  # legacy, and never imported
    submit(queues[q], x, v)


def stream_views(a, q, v):
    for part in (a[:3], a[3:]):
        submit(queues[q], imported(part, stream=queues[q]), v)


def two_streams(a, q, v):
    """Two queues are used, and the second one is named first."""
    second = imported(a[:3], stream=queues["second"])
    first = imported(a[3:], stream=queues[q])
    submit(queues[q], first, v)
    submit(queues["second"], second, v)


def stream_after_dictionary(a, q, v):
    dpt.asarray(a)
    submit(queues[q], imported(a, stream=queues[q]), v)


def stream_on_shared_tensor(a, q, v):
    """dpnp works on the queue of the export."""
    x = imported(a, stream=queues[q]).to_device(queues[q])
    submit(queues[q], x, v - 1)
    dpt.add(x, ones[q], out=x)


def stream_and_raise(a, q, v):
    stream(a, q, v)
    raise KeyError("after the submission")


def stream_and_return(a, q, v):
    stream(a, q, v)
    return a


def stream_and_return_tensor(a, q, v):
    x = imported(a, stream=queues[q])
    submit(queues[q], x, v)
    return x


def attribute(a, q, v):
    submit(a.sycl_queue, imported(a, stream=-1), v)


def attribute_without_stream(a, q, v):
    x = imported(a)
    submit(a.sycl_queue, x, v)


def attribute_of_view(a, q, v):
    submit(a[1:].sycl_queue, imported(a, stream=-1), v)


def dictionary(a, q, v):
    queue = a.__sycl_usm_array_interface__["syclobj"]
    submit(queue, dpctl.memory.as_usm_memory(a), v)


def memory(a, q, v):
    x = dpctl.memory.as_usm_memory(a)
    submit(x.sycl_queue, x, v)


def by_asarray(a, q, v):
    x = dpt.asarray(a)
    submit(x.sycl_queue, x, v)


def by_from_dlpack(a, q, v):
    x = dpnp.from_dlpack(a)
    submit(x.sycl_queue, x.get_array(), v)


def in_containers(outputs, q, v):
    by_from_dlpack(outputs["y"][0], q, v)


def attribute_and_stream(a, q, v):
    """Work on both queues: the one that the array names, and a stream."""
    first = imported(a[:3], stream=-1)
    second = imported(a[3:], stream=queues[q])
    submit(a.sycl_queue, first, v)
    submit(queues[q], second, v)
