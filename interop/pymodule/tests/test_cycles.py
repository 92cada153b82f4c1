"""Arrays in reference cycles with the objects whose memory they share: the collector frees them and nothing crashes."""

import subprocess

import pytest
from conftest import HOST, peer, sycl_device

# By the module that they need: ways to make an object from n bytes and import it.
WAYS = {
    "": [
        "ub.asarray(memoryview(bytearray(n)))", "ub.asarray(memoryview(memoryview(bytearray(n)))[1:])", "ub.asarray(bytearray(n))", "ub.asarray(bytes(n))",
        "ub.asarray(__import__('mmap').mmap(-1, n))", "ub.asarray(__import__('array').array('b', bytes(n)))",
        "ub.from_dlpack(ub.zeros(n, 'uint8', device='host').__dlpack__())", "ub.zeros(n, 'uint8')",
    ],
    "numpy": [
        "ub.asarray(numpy.zeros(n, 'uint8'))", "ub.from_dlpack(numpy.zeros(n, 'uint8'))",
        "ub.asarray(types.SimpleNamespace(keep=(x := numpy.zeros(n, 'uint8')), __array_interface__=x.__array_interface__))",
    ],
    "pyarrow": ["ub.asarray(pyarrow.array(__import__('numpy').zeros(n, 'uint8')))"],
    "dpctl.memory": [
        "ub.asarray(types.SimpleNamespace(keep=(x := ub.zeros(n, 'uint8')), __sycl_usm_array_interface__=x.__sycl_usm_array_interface__))",
        "ub.asarray(dpctl.memory.MemoryUSMShared(n))",
    ],
    "distributed": ["(f := __import__('usmbridge._dask_frames')._dask_frames).loads(*f.dumps(ub.zeros(n, 'uint8', device='host')))"],
}

# A caught exception that is kept refers to its frame, and the frame to the exception and to all local variables.
PROGRAM = """
import gc, os, types
import usmbridge as ub
{imports}

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def keep(make, n):
    a = make(n)
    view = a[1:]
    same = [a, ub.asarray(a), memoryview(view) if a.usm_type != "device" else None]
    same.append(same)
    try:
        raise KeyError(a)
    except KeyError as e:
        kept = e
    a.reshape(-1)[0]

n = 1 << 20
for way in {ways}:
    print(way, flush=True)
    make = eval("lambda n: " + way)
    keep(make, n)
    gc.collect()
    before = resident()
    for i in range(1000):
        keep(make, n)
        if i % 20 == 19: gc.collect()
    gc.collect()
    grown = resident() - before
    assert grown < 500 * n, grown  # the address sanitizer keeps 256 MiB of freed memory
"""


@pytest.mark.parametrize("module", WAYS)
def test_exceptions_that_are_kept(module):
    if module:
        peer(module)
    if "dpctl" in module:
        sycl_device()
    code = PROGRAM.format(imports=module and f"import {module}", ways=WAYS[module])
    p = subprocess.run([HOST, "-c", code], capture_output=True, text=True, timeout=600)
    assert p.returncode == 0 and p.stdout.splitlines() == WAYS[module] and not p.stderr, p.stdout + p.stderr
