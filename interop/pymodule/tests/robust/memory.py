"""Memory of the harness: a host window between inaccessible pages, and USM of dpctl."""

import ctypes as ct
import functools
import glob
import importlib
import mmap
import os

import usmbridge as ub

PAGE = mmap.PAGESIZE
libc = ct.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ct.c_void_p, ct.c_size_t, ct.c_int]


class Window:
    """size bytes (whole pages) of distinct contents. Access to the byte before or after ends the process."""

    def __init__(self, size=PAGE):
        self.map = mmap.mmap(-1, size + 2 * PAGE)
        self.cells = (ct.c_ubyte * (size + 2 * PAGE)).from_buffer(self.map)
        start = ct.addressof(self.cells)
        self.address, self.size = start + PAGE, size
        ct.memmove(self.address, bytes((i * 7 + (i >> 8)) & 255 for i in range(size)), size)
        for guard in (start, self.address + size):
            if libc.mprotect(guard, PAGE, 0) != 0:
                raise OSError(ct.get_errno(), "mprotect")

    def bytes(self):
        return ct.string_at(self.address, self.size)


@functools.cache
def window():
    return Window()


def sycl():
    """Returns the first SYCL device, or None if there is none and none is required."""
    found = [d for d in ub.devices() if d.filter_string != "host"]
    assert found or not os.environ.get("USMBRIDGE_REQUIRE_SYCL"), "a SYCL device is required and there is none"
    return found[0] if found else None


@functools.cache
def dpctl():
    m = importlib.import_module("dpctl")
    importlib.import_module("dpctl.memory")
    return m


@functools.cache
def queue():
    """Returns dpctl's queue for the device, in the default context."""
    return dpctl().SyclQueue(sycl().filter_string)


@functools.cache
def foreign_queue():
    """Returns a queue whose context is not the platform's default one."""
    d = dpctl().SyclDevice(sycl().filter_string)
    return dpctl().SyclQueue(dpctl().SyclContext([d]), d)


@functools.cache
def usm(kind, size=4096):
    """Returns a dpctl memory object. kind is device, shared, host, or foreign (device memory of another context)."""
    memory = dpctl().memory
    types = {"device": memory.MemoryUSMDevice, "shared": memory.MemoryUSMShared, "host": memory.MemoryUSMHost}
    m = types.get(kind, memory.MemoryUSMDevice)(size, queue=foreign_queue() if kind == "foreign" else queue())
    m.copy_from_host(window().bytes()[:size])
    return m


@functools.cache
def lookup():
    """DPCTLUSM_GetPointerType: a check of pointers that is independent of the module."""
    lib = ct.CDLL(glob.glob(os.path.join(os.path.dirname(dpctl().__file__), "libDPCTLSyclInterface.so*"))[0])
    f = lib.DPCTLUSM_GetPointerType
    f.argtypes, f.restype = [ct.c_void_p, ct.c_void_p], ct.c_int
    return f


def pointer_type(address, q=None):
    """Returns the type of a pointer, 0 if it is not USM of that queue's context."""
    if not 0 < address < 1 << 64:
        return 0
    return lookup()(address, (q or queue()).sycl_context.addressof_ref())


KINDS = ("shared", "device", "host", "foreign")


@functools.cache
def places():
    """Returns the places of this machine that tensors can be in."""
    return ("window",) + (KINDS if sycl() else ())


def base(place):
    """Returns the address and size of a place."""
    if place == "window":
        return window().address, window().size
    m = usm(place)
    return m._pointer, m.nbytes


def dl_device(place):
    return (1, 0) if place == "window" else sycl().dlpack_device


@functools.cache
def cuda_devices(place):
    """Returns the DLPack devices under which libraries of CUDA know the memory of a place."""
    if place == "window" or not sycl().filter_string.startswith("cuda:"):
        return []
    device = ub.asarray(usm(place)).cuda.__dlpack_device__()
    return [device, (13, device[1])] if place == "shared" else [device]


def settled():
    """Enters the module, which releases deferred owners, and those of memory that was shown, whose work has ended."""
    for _ in range(3):
        ub.zeros(0, device="host")
    ub.stats()
    if any(d.backend == "cuda" for d in ub.devices()):
        ub.trim()  # memory of such devices that CUDA was shown is released by calls that wait


@functools.cache
def threads():
    f = libc.pthread_create
    f.argtypes = [ct.POINTER(ct.c_ulong), ct.c_void_p, ct.c_void_p, ct.c_void_p]
    libc.pthread_join.argtypes = [ct.c_ulong, ct.c_void_p]
    return f, libc.pthread_join


def on_thread(function, argument):
    """Runs a C function of one pointer on a thread that is unknown to Python, with the GIL released."""
    create, join = threads()
    t = ct.c_ulong()
    if create(ct.byref(t), None, function, argument) == 0:
        join(t, None)
