"""Arrays between the workers of a Dask cluster.

Nothing has to be imported for it: where distributed and usmbridge are in a process, Arrays
go from worker to worker by their memory instead of by pickles, and dask.sizeof knows how
large they are, so that a worker spills them to disk in time. setup adds what is a choice:
a limit for the pools of each worker, and a way to receive without a copy.

What lives how long

- A frame that is sent is the Array's own memory where the host may read it (shared and
  host USM, plain memory). The frame holds the memory: the Array may be released or
  dropped while it is being sent. Who writes to it meanwhile sends a mixture of old and
  new values, as with NumPy's arrays; work that waits on the Array's queue is waited for.
- Device memory is copied first, to host USM of its own context, and so are elements that
  do not follow each other; that copy lives until the last byte has left.
- What arrives is copied once, from the received bytes to memory of the same usm_type, on
  the device of the same name, else on the default device; in a process without a SYCL
  device it is plain memory. It is an Array of its own with C or Fortran order, read-only
  if the sender's was.
- Received bytes that already lie in such memory are not copied: with setup(receive=...),
  and, for plain memory, always where they are aligned to the element type. Then the Array
  holds the buffer that was received, which is the Array's alone unless one message was
  deserialised twice.
- Where a pool has no room for what arrives, it stays in plain memory, and the worker's log
  says so: Dask has no way to fail a transfer, it waits for ever when one raises
  (dask/distributed#6705).
- A header that does not fit its frames is a ValueError or TypeError before any memory is
  taken.
- A value that was spilled comes back equal, of the same usm_type, at another address.

What a worker tells Dask

The memory that Dask manages counts an Array as its elements. Memory of a CPU device and
plain memory are in the process's resident memory too; that of a GPU is not, and is spilled
by what is managed alone (distributed.worker.memory.target). When setup has been called, a
worker whose resident memory is above its target gives what its pools keep idle back to the
system before Dask looks, since spilled Arrays end in a pool first; and the worker's
metrics, Client.scheduler_info() has them, say under "usmbridge" what the pools hold.

Frames of more than distributed.comm.shard (64 MiB) travel as several and are put together
by one copy: set it larger in all processes where larger Arrays should arrive without one.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["setup"]


def _check_limit(limit: Any) -> int | float | None:
    """A limit as the workers take it: bytes, a fraction, or None."""
    from dask.utils import parse_bytes

    if limit is None:
        return None
    if isinstance(limit, str):
        limit = parse_bytes(limit)  # or ValueError
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise TypeError(f"limit is bytes, a text such as '4 GiB', or a fraction of the worker's memory limit, not {type(limit).__name__}")
    if isinstance(limit, float) and 0 < limit <= 1:
        return limit
    if not math.isfinite(limit) or limit != int(limit) or not 0 <= limit < 1 << 63:
        raise ValueError(f"limit={limit!r}: it is bytes from 0 (no limit), or a fraction above 0.0 and up to 1.0")
    return int(limit)


def setup(
    client: Client | None = None, *, limit: int | float | str | None = None, receive: Literal["shared", "host"] | None = None
) -> Any:
    """Sets up all workers of a client's cluster, those that come later included.

    client: the client, by default the one in use (distributed.default_client()); with an
    asynchronous one, await what comes back.

    limit: what the pools of usmbridge may hold in one worker, idle memory included, in
    bytes, as a text ("4 GiB"), or as a float up to 1.0: that part of the worker's
    memory_limit. None is the whole of that, 0 is no limit. Beyond it an allocation is a
    MemoryError in its task, and what arrives from other workers stays in plain memory.
    Workers that share a process share the sum.

    receive: "shared" or "host": messages are received straight into USM of that kind, and
    Arrays of that kind and plain ones stay there without a copy. It puts a function of ours
    in the place of distributed.comm.tcp.host_array, for all that the workers receive; where
    distributed is not as it is known to be, nothing is replaced and a RuntimeWarning says
    why.

    Returns, for each worker's address, a dict with "limit" (bytes or None) and "receive"
    (the kind that is received into, "plain" without SYCL, or None). Setting up again
    replaces what was set up before.
    """
    from distributed import default_client

    from usmbridge import _dask_worker

    if receive not in (None, "shared", "host"):
        raise ValueError(f'receive={receive!r}: it is "shared", "host" or None')
    plugin = _dask_worker.Plugin(_check_limit(limit), receive)
    if client is None:
        client = default_client()  # or ValueError

    async def apply() -> dict[str, dict[str, Any]]:
        await client.register_plugin(plugin)
        told = await client.run(_dask_worker.told)
        for address, (settings, problem) in told.items():
            if problem:
                warnings.warn(f"{address}: {problem}", RuntimeWarning, stacklevel=2)
        return {address: settings for address, (settings, _) in told.items()}

    return client.sync(apply)
