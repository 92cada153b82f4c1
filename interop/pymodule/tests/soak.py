"""Runs many exchanges and checks that no memory is lost; test_soak.py runs it in a process of its own.

    usmpython soak.py COUNT [MISTAKE]

It makes COUNT exports of mixed kinds and as many imports: DLPack (legacy, versioned, by the C exchange API), the
SUAI dictionary, the buffer protocol, NumPy, and handles of other processes. After the warm-up, resident memory must
be constant within 1 %, and every counter must return to its first value. The last line is JSON; the exit status is 1
if something was lost. MISTAKE makes a mistake on purpose, so that a test sees it found: "leak" loses memory, "lose" loses arrays."""

import array
import ctypes as ct
import gc
import json
import os
import sys
import time
import types
from multiprocessing.reduction import ForkingPickler

import capi
import usmbridge as ub


def optional(name):
    try:
        return __import__(name, fromlist=["_"])
    except ImportError:
        return None


np, tvm, dm = optional("numpy"), optional("tvm_ffi"), optional("dpctl.memory")
usm = len(ub.devices()) > 1
host = ub.full((4, 6), 3, "int32", device="host")
lent = ub.full((4, 6), 3, "int32", interprocess=True, device="host")
api = capi.exchange(ub.Array)
from_py, to_py = capi.FROM_PY(api.from_py), capi.TO_PY(api.to_py)
FLAT = 0.01
SETTLED = 300  # seconds; on an idle machine the counters return immediately


class Keywordless:
    """A producer whose __dlpack__ does not know max_version."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


lost = []
out, made = ct.c_void_p(), ct.py_object()


def table_out():
    from_py(host, ct.byref(out))
    capi.delete(out.value)


def table_in():
    from_py(host, ct.byref(out))
    to_py(out, ct.byref(made))
    ct.pythonapi.Py_DecRef(ct.py_object(made.value))
    made.value = None


def taken_from(x, take=ub.from_dlpack):
    return lambda: take(x)


MISTAKES = {"leak": lambda: lost.append(bytearray(4096)), "lose": lambda: lost.append(ub.from_dlpack(host.__dlpack__()))}
handles = "handles", lambda: ForkingPickler.loads(bytes(ForkingPickler.dumps(lent))), 1

# The exchanges of each kind, and their number in a round of a thousand. Slow kinds are rarer.
OUT = [("legacy", host.__dlpack__, 200), ("versioned", lambda: host.__dlpack__(max_version=(1, 3)), 200), ("buffer", taken_from(host, memoryview), 250), ("table", table_out, 40), handles]
IN = [("legacy", taken_from(Keywordless(host)), 150), ("versioned", taken_from(host[1:]), 200), ("capsule", lambda: ub.from_dlpack(host.__dlpack__(max_version=(1, 3))), 150),
      ("buffer", taken_from(array.array("i", range(24)), ub.asarray), 200), ("table", table_in, 40), handles]
if np:
    OUT += [("numpy", taken_from(host, np.from_dlpack), 100), ("asnumpy", host.asnumpy, 50)]
    IN += [("numpy", taken_from(np.arange(24, dtype="int32").reshape(4, 6), ub.asarray), 100)]
if tvm:
    OUT += [("tvm", taken_from(host, tvm.from_dlpack), 100)]
    IN += [("tvm", taken_from(tvm.from_dlpack(host)), 100)]
if usm:
    shared = ub.full((4, 6), 3, "int32", usm_type="shared")
    OUT += [("dictionary", lambda: shared.__sycl_usm_array_interface__, 50)]
    IN += [("dictionary", taken_from(types.SimpleNamespace(a=shared, __sycl_usm_array_interface__=shared.__sycl_usm_array_interface__), ub.from_usm_array_interface), 40)]
if usm and dm:
    OUT += [("dpctl", taken_from(shared, dm.as_usm_memory), 9)]
    IN += [("dpctl", taken_from(dm.MemoryUSMShared(96), ub.from_usm_array_interface), 19)]


def turn(kinds, exchanges):
    """Makes at least that many exchanges and returns their number."""
    done = 0
    while done < exchanges:
        for _, once, n in kinds:
            for _ in range(n):
                once()
            done += n
    return done


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def taken():
    s, shared = ub.stats(), ub.share.stats()
    return [s[k] for k in ("allocated_bytes.all.current", "allocation.all.current", "live_buffers.all.current")] + [
        shared[k] for k in ("opened", "leases", "unopened")
    ]


def at_rest(before=None, seconds=SETTLED):
    """Returns the counters once background work has updated them."""
    gc.collect()
    end = time.monotonic() + seconds
    while (before is not None and taken() != before) or any(taken()[3:]):
        if time.monotonic() > end:
            break
        gc.collect()
        time.sleep(0.001)
    return taken()


def soak(name, kinds, count):
    """Makes four quarters of the exchanges and compares the least resident memory of each. A leak grows in every
    quarter; one-time growth, such as Go's heap, does not, and temporary memory is above the least of a quarter. The
    least must therefore be constant over the first four quarters, or over four later ones."""
    turn(kinds, max(count // 20, 2000))
    before, warm = at_rest(), resident()
    start, done, least, most = time.monotonic(), 0, [], 0
    rise = FLAT + 1
    while len(least) < 4 or rise > FLAT and len(least) < 12:
        quarter = []
        for _ in range(5):
            done += turn(kinds, max(count // 20, 1))
            gc.collect()
            quarter.append(resident())
        least.append(min(quarter))
        most = max(most, *quarter)
        rise = (least[-1] - least[-4]) / least[-4] if len(least) >= 4 else rise
    wrong = []
    if rise > FLAT:
        wrong.append(f"resident memory grew by {rise:.1%} in {done * 4 // len(least)} exchanges: {least}")
    after = at_rest(before, SETTLED if kinds[-1][0] not in MISTAKES else 0)  # what is lost does not come back
    if after != before:
        wrong.append(f"counters were {before}, and are {after}")
    seconds = time.monotonic() - start
    print(f"{name}: {done} exchanges of {len(kinds)} kinds in {seconds:.0f} s, resident {warm >> 10} KiB before, {least[-1] >> 10} KiB after, at most {most >> 10}", file=sys.stderr, flush=True)
    return dict(name=name, kinds=[name for name, *_ in kinds], exchanges=done, resident=least, rise=rise, wrong=wrong)


def main():
    count = int(sys.argv[1])
    for mistake in sys.argv[2:]:
        IN.append((mistake, MISTAKES[mistake], 100))
    reports = [soak("out", OUT, count), soak("in", IN, count)]
    print(json.dumps(reports))
    return 1 if any(t["wrong"] for t in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
