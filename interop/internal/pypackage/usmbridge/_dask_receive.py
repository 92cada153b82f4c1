"""Receives messages of distributed directly into a pool of usmbridge.

distributed has no option for the memory of received messages. Its TCP and TLS comms allocate it
by the function host_array(n) of the module distributed.comm.tcp. install() replaces that function
if the code around it is known. The memory belongs to the objects of the message, NumPy arrays
included, which use it as ordinary memory.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import usmbridge

# Most smaller frames are headers, or their receiver copies them.
LEAST = 1 << 16


class Unknown(RuntimeError):
    """distributed.comm.tcp differs from the releases that this module was written for."""


def _known(tcp: ModuleType) -> Callable[[int], memoryview]:
    """Returns distributed's own host_array. Raises Unknown if it cannot be replaced safely."""
    from distributed.protocol import utils

    plain: Any = getattr(tcp, "host_array", "none")
    if not inspect.isfunction(plain) or plain != getattr(utils, "host_array", None):
        raise Unknown("distributed.comm.tcp.host_array is not distributed.protocol.utils.host_array")
    parameters = list(inspect.signature(plain).parameters.values())
    if [p.kind for p in parameters] != [inspect.Parameter.POSITIONAL_OR_KEYWORD]:
        raise Unknown(f"host_array takes {inspect.signature(plain)}, where one number of bytes was expected")
    reader = getattr(tcp, "read_bytes_rw", None)
    code = getattr(reader, "__code__", None)
    if code is None or "host_array" not in code.co_names or getattr(reader, "__globals__", None) is not vars(tcp):
        raise Unknown("distributed.comm.tcp.read_bytes_rw does not ask host_array for its memory")
    for n in (0, 3):
        view = plain(n)
        if type(view) is not memoryview or view.readonly or (view.format, view.ndim, view.nbytes) != ("B", 1, n):
            raise Unknown(f"host_array({n}) gives {view!r}, where a writable memoryview of {n} bytes was expected")
    return cast("Callable[[int], memoryview]", plain)


class Hook:
    """Replaces host_array. Allocates USM of one kind, or plain memory of the host backend's pool
    if there is no SYCL device."""

    def __init__(self, plain: Callable[[int], memoryview], usm_type: Any) -> None:
        self.plain = plain
        self.usm_type = usm_type if any(d.filter_string != "host" for d in usmbridge.devices()) else None
        self.refused = 0  # allocations that the pool had no room for

    def __call__(self, n: int) -> memoryview:
        if n < LEAST:
            return self.plain(n)
        try:
            return memoryview(usmbridge.empty(n, "uint8", usm_type=self.usm_type))
        except MemoryError:
            # Receive the message all the same. An Array in it then allocates its own memory, and
            # logs a warning if that fails.
            self.refused += 1
            return self.plain(n)


_lock = threading.Lock()
_users: set[object] = set()


def install(user: object, usm_type: str) -> Hook:
    """Replaces host_array until the last user is removed. The workers of a process share it; the
    latest call decides the kind of memory. Raises Unknown and changes nothing if host_array cannot
    be replaced."""
    from distributed.comm import tcp

    with _lock:
        there = getattr(tcp, "host_array", None)
        plain = there.plain if isinstance(there, Hook) else _known(tcp)
        hook = Hook(plain, usm_type)
        tcp.host_array = hook  # type: ignore[assignment]
        _users.add(user)
        return hook


def remove(user: object) -> None:
    """Removes a user. Restores distributed's function after the last one."""
    from distributed.comm import tcp

    with _lock:
        _users.discard(user)
        there = getattr(tcp, "host_array", None)
        if not _users and isinstance(there, Hook):
            tcp.host_array = there.plain  # type: ignore[assignment]


def installed() -> Hook | None:
    """Returns the Hook in use, or None."""
    there = getattr(sys.modules.get("distributed.comm.tcp"), "host_array", None)
    return there if isinstance(there, Hook) else None
