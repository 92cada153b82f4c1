"""Checks usmbridge on CUDA devices: kinds of USM, copies, both protocols, and PyTorch, CuPy and JAX on the same memory.

Each check prints one line. A peer that is not installed is named and its checks are skipped. At most 256 MiB of
shared USM are in use: managed memory beyond the free memory of a card can hang it.
"""

import importlib
import sys
import traceback

import dpctl
import dpctl.memory
import numpy as np

import usmbridge as ub

KINDS = ("device", "shared", "host")
passed, failed = 0, []


def check(name, body):
    global passed
    try:
        print("ok    ", name, body() or "")
        passed += 1
    except Exception:
        print("FAILED", name)
        traceback.print_exc(limit=-3, file=sys.stdout)
        failed.append(name)


def peer(name):
    """Returns the module if it is installed and has a CUDA device, else None."""
    try:
        module = importlib.import_module(name)
        if name == "torch":
            available = module.cuda.is_available()
        elif name == "cupy":
            available = module.cuda.is_available()
        else:
            available = any(d.platform == "gpu" for d in module.devices())
    except Exception as e:
        print("skipped", name, type(e).__name__, str(e)[:100])
        return None
    print(name, module.__version__, "with a CUDA device" if available else "without a CUDA device: skipped")
    return module if available else None


devices = [d for d in dpctl.get_devices() if d.backend == dpctl.backend_type.cuda]
for d in devices:
    print(d.filter_string, "|", d.name, "|", d.driver_version, "|", d.global_mem_size >> 20, "MiB")
if not devices:
    sys.exit("no CUDA device is listed: see docs/gpu.md")


def host(a):
    return np.asarray(ub.asarray(a, device="host"))


def pointer(a):
    return a.__sycl_usm_array_interface__["data"][0]


def array(device, kind, values):
    a = ub.empty(values.shape, dtype=values.dtype, device=device.filter_string, usm_type=kind)
    a[...] = values
    return a


def rounds(n=3, count=4096):
    """Values that differ each round, because recycled memory hides stale reads."""
    for k in range(n):
        yield np.arange(count, dtype="f4") * (k + 2) + k


def check_copies(device, kind):
    for size in (1, 1000, 1 << 20, 8 << 20):
        for values in rounds(2, size):
            a = array(device, kind, values)
            assert (host(a) == values).all()
            a[::3] = a[::3] * 0 if kind != "device" else ub.zeros(a[::3].shape, dtype="f4", device=device.filter_string)
            expected = values.copy()
            expected[::3] = 0
            assert (host(a) == expected).all()


def check_alignment(device, kind):
    least = None
    for size in (1, 64, 4096, 3 << 20, 64 << 20 if kind != "shared" else 16 << 20):
        kept = [ub.empty((size,), dtype="u1", device=device.filter_string, usm_type=kind) for _ in range(4)]
        for a in kept:
            alignment = pointer(a) & -pointer(a)
            least = min(least or alignment, alignment)
            assert alignment >= 256, hex(pointer(a))
    return f"at least {least} bytes"


def check_dictionary(device, kind):
    for values in rounds():
        a = array(device, kind, values)
        memory = dpctl.memory.as_usm_memory(a)
        assert memory.sycl_device == device and memory.get_usm_type() == kind
        assert memory._pointer == pointer(a)
        assert bytes(memory.copy_to_host()) == values.tobytes()
        back = ub.asarray(memory)
        assert pointer(back) == pointer(a) and back.device.filter_string == device.filter_string


def check_oneapi(device, kind):
    for values in rounds():
        a = array(device, kind, values)
        assert a.__dlpack_device__() == (14, dpctl.get_devices().index(device)), a.__dlpack_device__()
        b = ub.from_dlpack(a)
        assert pointer(b) == pointer(a) and (host(b) == values).all()


def check_other_kinds(device):
    a = ub.ones((4,), dtype="f4", device=device.filter_string, usm_type="shared")
    a.__dlpack__(dl_device=(13, a.cuda.__dlpack_device__()[1]), max_version=(1, 1))
    h = ub.ones((4,), dtype="f4", device=device.filter_string, usm_type="host")
    h.__dlpack__(dl_device=(3, 0), max_version=(1, 1))
    for wrong in (lambda: a.cuda.__dlpack__(stream=0), lambda: h.__dlpack__(dl_device=(3, 0), stream=1),
                  lambda: a.__dlpack__(dl_device=(2, 99)), lambda: a.__dlpack__(dl_device=(10, 0))):
        try:
            wrong()
        except (ValueError, BufferError):
            continue
        raise AssertionError("an invalid request was answered")


def check_torch(torch, device, kind):
    index = array(device, kind, np.ones(1, "f4")).cuda.__dlpack_device__()[1]
    for values in rounds():
        a = array(device, kind, values)
        t = torch.from_dlpack(a.cuda)
        assert t.data_ptr() == pointer(a) and t.device.index == index
        assert (t.cpu().numpy() == values).all()
        t += 1  # asynchronous; the read below waits for it
        assert (host(a) == values + 1).all()
        u = torch.as_tensor(a, device=t.device)
        assert u.data_ptr() == pointer(a)
    x = torch.arange(4096, device=t.device, dtype=torch.float32)
    for k in range(3):
        x.mul_(2).add_(k)
        b = ub.from_dlpack(x)
        assert pointer(b) == x.data_ptr() and b.usm_type == "device"
        assert (host(b) == x.cpu().numpy()).all()
        b[:] = ub.full((4096,), k, dtype="f4", device=device.filter_string)
        assert float(x.sum()) == 4096 * k


