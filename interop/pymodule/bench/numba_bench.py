"""Measures calls of compiled functions: with an Array, with the NumPy array of the same memory, and by numpy.asarray.

    bin/usmpython interop/pymodule/bench/numba_bench.py [--json FILE] [--rounds N] [--strict]"""

import sys
import timeit

import numba
import numpy as np

import report
import usmbridge as ub


@numba.njit
def empty(a):
    pass


@numba.njit
def total(a):
    t = 0.0
    for x in a:
        t += x
    return t


def measure(calls, rounds):
    """Returns the best time of each call, measured in turns."""
    timers = [timeit.Timer("f(o)" if not through else "f(asarray(o))", globals=dict(f=f, o=o, asarray=np.asarray)) for f, o, through in calls]
    counts = []
    for t in timers:
        t.timeit(1)  # compiles
        counts.append(max(1, int(0.005 / (t.timeit(20) / 20))))
    best = [float("inf")] * len(timers)
    for _ in range(rounds):
        for i, t in enumerate(timers):
            best[i] = min(best[i], t.timeit(counts[i]) / counts[i])
    return best


def main():
    args = report.options(60).parse_args()
    kinds = ["host"] + (["shared"] if any(d.filter_string != "host" for d in ub.devices()) else [])
    print(f"numba {numba.__version__}, numpy {np.__version__}")
    print(f"{'call':32} {'ours':>10} {'ndarray':>10} {'asarray':>10} {'ratio':>7} {'bound':>7}")
    results = []
    for kind in kinds:
        for name, f, size, bound, ns in (("empty body", empty, 4, 3.5, 1000), ("sum of 10^6 float64", total, 10**6, 1.02, None)):
            a = ub.zeros(size, "float64", **(dict(device="host") if kind == "host" else dict(usm_type=kind)))
            n = np.asarray(a)
            ours, theirs, through = measure([(f, a, False), (f, n, False), (f, a, True)], args.rounds)
            ok = ours / theirs <= bound and (ns is None or ours * 1e9 <= ns)
            print(f"{name + ', ' + kind:32} {ours * 1e9:8.0f}ns {theirs * 1e9:8.0f}ns {through * 1e9:8.0f}ns {ours / theirs:7.3f} {bound:7.2f} {'' if ok else 'MISSED'}", flush=True)
            results.append(dict(call=name, memory=kind, ours_ns=ours * 1e9, ndarray_ns=theirs * 1e9, through_asarray_ns=through * 1e9, bound=bound, ok=ok))
    return report.finish(args, results, numba=numba.__version__)


if __name__ == "__main__":
    sys.exit(main())
