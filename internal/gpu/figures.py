"""Figures of the pool, of copies and of hand-overs on the first CUDA device, beside CUDA's own calls and the peers."""

import ctypes
import time

import dpctl
import numpy as np

import usmbridge as ub

device = next(d for d in dpctl.get_devices() if d.backend == dpctl.backend_type.cuda).filter_string
ub.zeros((1,), device=device, usm_type="device")  # loads the driver
cuda = ctypes.CDLL("libcuda.so.1")
address = ctypes.c_uint64()


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        raise RuntimeError(f"{name}: error {status}")


def best(body, seconds=0.3, least=5):
    """Returns the least time of one call in seconds."""
    body()
    result, end, n = float("inf"), time.perf_counter() + seconds, 0
    while n < least or time.perf_counter() < end:
        begin = time.perf_counter()
        body()
        result, n = min(result, time.perf_counter() - begin), n + 1
    return result


def repeat(body, times):
    def many():
        for _ in range(times):
            body()

    return best(many) / times


def optional(name):
    try:
        module = __import__(name)
        return module if module.cuda.is_available() else None
    except Exception:
        return None


torch, cupy = optional("torch"), optional("cupy")


def cuda_malloc(size):
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    call("cuMemFree_v2", address)


def cuda_malloc_async(size):
    call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(size), None)
    call("cuMemFreeAsync", address, None)


print("allocate and free device memory, us (the CUDA rows include two calls by ctypes, see the last row):")
rows = {
    "usmbridge": lambda size: ub.empty((size,), dtype="u1", device=device, usm_type="device"),
    "cuMemAlloc, cuMemFree": cuda_malloc,
    "cuMemAllocAsync, cuMemFreeAsync": cuda_malloc_async,
}
if torch:
    rows["torch.empty"] = lambda size: torch.empty((size,), dtype=torch.uint8, device="cuda")
if cupy:
    rows["cupy.empty"] = lambda size: cupy.empty((size,), dtype="u1")
sizes = (4 << 10, 1 << 20, 64 << 20)
for name, body in rows.items():
    times = []
    for size in sizes:
        try:
            times.append(f"{repeat(lambda: body(size), 50) * 1e6:9.2f}")
        except Exception as e:
            times.append(f"{str(e)[:20]:>9}")
    print(f"  {name:32}", *times)
version = ctypes.c_int()
print(f"  {'two calls by ctypes':32} {2e6 * repeat(lambda: call('cuDriverGetVersion', ctypes.byref(version)), 500):9.2f}")

size = 256 << 20
pageable = np.ones(size, "u1")
ours = ub.empty((size,), dtype="u1", device=device, usm_type="device")
pinned = ub.ones((size,), dtype="u1", device=device, usm_type="host")
print("copy 256 MiB, GB/s:            to the device   to the host")


def synchronized(body):
    def both():
        body()
        call("cuCtxSynchronize")

    return both


def bandwidth(name, there, back):
    print(f"  {name:28}", *(f"{size / best(synchronized(b)) / 1e9:12.1f}" for b in (there, back)))


def to_pinned():
    pinned[...] = ours


def from_pinned():
    ours[...] = pinned


def from_pageable():
    ours[...] = pageable


at = ctypes.c_uint64(ours.__sycl_usm_array_interface__["data"][0])
host = ctypes.c_void_p(pageable.ctypes.data)
staged = ctypes.c_void_p(pinned.__sycl_usm_array_interface__["data"][0])
bytes_ = ctypes.c_size_t(size)
bandwidth("usmbridge, plain memory", from_pageable, lambda: ours.asnumpy())
bandwidth("cuMemcpy, plain memory", lambda: call("cuMemcpyHtoD_v2", at, host, bytes_), lambda: call("cuMemcpyDtoH_v2", host, at, bytes_))
bandwidth("usmbridge, host USM", from_pinned, to_pinned)
bandwidth("cuMemcpy, host USM", lambda: call("cuMemcpyHtoD_v2", at, staged, bytes_), lambda: call("cuMemcpyDtoH_v2", staged, at, bytes_))
if torch:
    t = torch.from_dlpack(ours.cuda)
    p = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    bandwidth("torch, pinned memory", lambda: t.copy_(p), lambda: p.copy_(t))

print("hand-over to torch and back, ns:")
small = ub.zeros((1024,), dtype="f4", device=device, usm_type="device")
if torch:
    print(f"  torch.from_dlpack(usmbridge)     {repeat(lambda: torch.from_dlpack(small.cuda), 200) * 1e9:9.0f}")
    tensor = torch.zeros(1024, device="cuda")
    print(f"  usmbridge.from_dlpack(torch)     {repeat(lambda: ub.from_dlpack(tensor), 200) * 1e9:9.0f}")
if torch and cupy:
    array = cupy.zeros(1024, "f4")
    print(f"  torch.from_dlpack(cupy)          {repeat(lambda: torch.from_dlpack(array), 200) * 1e9:9.0f}")
    print(f"  cupy.from_dlpack(torch)          {repeat(lambda: cupy.from_dlpack(tensor), 200) * 1e9:9.0f}")
if cupy:
    print(f"  cupy.from_dlpack(usmbridge)      {repeat(lambda: cupy.from_dlpack(small.cuda), 200) * 1e9:9.0f}")
