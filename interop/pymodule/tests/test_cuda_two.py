"""Two simulated CUDA devices: the current context, failures, captures and host USM (make test-devices RUNS=cudas)."""

import os
import subprocess

import pytest

import usmbridge as ub

pytestmark = pytest.mark.skipif(
    sum(d.filter_string.startswith("cuda:") for d in ub.devices()) < 2, reason="needs two CUDA devices"
)

HEAD = """
import ctypes as ct, threading, time
import capi, usmbridge as ub
cu = ct.CDLL("libcuda.so.1")
ub.devices()
CONTEXTS = [ct.c_void_p() for _ in range(2)]
for d in range(2): cu.cuDevicePrimaryCtxRetain(ct.byref(CONTEXTS[d]), d)
def use(d): cu.cuCtxSetCurrent(None if d < 0 else CONTEXTS[d])
def current():
    c = ct.c_void_p(); cu.cuCtxGetCurrent(ct.byref(c))
    return next((d for d in range(2) if c.value == CONTEXTS[d].value), -1)
def full(d, kind, value=1, n=64): return ub.full((n,), value, dtype="u1", device=f"cuda:gpu:{d}", usm_type=kind)
def empty(n, kind="device"): return ub.empty(n, dtype="u1", device="cuda:gpu:0", usm_type=kind)
def hold(d, on): cu.simulated_hold(d, ct.c_void_p(0x50), on)
def malloc(d):
    p = ct.c_ulonglong(); use(d); assert cu.cuMemAlloc_v2(ct.byref(p), ct.c_size_t(4096)) == 0; use(-1)
    return p.value
def tensor(p, d): return capi.Producer(p, (64,), dtype=(1, 8, 1), device=(2, d))
"""

TAIL = """
cu.sim_with_gil.restype = ct.c_char_p
assert cu.sim_with_gil() == b""  # no call that can wait for a device has the GIL
"""


