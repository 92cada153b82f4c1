"""Measures sending an array to another Python process, by handle and by other ways.

    bin/usmpython interop/pymodule/bench/share_bench.py [--json FILE] [--rounds N] [--strict]

Each measurement is one message to another process (spawn) and one back. All ways run in turns, round by round, and medians
are compared. A small tuple is the cost of a Queue itself; the bound of a handle is 1.5 times that. The receiver reads the
first and the last byte of an array by handle, of a block of multiprocessing.shared_memory (sent, attached, shown as an
array and closed) and of a pickled NumPy array. Further rows use new memory for each message and include making, filling
and releasing it."""

import multiprocessing
import platform
import statistics
import sys
import time
from multiprocessing import shared_memory

import numpy as np

import report
import usmbridge as ub

BOUND = 1.5  # times that of a small tuple
SIZES = (1, 64, 1024)  # MiB


def ends(a):
    return int(a[0]) + int(a[-1])


def answer(inbox, outbox):
    """Runs the other process."""
    for what, x in iter(inbox.get, None):
        if what == "shm":
            name, size = x
            block = shared_memory.SharedMemory(name=name)
            a = np.ndarray(size, "uint8", buffer=block.buf)
            r = ends(a)
            del a
            block.close()
        elif what == "ours":
            r = ends(np.asarray(x))
        elif what == "numpy":
            r = ends(x)
        else:
            r = x[0]
        del x
        outbox.put(r)


class Ways:
    def __init__(self, size):
        self.size = size
        self.array = ub.ones(size, "uint8", device="host", interprocess=True)
        self.block = shared_memory.SharedMemory(create=True, size=size)
        np.ndarray(size, "uint8", buffer=self.block.buf)[:] = 1
        self.numpy = np.ones(size, "uint8")

    def message(self, way):
        return {"tuple": ("tuple", (2, 3)), "ours": ("ours", self.array), "shm": ("shm", (self.block.name, self.size)), "numpy": ("numpy", self.numpy)}[way]

    def new(self, way, ask):
        """Sends new memory, including making and releasing it."""
        if way == "ours":
            a = ub.empty(self.size, "uint8", device="host", interprocess=True)
            np.asarray(a)[:] = 1
            ask(("ours", a))
        elif way == "shm":
            block = shared_memory.SharedMemory(create=True, size=self.size)
            np.ndarray(self.size, "uint8", buffer=block.buf)[:] = 1
            ask(("shm", (block.name, self.size)))
            block.close()
            block.unlink()
        else:
            ask(("numpy", np.ones(self.size, "uint8")))

    def close(self):
        del self.array
        self.block.close()
        self.block.unlink()
        ub.trim()


def middle(times):
    return {way: statistics.median(t) for way, t in times.items()}


def timed(f, *args):
    start = time.perf_counter_ns()
    f(*args)
    return (time.perf_counter_ns() - start) / 1e9


def main():
    args = report.options(300).parse_args()
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    p = context.Process(target=answer, args=(inbox, outbox), daemon=True)
    p.start()

    def ask(message):
        inbox.put(message)
        assert outbox.get(timeout=120) == 2

    print(f"Python {platform.python_version()}, usmbridge {ub.__version__}; another process by a Queue, and back")
    print(f"{'':30} {'ours':>10} {'other':>10} {'ratio':>7} {'bound':>7}")
    results = []

    def row(name, ours, other, bound):
        ratio = ours / other
        ok = ratio <= bound
        results.append(dict(name=name, ours=ours, other=other, ratio=ratio, bound=bound, ok=ok))
        print(f"{name:30} {ours * 1e6:7.0f} us {other * 1e6:7.0f} us {ratio:7.2f} {bound:7.2f} {'ok' if ok else 'MISSED'}", flush=True)

    for mib in SIZES:
        ways = Ways(mib << 20)
        rounds = args.rounds if mib < 1024 else max(args.rounds // 10, 5)
        times = {way: [] for way in ("tuple", "ours", "shm", "numpy")}
        for i in range(rounds + 5):
            for way in times:
                if way == "numpy" and (mib >= 64 and i % 20 or mib == 1024 and i >= 25):
                    continue  # it takes as long as all other ways together
                t = timed(ask, ways.message(way))
                if i >= 5 or way == "numpy":
                    times[way].append(t)
        m = middle(times)
        row(f"{mib} MiB, a small tuple", m["ours"], m["tuple"], BOUND)
        row(f"{mib} MiB, shared_memory", m["ours"], m["shm"], 1)
        row(f"{mib} MiB, NumPy pickled", m["ours"], m["numpy"], 1)
        times = {way: [] for way in ("ours", "shm", "numpy")}
        for _ in range(max(3, min(args.rounds // 10, 200 // mib))):
            for way in times:
                times[way].append(timed(ways.new, way, ask))
        m = middle(times)
        row(f"{mib} MiB new, shared_memory", m["ours"], m["shm"], 1)
        row(f"{mib} MiB new, NumPy pickled", m["ours"], m["numpy"], 1)
        ways.close()
    inbox.put(None)
    p.join()
    return report.finish(args, results, python=platform.python_version())


if __name__ == "__main__":
    sys.exit(main())
