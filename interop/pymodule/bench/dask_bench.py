"""Measures 64 MiB between workers of a Dask cluster, as an Array and as a NumPy array.

    bin/usmpython interop/pymodule/bench/dask_bench.py [--json FILE] [--rounds N] [--strict] [--spill]

The results are medians; all kinds run in turns in one cluster. With --spill it instead runs a job whose
results exceed the memory of the workers, and reports how many workers Dask restarted."""

import statistics
import sys
import time

import report
import usmbridge as ub

ELEMENTS = 1 << 24  # of float32

# What is moved, and the bound: NumPy's time divided by the Array's.
CASES = [("numpy", None), ("plain", 0.3), ("shared", 0.3), ("host", 0.3), ("device", 0.3)]


def make(kind, elements=ELEMENTS):
    import numpy as np
    import usmbridge as ub

    if kind == "numpy":
        return np.ones(elements, "float32")
    return ub.ones(elements, "float32", **(dict(device="host") if kind == "plain" else dict(usm_type=kind)))


def use(x):
    return x.nbytes


def last(x):
    return x[-1].item()


def measure(client, rounds):
    from distributed import wait

    one, two = sorted(client.scheduler_info()["workers"])
    times = {kind: [] for kind, _ in CASES}
    for i in range(rounds + 2):  # the first two create the pools and are not counted
        for kind, _ in CASES:
            x = client.submit(make, kind, workers=[one], pure=False)
            wait(x)
            start = time.perf_counter()
            y = client.submit(use, x, workers=[two], pure=False)
            y.result()
            if i >= 2:
                times[kind].append(time.perf_counter() - start)
            del x, y
            time.sleep(0.02)  # for the messages that free the arrays
    return {kind: statistics.median(t) for kind, t in times.items()}


def spill(kind, threads, setup):
    """Keeps 40 arrays of 128 MiB in four workers of 1 GiB each, then reads each of them. Returns the restarts and the seconds."""
    import distributed

    with distributed.LocalCluster(n_workers=4, threads_per_worker=threads, processes=True, memory_limit="1 GiB", dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:
            if setup:
                from usmbridge import dask

                dask.setup(client)
            start = time.perf_counter()
            made = [client.submit(make, kind, 2 * ELEMENTS, pure=False) for _ in range(40)]
            distributed.wait(made)
            assert client.gather(client.map(last, made)) == [1.0] * 40
            seconds = time.perf_counter() - start
            added = [event for _, event in client.get_events("all") if event["action"] == "add-worker"]
            return len(added) - 4, seconds


def main():
    args = report.options(11)
    args.add_argument("--spill", action="store_true")
    args.add_argument("--threads", type=int, default=1, help="threads of a worker, with --spill")
    args = args.parse_args()
    import dask
    import distributed

    sycl = any(d.filter_string != "host" for d in ub.devices())
    dask.config.set({"logging": {"distributed": "error"}})
    if args.spill:
        for _ in range(args.rounds):
            for kind, setup in (("numpy", False), ("plain", False), *([("shared", False), ("shared", True)] if sycl else [])):
                restarts, seconds = spill(kind, args.threads, setup)
                print(f"{kind:8} {'setup' if setup else '':6} {restarts} restarts {seconds:6.1f}s", flush=True)
        return 0
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:
            global CASES
            CASES = [c for c in CASES if sycl or c[0] in ("numpy", "plain")]
            medians = measure(client, args.rounds)
    print(f"distributed {distributed.__version__}: 64 MiB from worker to worker, medians of {args.rounds}")
    print(f"{'what':8} {'time':>9} {'GB/s':>6} {'numpy/ours':>11} {'bound':>6}")
    results = []
    for kind, bound in CASES:
        t, ratio = medians[kind], medians["numpy"] / medians[kind]
        ok = bound is None or ratio >= bound
        print(f"{kind:8} {t * 1e3:7.1f}ms {4 * ELEMENTS / t / 1e9:6.2f} {ratio:11.2f} {bound or '':>6} {'' if ok else 'MISSED'}")
        results.append(dict(what=kind, seconds=t, ratio=ratio, bound=bound, ok=ok))
    return report.finish(args, results, distributed=distributed.__version__)


if __name__ == "__main__":
    sys.exit(main())