def run(body, head=HEAD, tail=TAIL):
    done = subprocess.run([os.readlink("/proc/self/exe"), "-c", head + body + tail], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("before", ["", "import dpctl", "import dpnp"])
def test_first_calls_leave_the_context(before):
    calls = ["devices()", "from_dlpack(tensor(p, 1))", "asarray(tensor(p, 1), device='host')", "zeros(4)", "empty(3, device='cuda:gpu:1')"]
    if before:
        calls = []
    calls += [f"zeros(4, device='cuda:gpu:1', usm_type='shared'){use}" for use in (
        "", ".sycl_queue", ".sycl_context", ".__sycl_usm_array_interface__", ".__dlpack__()", ".__dlpack__(stream='cuda:gpu:0')",
        ".cuda.__dlpack__()")]
    for first in calls:
        run(f"""
{before}
p = malloc(1)
use(0); ub.{first}; assert current() == 0, (current(), {first!r})
""", HEAD.replace("ub.devices()\n", ""))


@pytest.mark.parametrize("call", ["a + 1", "a.sum()", "a == a", "a[[1, 2]]", "a.sort()", "xp.sort(a)", "np.sin(a)", "xp.concat([a, a])"])
def test_computations_leave_the_context_and_are_refused(call):
    pytest.importorskip("dpnp")
    run(f"""
import numpy as np, usmbridge.array_api as xp
a = full(1, "shared")
use(0)
try: {call}
except RuntimeError as e: assert "has no kernels for cuda:gpu:1" in str(e), e
else: assert "concat" in {call!r}  # which copies
assert current() == 0, current()
""", tail="")  # dpnp frees its memory with the GIL


def test_questions_do_not_show_memory():
    run("""
a = full(1, "shared")
def shown():
    cu.sim_fail(b"cuCtxSynchronize", 0, 700, 1 << 30)
    try: a[1] = 1; return False
    except RuntimeError: return True
    finally: cu.sim_fail(b"", 0, 0, 0)
a._alone.cuda; hasattr(a, "cuda")
try: a.__dlpack__(dl_device=(2, 0))
except BufferError: pass
assert not shown()
a.cuda.__dlpack__()
assert shown()
""")


def test_owners_shown_to_cuda_are_bounded():
    run("""
taken = []
for _ in range(300):
    taken.append(tensor(malloc(1), 1)); b = ub.from_dlpack(taken[-1]); b.cuda.__dlpack__(); del b
kept = sum(not p.deleted for p in taken)
assert kept <= 70, kept
""")


@pytest.mark.parametrize("mine", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_current_context_stays(mine, kind):
    run(f"""
for d in range(2):
    a = full(d, "{kind}")
    for name, f in dict(empty=lambda: ub.empty(64, dtype="u1", device=a.device, usm_type="{kind}"), copy=a.copy,
                        full=lambda: full(d, "{kind}"), host=lambda: ub.asarray(a, device="host"), cuda=lambda: a.cuda,
                        export=lambda: a.cuda.__dlpack__(), large=lambda: ub.empty(90 << 20, device=a.device), trim=ub.trim,
                        take=lambda: ub.from_dlpack(tensor(P[d], d))).items():
        P = [malloc(0), malloc(1)]
        use({mine}); f(); assert current() == {mine}, (name, d, current())
""")


@pytest.mark.parametrize("call", ["ub.from_dlpack(tensor(p, 0))", "a.cuda", "a.copy()", "ub.trim()", "full(1, 'device', n=90 << 20)"])
def test_failed_context_is_no_abort(call):
    run(f"""
p, a = malloc(0), full(1, "device", n=1 << 20)
a.cuda; b = full(0, "device", n=64 << 20); del b
cu.sim_fail(b"*", 0, 700, 1 << 30)
try: {call}
except Exception as e: assert not isinstance(e, MemoryError), e
cu.sim_fail(b"", 0, 0, 0)
""")


@pytest.mark.parametrize("call", ["a.copy()", "a.fill(3)", "a[1:] = 5", "a[...] = b", "a.to_device('cuda:gpu:0')", "ub.asarray(a, device='host')", "full(1, 'device', n=90 << 20)"])
def test_failed_work_is_named(call):
    run(f"""
a, b = full(1, "device", n=1 << 20), full(0, "device", n=1 << 20)
cu.sim_fail(b"*", 0, 700, 1 << 30)
try: {call}; failed = False
except RuntimeError as e: failed = "work on the device failed" in str(e) or e
cu.sim_fail(b"", 0, 0, 0)
assert failed is True, failed
""")


@pytest.mark.parametrize("full", [0, 1])
def test_import_needs_no_memory(full):
    run(f"""
p = malloc(1); cu.sim_fail(b"cuMemAlloc_v2", 0, 2, 1 << 30)
assert str(ub.from_dlpack(tensor(p, 1)).device) == "cuda:gpu:1"
""")


@pytest.mark.parametrize("device", [0, 1])
def test_first_import_does_not_wait(device):
    run(f"""
p = malloc({device}); hold({device}, 1)
threading.Thread(target=lambda: (time.sleep(.3), hold({device}, 0))).start()
ub.from_dlpack(tensor(p, {device}))
""")


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_read_waits_for_the_device(device, kind):
    # Host USM is used by all devices. Managed memory, as device memory, is ordered after the work of its own.
    run(f"""
a = full({device}, "{kind}", n=1 << 16)
t = a.__dlpack__(dl_device=(3, 0), max_version=(1, 1)) if "{kind}" == "host" else a.cuda.__dlpack__(max_version=(1, 1))
p = a.__sycl_usm_array_interface__["data"][0]
assert cu.simulated_later({device}, ct.c_void_p(0x50), ct.c_ulonglong(p), 7, ct.c_size_t(1 << 16)) == 0
assert set(ub.asarray(a, device="host").tolist()) == {{7}}
""")


@pytest.mark.parametrize("drop", ["before", "in"])
def test_background_leaves_captures_alone(drop):
    run(f"""
a = full(0, "device", n=20 << 20); t = a.cuda.__dlpack__(max_version=(1, 1))
if "{drop}" == "before": del a, t
cu.sim_capture(1)
if "{drop}" == "in": del a, t
time.sleep(1)
assert cu.sim_invalidated() == 0
""")


def test_growth_leaves_captures_alone():
    # Memory that CUDA was shown waits; the pool grows beside it until it has a sixteenth of the device's memory.
    run("""
a = full(0, "device", n=90 << 20); t = a.cuda.__dlpack__(max_version=(1, 1)); p = a._pointer; del a, t
cu.sim_capture(1)
more = [empty(90 << 20) for _ in range(2)]
assert cu.sim_invalidated() == 0 and p not in [b._pointer for b in more]
cu.sim_capture(0)
""")


@pytest.mark.parametrize("kind", ["device", "shared"])
def test_growth_beside_returned_memory_is_bounded(kind):
    run(f"""
for _ in range(30):
    a = empty(64 << 20, "{kind}"); t = a.cuda.__dlpack__(max_version=(1, 1)); del a, t
    time.sleep(.05)
assert max(s["reserved_bytes.all.current"] for s in [ub.stats()]) <= 640 << 20, ub.stats()
""")


def test_full_device_waits_for_returned_memory():
    run("""
a = full(0, "device", n=90 << 20); t = a.cuda.__dlpack__(max_version=(1, 1)); del a, t
hold(0, 1); cu.sim_fail(b"cuMemAlloc_v2", 0, 2, 1 << 30)
threading.Thread(target=lambda: (time.sleep(.5), hold(0, 0))).start()
begin = time.monotonic(); empty(90 << 20); assert time.monotonic() - begin > .3
cu.sim_fail(b"", 0, 0, 0)
""")


def test_full_device_during_a_capture():
    # The wait before the refusal fails, so the memory is not reused, and the error is the driver's lack of memory.
    run("""
a = full(0, "device", n=90 << 20); t = a.cuda.__dlpack__(max_version=(1, 1)); del a, t
cu.sim_fail(b"cuMemAlloc_v2", 0, 2, 1 << 30); cu.sim_capture(1)
try: empty(90 << 20)
except MemoryError: pass
else: raise AssertionError
cu.sim_capture(0); empty(90 << 20); cu.sim_fail(b"", 0, 0, 0)
""")


@pytest.mark.parametrize("selector, ordinals", [("cuda:1", [1]), ("cuda:0", [0]), ("cuda:*", [0, 1])])
def test_numbers_are_those_of_cuda(selector, ordinals, monkeypatch):
    monkeypatch.setenv("ONEAPI_DEVICE_SELECTOR", "opencl:cpu;" + selector)
    run(f"""
arrays = [ub.full((8,), 1, device=d, usm_type="device") for d in ub.devices() if d.filter_string.startswith("cuda:")]
assert [a.cuda.__dlpack_device__() for a in arrays] == [(2, i) for i in {ordinals}]
for a in arrays:
    n = ct.c_int(-1); assert cu.cuPointerGetAttribute(ct.byref(n), 9, ct.c_ulonglong(a._pointer)) == 0
    assert a.cuda.__dlpack_device__() == (2, n.value)
""")


@pytest.mark.parametrize("other", [0, 1])
def test_managed_memory_waits_for_its_own_device(other):
    # docs/gpu.md: work of the other GPU on managed memory is the user's to wait for.
    run(f"""
a = full(0, "shared"); t = a.cuda.__dlpack__(max_version=(1, 1)); hold({other}, 1)
threading.Thread(target=lambda: (time.sleep(.5), hold({other}, 0))).start()
begin = time.monotonic(); a.tolist(); waited = time.monotonic() - begin
assert (waited > .3) == ({other} == 0), waited
time.sleep(.6)
""")
