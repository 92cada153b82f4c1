"""Arrays in reference cycles with the objects whose memory they share: the collector frees them and nothing crashes."""

import subprocess

import pytest
from conftest import HOST, peer, sycl_device

# Each way makes an object from n bytes and imports it.
WAYS = {
    "memoryview": "ub.asarray(memoryview(bytearray(n)))",
    "memoryview of a memoryview": "ub.asarray(memoryview(memoryview(bytearray(n)))[1:])",
    "bytearray": "ub.asarray(bytearray(n))",
    "bytes": "ub.asarray(bytes(n))",
    "mmap": "ub.asarray(__import__('mmap').mmap(-1, n))",
    "array.array": "ub.asarray(__import__('array').array('b', bytes(n)))",
    "ndarray": "ub.asarray(__import__('numpy').zeros(n, 'uint8'))",
    "array interface": "ub.asarray(types.SimpleNamespace(keep=(x := __import__('numpy').zeros(n, 'uint8')), __array_interface__=x.__array_interface__))",
    "DLPack": "ub.from_dlpack(__import__('numpy').zeros(n, 'uint8'))",
    "capsule": "ub.from_dlpack(ub.zeros(n, 'uint8', device='host').__dlpack__())",
    "Arrow": "ub.asarray(__import__('pyarrow').array(__import__('numpy').zeros(n, 'uint8')))",
    "dictionary": "ub.asarray(types.SimpleNamespace(keep=(x := ub.zeros(n, 'uint8')), __sycl_usm_array_interface__=x.__sycl_usm_array_interface__))",
    "dpctl memory": "ub.asarray(__import__('dpctl.memory').memory.MemoryUSMShared(n))",
    "frames": "(f := __import__('usmbridge._dask_frames')._dask_frames).loads(*f.dumps(ub.zeros(n, 'uint8', device='host')))",
    "own": "ub.zeros(n, 'uint8')",
}

# A caught exception that is kept refers to its frame, and the frame to the exception and to all local variables.
PROGRAM = """
import gc, os, types
import usmbridge as ub

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def keep(n):
    a = {way}
    view = a[1:]
    same = [a, ub.asarray(a), memoryview(view) if a.usm_type != "device" else None]
    same.append(same)
    try:
        raise KeyError(a)
    except KeyError as e:
        kept = e
    a.reshape(-1)[0]

n = 1 << 20
keep(n)
gc.collect()
before = resident()
for i in range({rounds}):
    keep(n)
    if i % 20 == 19: gc.collect()
gc.collect()
grown = resident() - before
assert grown < 500 * n, grown  # the address sanitizer keeps 256 MiB of freed memory
print("done")
"""


@pytest.mark.parametrize("name", WAYS)
def test_exceptions_that_are_kept(name):
    for module, of in (("numpy", ("ndarray", "array interface", "DLPack")), ("pyarrow", ("Arrow",)), ("dpctl", ("dictionary", "dpctl memory")),
                       ("distributed", ("frames",))):
        if name in of:
            peer(module)
    if name in ("dictionary", "dpctl memory"):
        sycl_device()
    p = subprocess.run([HOST, "-c", PROGRAM.format(way=WAYS[name], rounds=1000)], capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and p.stdout == "done\n" and not p.stderr, p.stdout + p.stderr
