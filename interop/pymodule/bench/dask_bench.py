"""Measures 64 MiB between workers of a Dask cluster, as an Array and as a NumPy array.

    bin/usmpython interop/pymodule/bench/dask_bench.py [--json FILE] [--rounds N] [--strict]

Messages are received as distributed does it, and into USM by setup(receive=...). The results are medians; all kinds run in
turns in one cluster."""

import argparse
import json
import os
import statistics
import sys
import time

import usmbridge as ub

ELEMENTS = 1 << 24  # of float32

# The kind of array, the receiver's memory, and the bound: NumPy's time divided by the Array's, with the same way of
# receiving. The hook must not make NumPy itself slower.
CASES = [
    ("numpy", None, None),
    ("plain", None, 0.3),
    ("shared", None, 0.3),
    ("host", None, 0.3),
    ("device", None, 0.3),
    ("numpy", "shared", None),
    ("plain", "shared", 0.9),
    ("shared", "shared", 0.9),
    ("device", "shared", 0.3),
]


def make(kind):
    import numpy as np
    import usmbridge as ub

    if kind == "numpy":
        return np.ones(ELEMENTS, "float32")
    return ub.ones(ELEMENTS, "float32", **(dict(device="host") if kind == "plain" else dict(usm_type=kind)))


def use(x):
    return x.nbytes


def measure(client, rounds):
    from distributed import wait

    from usmbridge import dask

    one, two = sorted(client.scheduler_info()["workers"])
    times = {case[:2]: [] for case in CASES}
    for i in range(rounds + 2):  # the first two create the pools and are not counted
        for receive in (None, "shared"):
            dask.setup(client, receive=receive)
            for kind, how, _ in CASES:
                if how != receive:
                    continue
                x = client.submit(make, kind, workers=[one], pure=False)
                wait(x)
                start = time.perf_counter()
                y = client.submit(use, x, workers=[two], pure=False)
                y.result()
                if i >= 2:
                    times[kind, how].append(time.perf_counter() - start)
                del x, y
                time.sleep(0.02)  # for the messages that free the arrays
    return {case: statistics.median(t) for case, t in times.items()}


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--json")
    args.add_argument("--rounds", type=int, default=11)
    args.add_argument("--strict", action="store_true")
    args = args.parse_args()
    import dask
    import distributed

    sycl = any(d.filter_string != "host" for d in ub.devices())
    dask.config.set({"logging": {"distributed": "error"}})
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:
            global CASES
            CASES = [c for c in CASES if sycl or c[0] in ("numpy", "plain")]
            medians = measure(client, args.rounds)
    print(f"distributed {distributed.__version__}: 64 MiB from worker to worker, medians of {args.rounds}")
    print(f"{'what':8} {'received into':14} {'time':>9} {'GB/s':>6} {'numpy/ours':>11} {'bound':>6}")
    results, missed = [], 0
    for kind, how, bound in CASES:
        t, ratio = medians[kind, how], medians["numpy", how] / medians[kind, how]
        if kind == "numpy":
            ratio, bound = medians["numpy", None] / t, 0.9 if how else None
        ok = bound is None or ratio >= bound
        missed += not ok
        print(f"{kind:8} {how or 'distributed':14} {t * 1e3:7.1f}ms {4 * ELEMENTS / t / 1e9:6.2f} {ratio:11.2f} {bound or '':>6} {'' if ok else 'MISSED'}")
        results.append(dict(what=kind, received=how, seconds=t, ratio=ratio, bound=bound, ok=ok))
    if args.json:
        with open(args.json + ".part", "w") as f:
            json.dump(dict(distributed=distributed.__version__, results=results), f, indent=1)
        os.replace(args.json + ".part", args.json)
    return 1 if missed and args.strict else 0


if __name__ == "__main__":
    sys.exit(main())
