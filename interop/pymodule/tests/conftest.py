"""Fixtures: peers, devices, and a check that each test gives back its memory."""

import ctypes
import functools
import gc
import importlib
import importlib.metadata
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, settings

import old_numpy
import usmbridge as ub

# The first use of SYCL in this process and in those of run(): USMB_FIRST=dpctl creates dpctl's queue before the first
# Array, and USMB_FIRST=array shows the queues of Arrays before dpctl is imported.
FIRST = {
    "": "",
    "dpctl": "import dpctl.memory; dpctl.memory.MemoryUSMShared(8)\n",
    "array": "for d in ub.devices():\n"
    "    for kind in () if d.filter_string == 'host' else ('device', 'shared', 'host'):\n"
    "        ub.empty(1, usm_type=kind, device=d).__sycl_usm_array_interface__\n",
}[os.environ.get("USMB_FIRST", "")]
exec(FIRST)

# Hypothesis draws the same examples each time.
settings.register_profile("same", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("same")

BUILT_IN = ub.__spec__.origin == "built-in"
# The interpreter for tests that need another process.
HOST = os.environ.get("USMBRIDGE_TEST_HOST") or (os.readlink("/proc/self/exe") if BUILT_IN else sys.executable)


def pytest_collection_modifyitems(items):
    """Skips the tests that an old NumPy cannot pass, with the reason."""
    try:
        version = tuple(int(n) for n in importlib.metadata.version("numpy").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        return
    for item in items:
        why = old_numpy.reason(version, item.path.stem, item.name.split("[")[0])
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


# Processes with the same directory in USMB_CLAIMS divide the files of tests: each runs those that it claims first.
CLAIMS = os.environ.pop("USMB_CLAIMS", None)


@functools.cache
def claimed(path):
    try:
        open(os.path.join(CLAIMS, "-".join(path.parts[-2:])), "x").close()
    except FileExistsError:
        return False
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if not CLAIMS:
        return None
    if not claimed(item.path):
        return True
    if nextitem and nextitem.path != item.path:  # pytest must not keep what is set up for a file of another process
        return item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    return None


def peer(name):
    """Imports a module. Skips the test if it is missing, or fails if USMBRIDGE_REQUIRE_PEERS is set."""
    if os.environ.get("USMBRIDGE_REQUIRE_PEERS"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


def sycl_device():
    found = [d for d in ub.devices() if d.filter_string != "host"]
    if found:
        return found[0]
    assert not os.environ.get("USMBRIDGE_REQUIRE_SYCL"), "a SYCL device is required and there is none"
    pytest.skip("no SYCL device")


def places(kinds=("device", "shared", "host")):
    """Yields the arguments for new arrays on the host backend and in each kind of USM."""
    yield dict(device="host")
    for kind in kinds:
        yield dict(device=sycl_device(), usm_type=kind)


SOON = 300  # seconds; on an idle machine the results come immediately


def soon(reached, problem=ub.share.stats):
    """Waits until a condition is true. problem returns what to report if it stays false."""
    end = time.monotonic() + SOON
    while not reached():
        assert time.monotonic() < end, problem()
        time.sleep(0.005)


def leases_end(*counters):
    """Waits until this process has no leases, and after trim() nothing mapped and none of other counters of share."""
    gc.collect()
    soon(lambda: ub.share.stats()["leases"] == ub.share.stats()["opened"] == 0)
    ub.trim()
    soon(lambda: all(ub.share.stats()[counter] == 0 for counter in ("mapped", *counters)))


# The element types of NumPy.
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]


def program(*args, expect=0, timeout=600, cwd=None, **env):
    """Runs the interpreter with arguments and other variables of the environment, without those that are None, and returns
    its output."""
    env = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    p = subprocess.run([HOST, *map(str, args)], capture_output=True, text=True, timeout=timeout, cwd=cwd, env=env)
    assert p.returncode == expect, p.stdout + p.stderr
    return p.stdout


def run(code, expect=0, first=FIRST, **env):
    """Runs code in an interpreter of its own and returns its output. first="" is for code that must load dpctl itself."""
    return program("-c", "import usmbridge as ub, sys, os, gc\n" + first + code, expect=expect, **env)


def in_child(good):
    """Calls a function in a forked child and checks that it returns True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if good() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def in_threads(*works):
    """Runs each function in a thread of its own and waits for all."""
    threads = [threading.Thread(target=work) for work in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@pytest.fixture
def floats():
    """The address of 64 numbers of float32, [0, …, 63]."""
    numbers = (ctypes.c_float * 64)(*range(64))
    yield ctypes.addressof(numbers)
    del numbers


@pytest.fixture
def np():
    return peer("numpy")


@pytest.fixture
def device():
    return sycl_device()


@pytest.fixture
def dpctl(device):
    m = peer("dpctl")
    importlib.import_module("dpctl.memory")
    return m


@pytest.fixture
def separate(device, dpctl):
    """Whether pointers of another context are refused. The contexts of a CUDA device share its memory."""
    other = dpctl.SyclContext([dpctl.SyclDevice(device.filter_string)])
    memory = dpctl.memory.MemoryUSMDevice(64, queue=dpctl.SyclQueue(other, dpctl.SyclDevice(device.filter_string)))
    return memory.get_usm_type(dpctl.SyclQueue(device.filter_string).sycl_context) not in ("device", "shared", "host")


@pytest.fixture
def dpt(device):
    return peer("dpnp.tensor")


@pytest.fixture
def dpnp(device):
    return peer("dpnp")


@pytest.fixture
def numba():
    return peer("numba")


@pytest.fixture
def tvm_ffi():
    return peer("tvm_ffi")


@pytest.fixture
def pyarrow():
    return peer("pyarrow")


# Memory of a device that libraries of CUDA were shown is given back by calls that wait for the device, never in the background.
ON_CUDA = any(d.filter_string.startswith("cuda:") for d in ub.devices())


def live(seconds=1):
    """Returns the number of referenced buffers once garbage is collected and background work is done. The
    collector finds an owner behind an Array only after the Array, so it takes several rounds; other threads
    drop their references later."""
    end, i = time.monotonic() + seconds, 0
    while (n := ub.stats()["live_buffers.all.current"]) > live.base and time.monotonic() < end:
        if i < 5 or i % 100 == 0:
            gc.collect()
            if ON_CUDA:
                ub.trim()
        else:
            time.sleep(0.01)
        i += 1
    return n


live.base = 0


@pytest.fixture(autouse=True)
def balanced():
    """Checks that each test gives back all memory that it took or imported. Older objects, mainly the modules of
    dpnp, Numba and Dask, are frozen first: the hundreds of collections of the suite then visit the objects of the
    test and not a million others."""
    gc.freeze()
    live.base = ub.stats()["live_buffers.all.current"]
    yield
    assert live(60) <= live.base, "memory was not given back"


SPINS = """
__kernel void spin(ulong unused, uint spins) {
    uint x = spins + 1;
    for (uint i = 0; i < spins; i++) { x ^= x << 13; x ^= x >> 17; x ^= x << 5; }
    if (x == 0) *(__global int *)unused = 1;
}
"""


@pytest.fixture(scope="module")
def spin():
    """Returns a function that keeps a queue busy for so many seconds, roughly."""
    dpctl = peer("dpctl")
    if sycl_device().backend != "opencl":
        pytest.skip("needs a kernel in OpenCL C")
    program = importlib.import_module("dpctl.program")
    kept = ub.ones(1).sycl_queue
    late = program.create_program_from_source(kept, SPINS).get_sycl_kernel("spin")
    return lambda queue, seconds: queue.submit_async(late, [ctypes.c_uint64(0), ctypes.c_uint32(int(seconds * 300e6))], [1])
