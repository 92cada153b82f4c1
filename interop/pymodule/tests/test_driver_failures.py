"""Failures of the real SYCL library, in processes of their own (faults.py)."""

import os
import subprocess
from pathlib import Path

import pytest
from conftest import HOST, peer, sycl_device

import faults



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
    environment = faults.environment(tmp_path, **options)
    p = subprocess.run([HOST, "-c", code], capture_output=True, text=True, env=environment, timeout=600)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


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
