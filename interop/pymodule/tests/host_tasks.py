"""Calls functions of this library while tasks on the host that need the GIL are pending on the queue; test_host_tasks.py
runs it in processes of its own.

    usmpython host_tasks.py QUEUE [SECONDS [TEXT]]

QUEUE is default, out-of-order or in-order: that of the arrays. SECONDS, if it is not 0, says how long all steps are
repeated; TEXT selects the steps whose name begins with it. dpnp leaves such a task for each array on memory of others.
A barrier would wait for it, and dpnp's vector functions would then wait for the barrier with the GIL held. So each
step runs with such tasks pending, and dpnp's functions follow it. If they do not end, the process ends with a
traceback. The last line is JSON: by step, the number of barriers that this library submitted."""

import ctypes as ct
import faulthandler
import json
import os
import pickle
import sys
import time

import usmbridge as ub

ub.zeros(1)
import dpctl
import dpctl.program
import dpnp
import dpnp.tensor as dpt
import numpy as np
from dpctl.utils import SequentialOrderManager

import faults
import usmbridge.array_api as xp
from order_matrix import SOURCE

N = 1 << 10
DEADLOCK = 120  # seconds; a step takes a tenth of one
STEPS = {}


def step(name):
    def add(f):
        STEPS[name] = f
        return f

    return add


def steps(kind, **functions):
    for name, f in functions.items():
        STEPS[f"{kind}/{name}"] = f


# Each step gets an array of N float64 with pending work. Those that compute read its queue as our own functions do, not
# as users do.

steps("operator", add=lambda a: a + a, number=lambda a: 2 * a, negative=lambda a: -a, matmul=lambda a: a @ a, compare=lambda a: a < 1)
steps("in place", add=lambda a: a.__iadd__(a), number=lambda a: a.__imul__(1.0))
steps("reduction", sum=xp.sum, max=xp.max, mean=xp.mean, std=xp.std, any=xp.any, argmax=xp.argmax, cumulative_sum=xp.cumulative_sum)
steps("function", sqrt=xp.sqrt, sin=xp.sin, exp=xp.exp, where=lambda a: xp.where(a > 0, a, a), clip=lambda a: xp.clip(a, 0, 1),
      by_numpy=lambda a: xp.acos(xp.astype(a, "complex128")), power=lambda a: xp.pow(xp.astype(a, "int32"), xp.astype(a, "int32")))
steps("manipulation", concat=lambda a: xp.concat([a, a]), stack=lambda a: xp.stack([a, a]), roll=lambda a: xp.roll(a, 1),
      flip=xp.flip, reshape=lambda a: a.reshape(2, -1), tile=lambda a: xp.tile(a, 2))
steps("linalg", vector_norm=lambda a: xp.linalg.vector_norm(a, axis=-1, keepdims=True), outer=lambda a: xp.linalg.outer(a[:8], a[:8]),
      qr=lambda a: xp.linalg.qr(a[:16].reshape(4, 4)), svd=lambda a: xp.linalg.svd(a[:16].reshape(4, 4)),
      solve=lambda a: xp.linalg.solve(xp.eye(4, device=a._on), a[:4]), inv=lambda a: xp.linalg.inv(xp.eye(4, device=a._on) + a[:16].reshape(4, 4)))


def crowded(f):
    """Returns a step that calls a function of linalg while more tasks that need the GIL are pending than SYCL runs at a time."""

    def step(a):
        m = ub.asarray(4 * np.eye(3), usm_type="shared", device=a._on)
        for _ in range(30):
            for _ in range(12):
                b = a + a
                b < a, xp.sum(b)
            f(m)

    return step


steps("linalg", slogdet_in_a_crowd=crowded(xp.linalg.slogdet), product_in_a_crowd=crowded(lambda m: xp.linalg.vector_norm(xp.linalg.matmul(m, m))))
steps("fft", fft=xp.fft.fft, rfft=xp.fft.rfft)
steps("sorting", sort=xp.sort, argsort=xp.argsort, unique=xp.unique_values, searchsorted=lambda a: xp.searchsorted(a, a[:4]))
steps("indexing", mask=lambda a: a[a > 0], index=lambda a: a[[0, 2, 1]], take=lambda a: xp.take(a, xp.asarray([1, 0], device=a._on)))
steps("assignment", number=lambda a: a.__setitem__(..., 1.0), array=lambda a: a.__setitem__(slice(4), a[4:8]), index=lambda a: a.__setitem__([0, 1], 1.0),
      mask=lambda a: a.__setitem__(a > 0, 1.0), ndarray=lambda a: a.__setitem__(slice(4), np.ones(4)), fill=lambda a: a.fill(1.0))
steps("creation", linspace=lambda a: xp.linspace(0, 1, 4, device=a._on), full=lambda a: ub.full(4, 2.0, sycl_queue=a._on),
      asarray=lambda a: ub.asarray(np.ones(N), usm_type="shared", device=a._on), zeros=lambda a: ub.zeros(N, sycl_queue=a._on))
steps("read", asarray=np.asarray, memoryview=lambda a: bytes(memoryview(a)), asnumpy=lambda a: a.asnumpy(), tolist=lambda a: a.tolist(),
      item=lambda a: float(a[0]), text=repr, pickle=lambda a: pickle.loads(pickle.dumps(a)))
steps("copy", copy=lambda a: a.copy(), astype=lambda a: a.astype("float32"), to_host=lambda a: ub.asarray(a, device="host"),
      to_device=lambda a: ub.asarray(a, usm_type="device", copy=True), deepcopy=lambda a: __import__("copy").deepcopy(a))
