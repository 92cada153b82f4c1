"""Messages of distributed received straight into a pool of ours, for who asks for it.

distributed has no way to say where received bytes go. Its TCP and TLS comms ask one
function of the module distributed.comm.tcp for memory, host_array(n); that name is bound
to one of ours here, if everything around it is as it was when this was written. What is
received belongs to whoever gets the message, NumPy's arrays among them: it is ordinary
memory to them.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import usmbridge

# Smaller pieces are headers for the most part, or copied by who gets them.
LEAST = 1 << 16


class Unknown(RuntimeError):
    """distributed.comm.tcp is not as it was when this module was written."""


def _known(tcp: ModuleType) -> Callable[[int], memoryview]:
    """The function of distributed's to put ours in place of, or Unknown."""
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
    """Stands in for host_array. Its memory is of a kind of USM, or plain memory of the host
    backend's pool where there is no SYCL device."""

    def __init__(self, plain: Callable[[int], memoryview], usm_type: Any) -> None:
        self.plain = plain
        self.usm_type = usm_type if any(d.filter_string != "host" for d in usmbridge.devices()) else None
        self.refused = 0  # how often our pool had no room

    def __call__(self, n: int) -> memoryview:
        if n < LEAST:
            return self.plain(n)
        try:
            return memoryview(usmbridge.empty(n, "uint8", usm_type=self.usm_type))
        except MemoryError:
            # The message comes in all the same. An Array in it then asks for room itself,
            # and says so if there is none.
            self.refused += 1
            return self.plain(n)


_lock = threading.Lock()
_users: set[object] = set()


def install(user: object, usm_type: str) -> Hook:
    """Receives into our pool from now on, for as long as there is a user: the workers of a
    process share the function, and the last that asked says the kind of memory. Unknown,
    with nothing changed, where that cannot be."""
    from distributed.comm import tcp

    with _lock:
        there = getattr(tcp, "host_array", None)
        plain = there.plain if isinstance(there, Hook) else _known(tcp)
        hook = Hook(plain, usm_type)
        tcp.host_array = hook  # type: ignore[assignment]
        _users.add(user)
        return hook


def remove(user: object) -> None:
    """Ends a user's wish; the last one's end puts distributed's own function back."""
    from distributed.comm import tcp

    with _lock:
        _users.discard(user)
        there = getattr(tcp, "host_array", None)
        if not _users and isinstance(there, Hook):
            tcp.host_array = there.plain  # type: ignore[assignment]


def installed() -> Hook | None:
    """The function of ours that receives, or None."""
    there = getattr(sys.modules.get("distributed.comm.tcp"), "host_array", None)
    return there if isinstance(there, Hook) else None
