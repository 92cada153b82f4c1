"""Send arrays between the workers of a Dask cluster.

Programs need not import this module. In every process that has distributed
and usmbridge, arrays travel between workers as their memory instead of as
pickles, and dask.sizeof knows their size, so that workers spill them in time.
`setup` adds a limit for the pools of each worker.

Notes
-----
Sending. If the host can read the memory, the frames of a message are the
Array's own memory and hold it; the Array can be released meanwhile. Work
pending on the Array's queue is waited for. Writing to the memory while it is
sent gives the receiver a mixture of old and new values, as with NumPy. Device
memory and elements that are not contiguous are copied first, to host USM of
the same context, until the last byte is sent.

Receiving. The bytes are copied once, to memory of the same `usm_type` on the
device of the same name, else on the default device, else to plain memory. The
new Array has C or Fortran order and is read-only if the sender's was. Plain
Arrays are not copied if the received bytes are aligned to the element type.
The Array then holds the received buffer. If a pool has no room,
the Array stays in plain memory and the worker logs a warning, because a
transfer that fails makes Dask wait forever (dask/distributed#6705). A header
that does not match its frames raises ValueError or TypeError before memory is
allocated. A value that was spilled comes back equal, with the same
`usm_type`, at another address.

Memory accounting. Dask's managed memory counts the elements of an Array.
Memory of a CPU device and plain memory are also part of the process's
resident memory; memory of a GPU is not, and only managed memory leads to its
spilling (distributed.worker.memory.target). A worker whose resident memory
exceeds its target returns idle memory of its pools to the system before Dask
measures, since spilled arrays return to a pool first.

At the limit. An allocation in a task that would exceed the limit makes its
worker spill, and waits up to 30 seconds for memory, without the GIL. It raises
MemoryError if nothing is left to spill and all other tasks of the worker wait
as well. Allocations outside of tasks and on the event loop do not wait.

Frames longer than distributed.comm.shard (64 MiB) are split and joined by a
copy. Set it higher in all processes to receive longer arrays without one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["setup"]


def _check_limit(limit: Any) -> int | float | None:
    """Returns a limit in the form that the workers take: bytes, a fraction, or None."""
    from dask.utils import parse_bytes

    if limit is None:
        return None
    if isinstance(limit, str):
        limit = parse_bytes(limit)  # raises ValueError
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise TypeError(f"limit must be bytes, a text such as '4 GiB', or a fraction of the worker's memory limit, not {type(limit).__name__}")
    if isinstance(limit, float) and 0 < limit <= 1:
        return limit
    if not math.isfinite(limit) or limit != int(limit) or not 0 <= limit < 1 << 63:
        raise ValueError(f"limit={limit!r}: must be bytes (0 is no limit), or a fraction above 0.0 and up to 1.0")
    return int(limit)


def setup(client: Client | None = None, *, limit: int | float | str | None = None) -> Any:
    """Limit the memory of all workers of a cluster, including those that start later.

    A second call replaces the limit of the first. The workers' metrics
    (``Client.scheduler_info()``) then contain the state of the pools under
    "usmbridge".

    Parameters
    ----------
    client : distributed.Client, optional
        The client of the cluster; by default distributed.default_client().
    limit : int, float or str, optional
        Bytes that the pools of usmbridge can hold in one worker, idle memory
        included: a number, a text such as "4 GiB", or a float up to 1.0, which
        is a fraction of the worker's memory limit. None is the whole memory
        limit, 0 is no limit. Beyond it an allocation in a task waits for
        memory or raises MemoryError, and received arrays stay in plain
        memory. Workers that share a process share the sum of their limits.

    Returns
    -------
    dict
        For each worker's address a dict with "limit" (bytes or None). With an
        asynchronous client, an awaitable of it.

    Raises
    ------
    ValueError
        If an argument is invalid, or there is no client.
    TypeError
        If `limit` has the wrong type.

    Examples
    --------
    >>> from distributed import Client
    >>> import usmbridge.dask
    >>> client = Client(n_workers=1)                       # doctest: +SKIP
    >>> usmbridge.dask.setup(client, limit="4 GiB")        # doctest: +SKIP
    {'tcp://127.0.0.1:40001': {'limit': 4294967296}}
    >>> usmbridge.dask.setup(limit=-1)
    Traceback (most recent call last):
    ValueError: limit=-1: must be bytes (0 is no limit), or a fraction above 0.0 and up to 1.0
    """
    from distributed import default_client

    from usmbridge import _dask_worker

    plugin = _dask_worker.Plugin(_check_limit(limit))
    if client is None:
        client = default_client()  # raises ValueError

    async def apply() -> dict[str, dict[str, Any]]:
        await client.register_plugin(plugin)
        return await client.run(_dask_worker.result)

    return client.sync(apply)