def check_torch_streams(torch, device):
    """Kernels on torch's streams, which SYCL does not see: reads wait for them, and freed memory is not reused early."""
    count, side = 1 << 20, torch.cuda.Stream()
    for stream in (torch.cuda.default_stream(), side):
        for k in range(3):
            a = array(device, "device", np.full(count, k, "f4"))
            with torch.cuda.stream(stream):
                t = torch.from_dlpack(a.cuda)
                torch.cuda._sleep(100_000_000)
                t.add_(1)
            assert (host(a) == k + 1).all(), "a read missed work of torch's stream"
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000_000)
                t.add_(1)
            address = pointer(a)
            del a, t
            late = [ub.full((count,), 5, dtype="f4", device=device.filter_string, usm_type="device") for _ in range(8)]
            torch.cuda.synchronize()
            assert all((host(b) == 5).all() for b in late), "memory was reused while torch worked on it"
            del late
    # Work of our queue before the export is visible on torch's stream.
    for k in range(20):
        a = array(device, "device", np.full(count, k, "f4"))
        a[:] = ub.full((count,), k + 1, dtype="f4", device=device.filter_string)
        with torch.cuda.stream(side):
            assert float(torch.from_dlpack(a.cuda).sum()) == count * (k + 1)
    return hex(address)


def check_cupy(cupy, device, kind):
    for values in rounds():
        a = array(device, kind, values)
        for x in (cupy.from_dlpack(a.cuda), cupy.asarray(a)):
            assert x.data.ptr == pointer(a) and (x.get() == values).all()
        x += 1
        assert (host(a) == values + 1).all()
    y = cupy.arange(4096, dtype="f4").reshape(64, 64).T
    for way in (ub.from_dlpack, ub.asarray):
        b = way(y)
        assert pointer(b) == y.data.ptr and (host(b) == y.get()).all() and b.shape == (64, 64)
    m = cupy.ndarray((16,), "f4", cupy.cuda.malloc_managed(64))
    m[...] = 3
    assert ub.from_dlpack(m).usm_type == "shared"


def check_jax(jax, device, kind):
    for values in rounds():
        a = array(device, kind, values)
        x = jax.dlpack.from_dlpack(a.cuda)
        assert x.unsafe_buffer_pointer() == pointer(a) and float((x * 2).sum()) == float((values * 2).sum())
        y = x + 1
        y.block_until_ready()
        b = ub.from_dlpack(y)
        assert pointer(b) == y.unsafe_buffer_pointer() and (host(b) == values + 1).all()


def check_interface(device, kind):
    if kind == "host":
        assert not hasattr(array(device, kind, np.zeros(1)), "__cuda_array_interface__")
        return "absent"
    a = array(device, kind, np.arange(24, dtype="f4").reshape(4, 6))[1:, ::2]
    d = a.__cuda_array_interface__
    assert d["version"] == 3 and d["shape"] == (3, 3) and d["strides"] == (24, 8) and d["typestr"] == "<f4", d
    assert d["data"] == (pointer(a) + 4 * a.__sycl_usm_array_interface__.get("offset", 0), False), d
    assert d.get("stream", 1) != 0
    return str(d.get("stream"))


def check_pool(device):
    kept = [ub.empty((64 << 20,), dtype="u1", device=device.filter_string, usm_type="device") for _ in range(8)]
    addresses = {pointer(a) for a in kept}
    assert len(addresses) == 8
    del kept
    again = ub.empty((64 << 20,), dtype="u1", device=device.filter_string, usm_type="device")
    return "reused" if pointer(again) in addresses else "returned to the driver"


for device in devices:
    name = device.filter_string
    for kind in KINDS:
        for body in (check_alignment, check_copies, check_dictionary, check_oneapi, check_interface):
            check(f"{body.__name__[6:]} {kind} {name}", lambda: body(device, kind))
    check(f"other device types {name}", lambda: check_other_kinds(device))
    check(f"pool {name}", lambda: check_pool(device))
if len(devices) > 1:
    a = array(devices[0], "device", np.arange(8, dtype="f4"))
    check("copy between devices", lambda: (host(a.to_device(devices[1].filter_string)) == np.arange(8)).all())
for name, body in (("torch", check_torch), ("cupy", check_cupy), ("jax", check_jax)):
    module = peer(name)
    if module is not None:
        for kind in ("device", "shared"):
            check(f"{name} {kind}", lambda: body(module, devices[0], kind))
        if name == "torch":
            check("torch's streams", lambda: check_torch_streams(module, devices[0]))
print(f"{passed} passed, {len(failed)} failed: {', '.join(failed)}" if failed else f"{passed} passed")
sys.exit(1 if failed else 0)
