"""Device work on eight threads: nothing hangs, crashes or is wrong. USMB_THREADS_SECONDS is the time of each workload."""

import os

import pytest
from conftest import program

SECONDS = float(os.environ.get("USMB_THREADS_SECONDS", "2"))

# Each thread runs work(i, value) with a different value each time. A stall ends the process with the stacks.
PROGRAM = """
import faulthandler, itertools, threading, time
import numpy as np
import usmbridge as ub
{setup}
end = time.monotonic() + {seconds}
failures = []

{work}

def loop(i):
    try:
        for n in itertools.count():
            if time.monotonic() > end or failures: return
            faulthandler.dump_traceback_later(300, exit=True)
            work(i, n % 1000 + 1)
    except BaseException as e:
        failures.append(e)

threads = [threading.Thread(target=loop, args=(i,)) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
if failures: raise failures[0]
faulthandler.cancel_dump_traceback_later()
print("done")
"""

# Two threads compute, the others export and print the result of the last computation.
EXPORT = """
import usmbridge.array_api as xp
last = [ub.ones(1000, "float32") + 0]

def work(i, value):
    if i < 2:
        b = ub.full(1000, value, "float32")
        b = b + b
        assert float(xp.sum(b)) == 2000 * value
        last[0] = b
        return
    b = last[0]
    for _ in range(10):
        b.__sycl_usm_array_interface__
    assert len(set(b[:3].tolist())) == 1 and "usm_type=shared" in str(b)
"""

# All threads compute and read by each of the protocols. dpnp's host tasks take the GIL: neither a computation nor the wait of
# an export keeps them from it.
MIX = """
import usmbridge.array_api as xp

def work(i, value):
    n, kind = (1000, 100_000)[value % 8 == 0], ("shared", "device")[i % 4 // 2]
    b = ub.full(n, value % 50, "float32", usm_type=kind)
    b = b + b
    s = xp.sum(b)
    b.__sycl_usm_array_interface__
    s.__dlpack__(stream=s.sycl_queue)
    if kind == "shared":
        read = np.from_dlpack(b, device="cpu") if i % 2 else np.asarray(b)
        assert (read == 2 * (value % 50)).all()
    assert float(s) == int(s) == s.item() == 2 * n * (value % 50)
"""

# All threads call dpnp without the lock of array_api. dpnp's static initializers deadlock if several threads make its
# first calls, so one thread makes them. A dpnp array is imported by from_dlpack, because its dictionary waits for the
# queue inside SYCL, which deadlocks with dpnp's submissions under the GIL.
# Every second thread has a queue of its own; dpctl's queues are out-of-order.
DPNP = """
import dpctl
import dpnp.tensor as dpt
queues = [dpctl.SyclQueue() if i % 2 else None for i in range(8)]

def work(i, value):
    a = ub.full(1000, value, "float32", sycl_queue=queues[i])
    t = dpt.asarray(a)
    r = dpt.add(t, t)
    u = ub.from_dlpack(r)
    assert u.sycl_queue == (queues[i] or a.sycl_queue)
    assert (np.asarray(u) == 2 * value).all()
    assert float(ub.from_dlpack(dpt.sum(r))) == 2000 * value

work(0, 1)
"""

# All threads call functions of array_api. Those whose size of the result depends on the values (nonzero, a mask,
# unique_values) wait inside SYCL, so that without the lock of array_api this hangs within seconds.
FUNCTIONS = """
import random
import usmbridge.array_api as xp
index = np.arange(200)

def work(i, value):
    n = value % 200
    a = ub.full(200, value, "float32")
    b = ub.asarray(index, usm_type="shared", copy=True)
    match random.randrange(10):
        case 0: assert int(xp.sum(xp.astype(b < n, "int64"))) == n
        case 1: assert xp.nonzero(b < n)[0].shape == (n,)
        case 2: assert (np.asarray(xp.sort(b, descending=True)) == index[::-1]).all()
        case 3: assert xp.unique_values(a).tolist() == [value]
        case 4: assert (np.asarray(b[b < n]) == index[:n]).all()
        case 5: assert (np.asarray(xp.take(b, b)) == index).all()
        case 6: assert (np.asarray(xp.cumulative_sum(b)) == np.cumsum(index)).all()
        case 7:
            b[b > 100] = value
            assert int(xp.max(b)) == max(value, 100)
        case 8: assert (np.asarray(xp.concat([b, b])) == np.tile(index, 2)).all()
        case 9: assert float(xp.mean(a)) == value and str(a)
"""


def check(work, setup="", seconds=SECONDS):
    assert program("-c", PROGRAM.format(setup=setup, seconds=seconds, work=work), timeout=seconds * 10 + 600) == "done\n"


@pytest.mark.parametrize("work", [EXPORT, MIX, DPNP, FUNCTIONS], ids=["export", "mix", "dpnp", "functions"])
def test_threads(device, dpnp, work):
    check(work, seconds=SECONDS if work is EXPORT else SECONDS * 0.4)


def test_threads_after_dpnp(device, dpnp):
    """Queues from before usmbridge opens SYCL keep the order of the driver. Waits poll for their events."""
    check(EXPORT, "import dpnp; dpnp.ones(3) + 1", SECONDS * 0.4)


SETTLE = """
import faulthandler, threading, time
import usmbridge as ub, usmbridge.array_api as xp
faulthandler.dump_traceback_later({seconds} + 60, exit=True)
end = time.monotonic() + {seconds}

def show(n):
    a = ub.ones(n, "float32", usm_type="shared")
    a.sycl_queue  # the end of work on it is found by a wait

def allocate():
    while time.monotonic() < end:
        for i in range(8): show(1 << 16 | i << 12)

def compute():
    while time.monotonic() < end:
        xp.where(x > 0, x, 2.0)
        with xp._lock: show(3 << 16)  # as a function does whose results NumPy computed

x = ub.ones((64, 64), "float32", usm_type="shared")
xp.sum(x)
threads = [threading.Thread(target=f) for f in (allocate, compute) * 2]
for t in threads: t.start()
for t in threads: t.join()
print("done")
"""


def test_allocations_inside_and_beside_computations(device, dpnp):
    """A request that waits for the work of others does not keep the memory of a computation waiting that it waits for."""
    assert program("-c", SETTLE.format(seconds=SECONDS * 1.5), timeout=SECONDS * 10 + 600) == "done\n"