steps("export", capsule=lambda a: a.__dlpack__(max_version=(1, 0)), stream=lambda a: a.__dlpack__(stream=a.sycl_queue),
      another_stream=lambda a: a.__dlpack__(stream=dpctl.SyclQueue(a.sycl_device, property="in_order")),
      dictionary=lambda a: a.__sycl_usm_array_interface__, queue=lambda a: a.sycl_queue, arrow=lambda a: a.__arrow_c_device_array__(),
      dpnp=lambda a: dpnp.from_dlpack(a), dpnp_sum=lambda a: dpnp.sum(dpnp.from_dlpack(a)))


def shown(**more):
    """Returns an array that a user has seen in each way, and that is freed with the last reference."""
    b = ub.ones(N, **more)
    b._pointer, b.sycl_queue, b.__dlpack__(max_version=(1, 0)), b.__sycl_usm_array_interface__
    return b


@step("end/release")
def release(a):
    shown(sycl_queue=a.sycl_queue).release()


@step("end/del and the same size")
def reuse(a):
    del_me = shown(sycl_queue=a.sycl_queue)
    del del_me
    shown(sycl_queue=a.sycl_queue)


@step("end/del and more memory")
def grow(a):
    for n in (1, 16, 256):
        del_me = shown(sycl_queue=a.sycl_queue)
        del del_me
        ub.empty(n << 13, sycl_queue=a.sycl_queue)


@step("end/del and a pause")
def pause(a):
    del_me = shown(sycl_queue=a.sycl_queue)
    del del_me
    end = time.monotonic() + 0.6  # the goroutine that looks after freed memory runs four times a second
    while time.monotonic() < end:
        sum(range(1000))


@step("end/trim")
def trim(a):
    del_me = shown(sycl_queue=a.sycl_queue)
    del del_me
    ub.trim()


@step("result/del")
def result(a):
    b = a + 1
    b._pointer, b.sycl_queue
    del b
    for _ in range(20):  # each 16th looks for memory whose work has ended
        a + 1


@step("end/many results")
def results(a):
    for _ in range(80):  # more than are kept without a wait
        b = a + 1
        b._pointer, b.sycl_queue


@step("end/imported")
def imported(a):
    b = ub.asarray(dpt.ones(N, sycl_queue=a.sycl_queue))
    b._pointer, b.sycl_queue
    del b


@step("end/capsule")
def capsule(a):
    c = shown(sycl_queue=a.sycl_queue).__dlpack__(max_version=(1, 0))
    del c


@step("fork/waits")
def fork(a):
    a._pointer, a.sycl_queue
    pid = os.fork()
    if pid == 0:
        os._exit(0 if a.tolist() == [4.0] * N else 1)
    if os.waitpid(pid, 0)[1]:
        raise AssertionError("the child read other values")


@step("fork/out of time")
def fork_out_of_time(a):
    """A barrier can be pending afterwards: it waits for a kernel of the user, not for tasks."""
    kernel(a.sycl_queue, 1 << 26)
    earlier = ub._native._fork_limit(0.03)
    fork_only()
    ub._native._fork_limit(earlier)


def fork_only():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@step("user/kernel")
def kernel_of_user(a):
    kernel(a.sycl_queue, 1 << 18)


# ---- running them -------------------------------------------------------------------------------------


def kernel(queue, spins):
    """Submits a kernel that takes a while. dpctl keeps its arguments by a task that needs the GIL."""
    return queue.submit_async(late, [ct.c_uint64(0), ct.c_int64(0), ct.c_uint32(0), ct.c_uint32(spins)], [1])


def pending(queue):
    """Returns an array in shared USM with pending work of dpnp, and tasks of dpnp that need the GIL behind it."""
    a = ub.ones(N, usm_type="shared", sycl_queue=queue)
    event = kernel(queue, 1 << 22)  # 7 ms
    SequentialOrderManager[queue].add_event_pair(event, event)
    t = dpt.asarray(a._alone)
    dpt.add(t, dpt.ones(N, sycl_queue=queue), out=t)
    a += a
    return a


def follow(a):
    """Calls functions of dpnp that wait for their dependencies with the GIL held."""
    for _ in range(2):
        xp.linalg.vector_norm(a, axis=-1, keepdims=True)
        dpnp.sqrt(dpnp.from_dlpack(a) * 2.0)


def main():
    global late
    # With one processor, the threads of the tasks seldom run while dpnp releases the GIL for a moment.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    name, seconds, text = sys.argv[1], *sys.argv[2:], *("0", "")[len(sys.argv) - 2 :]
    kept = dpt.ones(1).sycl_queue
    queue = {"default": kept, "out-of-order": dpctl.SyclQueue(kept.sycl_device), "in-order": dpctl.SyclQueue(kept.sycl_device, property="in_order")}[name]
    late = dpctl.program.create_program_from_source(queue, SOURCE).get_sycl_kernel("late")
    counter = faults.Faults() if "USMBRIDGE_FAULTS" in os.environ else None
    end, barriers = time.monotonic() + float(seconds), {}
    while True:
        for what, f in STEPS.items():
            if not what.startswith(text):
                continue
            print(what, file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(DEADLOCK, exit=True)
            a = pending(queue)
            before = counter.calls("DPCTLQueue_SubmitBarrierForEvents") if counter else 0
            f(a)
            if counter:
                barriers[what] = counter.calls("DPCTLQueue_SubmitBarrierForEvents") - before
            follow(a)
            del a
        if time.monotonic() >= end:
            break
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(barriers))


if __name__ == "__main__":
    main()
