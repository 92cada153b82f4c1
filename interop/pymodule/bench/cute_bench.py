"""Measures usmbridge.cute, and CuTe DSL if a Python with it is named.

    usmpython interop/pymodule/bench/cute_bench.py
    USMBRIDGE_CUTE_PYTHON=/path/to/venv/bin/python usmpython interop/pymodule/bench/cute_bench.py

CuTe DSL (the package nvidia-cutlass-dsl) runs in an interpreter of its own, in turns with this one, so that both see the
same machine. The exit status is 1 if a conversion with its mark takes more than a fifth of CuTe DSL's time."""

import json
import os
import subprocess
import sys
import timeit

ROUNDS, REPEATS, LOOPS = 5, 7, 10000
BOUND = 1 / 5

CALLS = """
import numpy as np
a = np.zeros((30, 20, 32), np.float32)
t = from_dlpack(a)
calls = {
    "from_dlpack": lambda: from_dlpack(a),
    "from_dlpack().mark_layout_dynamic()": lambda: from_dlpack(a).mark_layout_dynamic(),
    "from_dlpack().mark_compact_shape_dynamic(0)": lambda: from_dlpack(a).mark_compact_shape_dynamic(0),
    "str()": lambda: str(t),
}
"""

TIMING = f"""
import json, sys, timeit
best = {{k: min(timeit.repeat(f, number={LOOPS}, repeat={REPEATS})) / {LOOPS} for k, f in calls.items()}}
json.dump(best, sys.stdout)
"""

PEER = "from cutlass.cute.runtime import from_dlpack\n" + CALLS + TIMING


def ours():
    import usmbridge.cute as cute

    scope = {"from_dlpack": cute.from_dlpack}
    exec(CALLS, scope)
    a, t = scope["a"], scope["t"]
    calls = scope["calls"] | {
        "from_dlpack_dynamic()": lambda: cute.from_dlpack_dynamic(a),
        ".key": lambda: t.key,
        ".shape": lambda: t.shape,
    }
    return {k: min(timeit.repeat(f, number=LOOPS, repeat=REPEATS)) / LOOPS for k, f in calls.items()}


def theirs(python):
    out = subprocess.run([python, "-c", PEER], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def merge(best, found):
    for k, seconds in found.items():
        best[k] = min(seconds, best.get(k, seconds))


def main():
    python = os.environ.get("USMBRIDGE_CUTE_PYTHON")
    us, peer = {}, {}
    for _ in range(ROUNDS):
        merge(us, ours())
        if python:
            merge(peer, theirs(python))
    print(f"{'NumPy float32 (30, 20, 32)':45} {'usmbridge':>10} {'CuTe DSL':>10} {'ratio':>7}")
    for k, seconds in us.items():
        other = f"{peer[k] * 1e6:7.2f} us {seconds / peer[k]:7.3f}" if k in peer else ""
        print(f"{k:45} {seconds * 1e6:7.3f} us {other}")
    marked = "from_dlpack().mark_layout_dynamic()"
    if peer and us[marked] > BOUND * peer[marked]:
        sys.exit(f"{marked} takes more than {BOUND} of CuTe DSL's time")


if __name__ == "__main__":
    main()
