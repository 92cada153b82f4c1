"""Failures of the real SYCL library, in processes of their own (faults.py)."""

import os
import time
from pathlib import Path

from conftest import peer, program, sycl_device

import faults

HUNT = int(os.environ.get("USMBRIDGE_HUNT", "0"))  # seconds


START = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import usmbridge as ub
from faults import Faults
faults = Faults()
"""
OPEN = START + "ub.devices()\n"


def run(tmp_path, code, **options):
    """Runs code in a process with the library, and returns its output."""
    sycl_device(), peer("dpctl")
    return program("-c", code, timeout=600 + HUNT, **faults.environment(tmp_path, **options))


# Each way must raise the failure of the work on x, or leave it for the next access.
WAYS = """
import operator, struct
import numpy as np
n = 1000
ways = dict(
    asarray=np.asarray, array=np.array, asanyarray=np.asanyarray, ascontiguousarray=np.ascontiguousarray, asfortranarray=np.asfortranarray,
    converted=lambda x: np.asarray(x, "float64"), copied=lambda x: np.array(x, copy=True), nested=lambda x: np.array([x, x]),
    mixed=lambda x: np.array([x, np.zeros(n)]), stack=lambda x: np.stack([x, x]), concatenate=lambda x: np.concatenate([x, x]),
    mean=np.mean, sum=np.sum, sort=np.sort, where=lambda x: np.where(x > 0, x, 0), dot=lambda x: np.dot(x, x), add=lambda x: np.add(x, 1),
    reduce=np.add.reduce, at=lambda x: np.add.at(np.zeros(n), [0], x[0]), out=lambda x: np.negative(np.zeros(n, "float32"), out=x),
    left=lambda x: np.zeros(n) + x, right=lambda x: x + np.zeros(n), equal=lambda x: x == np.zeros(n), inplace=lambda x: operator.iadd(np.zeros(n), x),
    copyto=lambda x: np.copyto(np.zeros(n), x), assigned=lambda x: operator.setitem(np.zeros(n), slice(None), x),
    index=lambda x: np.arange(n)[x.astype("int64")], fromiter=lambda x: np.fromiter(x, "float32"), frombuffer=lambda x: np.frombuffer(x, "float32"),
    interface=lambda x: x.__array_interface__, method=lambda x: x.__array__(), asnumpy=lambda x: x.asnumpy(), memoryview=memoryview, bytes=bytes,
    unpack=lambda x: struct.unpack_from("f", x), tolist=lambda x: x.tolist(), tobytes=lambda x: x.tobytes(), item=lambda x: x[0].item(),
    from_dlpack=np.from_dlpack, allclose=lambda x: np.allclose(x, x), save=lambda x: np.save("/dev/null", x), copy=lambda x: x.copy(), text=str,
)
failure = "work on the device failed after its submission"
for kind in "shared", "host":
    for name, way in ways.items():
        x = ub.ones(n, "float32", usm_type=kind)
        x.__sycl_usm_array_interface__  # a consumer may have submitted work
        before = faults.failed()
        faults.fail("DPCTLEvent_WaitAndThrow", 1)
        seen = []
        for access in way, lambda x: x[0].item():
            try:
                access(x)
            except Exception as e:  # NumPy raises some as the cause of another
                seen.append(any(failure in str(x) for x in (e, e.__cause__)))
        assert faults.failed() == before + 1, name
        assert any(seen), f"{kind}: {name}: the failure is hidden"
        assert x.asnumpy()[-1] in (1, 0, -1) and np.asarray(x).shape == (n,), name  # reported: in use again
print(len(ways))
"""


def test_ways_into_numpy_keep_the_failure(tmp_path):
    peer("numpy")
    assert int(run(tmp_path, OPEN + WAYS)) > 40


def test_first_queue_fails(tmp_path):
    """A failure at the first use is raised, instead of host memory, and the next use works."""
    code = """
try:
    print(ub.zeros(3).device)
except RuntimeError as e:
    assert "creating a queue on opencl" in str(e), e
    print("raised")
print(ub.zeros(3).usm_type)
"""
    assert run(tmp_path, START + code, first="DPCTLQueue_Create").split() == ["raised", "shared"]


def test_failed_imports_name_the_failure(tmp_path):
    peer("dpnp.tensor")
    code = """
