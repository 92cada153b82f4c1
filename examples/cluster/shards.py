"""A picture's edges by a Dask cluster: two workers with a shard of rows each, and a client.

Run by the Go program beside it: shards.py PICTURE.npy. Each worker reads its rows into
shared USM and finds the edges with a function that Numba compiled, which takes the Array
itself. One worker is killed when it has its rows: Dask reads and computes them again.
"""

import os
import signal
import sys
import time

import numba
import numpy as np
import usmbridge as ub
from distributed import Client, LocalCluster, get_worker, wait

from usmbridge import dask as usm_dask

SHARDS = 2


@numba.njit(nogil=True)
def sobel(grey, edges):
    """Rows 1 to h - 2 of grey, which has a row more above and below than edges."""
    two, limit = np.float32(2), np.float32(255)
    height, width = edges.shape
    for i in range(height):
        for j in range(width):
            left, right = max(j - 1, 0), min(j + 1, width - 1)
            gx = grey[i, right] + two * grey[i + 1, right] + grey[i + 2, right] - grey[i, left] - two * grey[i + 1, left] - grey[i + 2, left]
            gy = grey[i + 2, left] + two * grey[i + 2, j] + grey[i + 2, right] - grey[i, left] - two * grey[i, j] - grey[i, right]
            edges[i, j] = np.uint8(min(limit, np.rint(np.sqrt(gx * gx + gy * gy))))


def new(shape, dtype):
    """Shared USM where there is SYCL, else plain memory."""
    sycl = any(d.filter_string != "host" for d in ub.devices())
    return ub.empty(shape, dtype, **(dict(usm_type="shared") if sycl else dict(device="host")))


def note(what, rows):
    get_worker().log_event("shards", {"what": what, "rows": list(rows), "process": os.getpid()})


def read(path, first, last):
    """The rows of a shard, with the row before and the row after, repeated at the rim."""
    note("read", (first, last))
    picture = np.load(path, mmap_mode="r")
    part = new((last - first + 2, picture.shape[1]), "float32")
    np.asarray(part)[...] = picture[np.clip(np.arange(first - 1, last + 1), 0, len(picture) - 1)]
    return part


def compute(part, first, last):
    note("compute", (first, last))
    edges = new((part.shape[0] - 2, part.shape[1]), "uint8")
    sobel(part, edges)
    return edges


def alone(path):
    picture = np.load(path)
    edges = np.empty(picture.shape, "uint8")
    sobel(np.pad(picture, ((1, 1), (0, 0)), mode="edge"), edges)
    return edges


def main(path):
    height, width = np.load(path, mmap_mode="r").shape
    ends = [height * i // SHARDS for i in range(SHARDS + 1)]
    rows = list(zip(ends, ends[1:]))
    with LocalCluster(n_workers=SHARDS, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster, Client(cluster) as client:
        usm_dask.setup(client)
        names = sorted(client.scheduler_info()["workers"])
        pids = client.run(os.getpid)
        print(f"processes: the client {os.getpid()}, workers {', '.join(str(pids[n]) for n in names)}")
        parts = [client.submit(read, path, *r, workers=[n], allow_other_workers=True, pure=False) for r, n in zip(rows, names)]
        wait(parts)
        start = time.perf_counter()
        os.kill(pids[names[1]], signal.SIGKILL)
        print(f"killed:    worker {pids[names[1]]}, which had rows {rows[1][0]} to {rows[1][1] - 1}")
        edges = [client.submit(compute, p, *r, pure=False) for p, r in zip(parts, rows)]
        whole = np.concatenate([np.asarray(e) for e in client.gather(edges)])
        seconds = time.perf_counter() - start
        events = [e for _, e in client.get_events("shards")]
        for what in ("read", "compute"):
            for r in rows:
                who = [str(e["process"]) for e in events if e["what"] == what and tuple(e["rows"]) == r]
                print(f"{what + ':':10} rows {r[0]:4} to {r[1] - 1:4} by {', again by '.join(who)}")
    same = np.array_equal(whole, alone(path))
    print(f"gathered:  {height} x {width} in {seconds:.2f} s with the loss, {'equal to' if same else 'NOT THE SAME AS'} one process's")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
