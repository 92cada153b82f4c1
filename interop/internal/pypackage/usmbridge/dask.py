"""Send arrays between the workers of a Dask cluster.

Programs need not import this module. In every process that has distributed
and usmbridge, arrays travel between workers as their memory instead of as
pickles, and dask.sizeof knows their size, so that workers spill them in time.
`setup` adds optional settings: a limit for the pools of each worker, and
receiving without a copy.

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
new Array has C or Fortran order and is read-only if the sender's was. Bytes
that are already in suitable memory are not copied: with
``setup(receive=...)``, and always for plain memory if they are aligned to the
element type. The Array then holds the received buffer. If a pool has no room,
the Array stays in plain memory and the worker logs a warning, because a
transfer that fails makes Dask wait forever (dask/distributed#6705). A header
that does not match its frames raises ValueError or TypeError before memory is
allocated. A value that was spilled comes back equal, with the same
`usm_type`, at another address.

Memory accounting. Dask's managed memory counts the elements of an Array.
Memory of a CPU device and plain memory are also part of the process's
resident memory; memory of a GPU is not, and only managed memory leads to its
spilling (distributed.worker.memory.target). After `setup`, a worker whose
resident memory exceeds its target returns idle memory of its pools to the
system before Dask measures, since spilled arrays return to a pool first. The
worker's metrics (``Client.scheduler_info()``) contain the state of the pools
under "usmbridge".

Frames longer than distributed.comm.shard (64 MiB) are split and joined by a
copy. Set it higher in all processes to receive longer arrays without one.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal

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


def setup(
    client: Client | None = None, *, limit: int | float | str | None = None, receive: Literal["shared", "host"] | None = None
) -> Any:
    """Set up all workers of a cluster, including those that start later.

    A second call replaces the settings of the first.

    Parameters
    ----------
    client : distributed.Client, optional
        The client of the cluster; by default distributed.default_client().
    limit : int, float or str, optional
        Bytes that the pools of usmbridge can hold in one worker, idle memory
        included: a number, a text such as "4 GiB", or a float up to 1.0, which
        is a fraction of the worker's memory limit. None is the whole memory
        limit, 0 is no limit. Beyond it an allocation raises MemoryError in
        its task, and received arrays stay in plain memory. Workers that share
        a process share the sum of their limits.
    receive : {"shared", "host"}, optional
        Receive messages directly into USM of this kind, where arrays of that
        kind and plain ones stay without a copy. It replaces the function
        distributed.comm.tcp.host_array, which serves all messages of the
        worker.

    Returns
    -------
    dict
        For each worker's address a dict with "limit" (bytes or None) and
        "receive" (the kind, "plain" without SYCL, or None). With an
        asynchronous client, an awaitable of it.

    Raises
    ------
    ValueError
        If an argument is invalid, or there is no client.
    TypeError
        If `limit` has the wrong type.

    Warns
    -----
    RuntimeWarning
        If a release of distributed does not have the code that `receive`
        replaces; nothing is replaced then.

    Examples
    --------
    >>> from distributed import Client
    >>> import usmbridge.dask
    >>> client = Client(n_workers=1)                       # doctest: +SKIP
    >>> usmbridge.dask.setup(client, limit="4 GiB")        # doctest: +SKIP
    {'tcp://127.0.0.1:40001': {'limit': 4294967296, 'receive': None}}
    >>> usmbridge.dask.setup(limit=-1)
    Traceback (most recent call last):
    ValueError: limit=-1: must be bytes (0 is no limit), or a fraction above 0.0 and up to 1.0
    """
    from distributed import default_client

    from usmbridge import _dask_worker

    if receive not in (None, "shared", "host"):
        raise ValueError(f'receive={receive!r}: must be "shared", "host" or None')
    plugin = _dask_worker.Plugin(_check_limit(limit), receive)
    if client is None:
        client = default_client()  # raises ValueError

    async def apply() -> dict[str, dict[str, Any]]:
        await client.register_plugin(plugin)
        results = await client.run(_dask_worker.result)
        for address, (settings, problem) in results.items():
            if problem:
                warnings.warn(f"{address}: {problem}", RuntimeWarning, stacklevel=2)
        return {address: settings for address, (settings, _) in results.items()}

    return client.sync(apply)