import dpctl.memory

class Holder:
    def __init__(self, m, syclobj):
        self.__sycl_usm_array_interface__ = dict(m.__sycl_usm_array_interface__, syclobj=syclobj)

def refused(function, f):
    faults.fail(function, 1)
    try:
        f()
    except RuntimeError as e:
        assert "the SYCL library reported a failure" in str(e) or "knows no such device" in str(e), e
        assert "agree" not in str(e), e
    else:
        raise AssertionError(function)
    f()

m = dpctl.memory.MemoryUSMShared(64)
for function in "DPCTLUSM_GetPointerDevice", "DPCTLQueue_GetContext":
    refused(function, lambda: ub.asarray(Holder(m, m.sycl_queue._get_capsule())))
refused("DPCTLUSM_GetPointerDevice", lambda: ub.asarray(Holder(m, m.sycl_queue)))

import dpnp.tensor
t = dpnp.tensor.ones(3)
capsule = t.__dlpack__()
for o in t, capsule:  # a capsule stays with its owner after a failure
    refused("DPCTLUSM_GetPointerDevice", lambda: ub.from_dlpack(o))
"""
    run(tmp_path, OPEN + code)
    code = """
a = ub.zeros(3, usm_type="shared")
for function, o in ("DPCTLQueue_Copy", a.sycl_queue), ("DPCTLContext_Copy", a.sycl_context):
    faults.fail(function, 1)
    try:
        o._get_capsule()
    except RuntimeError as e:
        assert "copying it: the SYCL library reported a failure" in str(e), e
    else:
        raise AssertionError(function)
    o._get_capsule()
"""
    run(tmp_path, OPEN + code)


RANDOM = """
import gc, pickle, random, time
import numpy as np
import dpctl.memory

class Holder:
    def __init__(self, m):
        self.m, self.__sycl_usm_array_interface__ = m, m.__sycl_usm_array_interface__

def exchange(r):
    kinds = ["device", "shared", "host"]
    a = ub.full(100, 7, "int32", usm_type=r.choice(kinds))
    for f in r.sample(uses, 4):
        f(a, r)
    b = ub.zeros_like(a)
    b[...] = a
    assert b.asnumpy().tolist() == [7] * 100

uses = [
    lambda a, r: ub.asarray(Holder(a)),
    lambda a, r: ub.asarray(Holder(dpctl.memory.MemoryUSMShared(64))),
    lambda a, r: ub.from_dlpack(a),
    lambda a, r: a.__dlpack__(),
    lambda a, r: a.copy(),
    lambda a, r: a.to_device("host"),
    lambda a, r: a.astype("float32").fill(2),
    lambda a, r: (a.sycl_queue, a.sycl_context, a.sycl_queue._get_capsule()),
    lambda a, r: pickle.loads(pickle.dumps(a)),
    lambda a, r: ub.zeros(r.randrange(1, 1 << 20), usm_type="shared").tolist()[:1],
    lambda a, r: np.asarray(a) if a.usm_type != "device" else a.asnumpy(),
    lambda a, r: str(a),
]

exchange(random.Random(0))  # one-time work
raised, n, live, end = 0, 0, None, time.monotonic() + HUNT
while n < 300 or time.monotonic() < end:
    r = random.Random(n)
    if n == 100: live = ub.stats()["live_buffers.all.current"]
    if n % 20 == 0: faults.rate(r.choice([1000, 20000, 200000]))
    try:
        exchange(r)
    except (RuntimeError, MemoryError, BufferError) as e:
        raised += 1
        del e
    n += 1
faults.rate(0)
for n in range(10):
    exchange(random.Random(n))
for _ in range(5): gc.collect()
assert raised > 20, raised
assert ub.stats()["live_buffers.all.current"] <= live, (live, ub.stats())
print(f"{faults.failed()} faults")
"""


def test_random_failures(tmp_path):
    """Calls that fail at random raise an error, and leave nothing behind; in check-long for USMBRIDGE_HUNT seconds."""
    peer("numpy")
    print(run(tmp_path, OPEN + f"HUNT = {HUNT}\n" + RANDOM, seed=time.time_ns()))
