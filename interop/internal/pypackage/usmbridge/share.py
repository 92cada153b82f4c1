"""Arrays for processes that are no relatives: published under names, over a Unix socket.

    with usmbridge.share.serve("/run/user/1000/frames", {"frame": array}) as server:
        server["frame"] = another              # for whoever attaches from now on

    array = usmbridge.share.attach("/run/user/1000/frames", "frame")     # in another process

What is attached is an Array on the same memory, which has to be made for that
(interprocess=). It is held by both: the server may withdraw it or end, and the memory stays
until the last has released it. A path is the name of a socket without a file, made from the
absolute path and the user; "unix:/path" is a socket file, "@name" a name as it is, and "" a
new random one. Processes of the same user can attach, and nobody else. A program of Go that
serves by the package interop/share is as good as one of Python, either way.

Relatives need none of this: arrays that are sent by multiprocessing arrive on the same
memory by themselves. The pickle that is sent is good for one opening, within ten minutes,
while the process that made the memory lives. The arguments of a process are over with that
process; one that was killed with another array unopened, such as one out of a Queue, leaves
the memory in use for that time.

A process that forks shares what it made with its child, which can use nothing that was
received: its Arrays say so (RuntimeError), and addresses that NumPy has of such memory are
unmapped there.
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping

from usmbridge import Array, _native

__all__ = ["Server", "attach", "names", "serve", "stats"]

_TIMEOUT = 10.0


class Server(MutableMapping[str, Array]):
    """What serve() gives: a mapping from names to Arrays, until it is closed.

    Assigning publishes, in the place of what had the name, and deleting withdraws; who has
    attached keeps what they have. Any thread.
    """

    def __init__(self, path: "str | os.PathLike[str]", arrays: Mapping[str, Array] | None = None, timeout: float | None = _TIMEOUT) -> None:
        self._number: int | None = None
        self._arrays: dict[str, Array] = {}
        self._timeout = timeout
        self._address: str
        self._number, self._address = _native._share_listen(os.fspath(path), timeout)
        try:
            for name, array in (arrays or {}).items():
                self[name] = array
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Where it listens, as attach() takes it in any process."""
        return self._address

    @property
    def closed(self) -> bool:
        return self._number is None

    def _open(self) -> int:
        if self._number is None:
            raise ValueError("the server is closed")
        return self._number

    def __setitem__(self, name: str, array: Array) -> None:
        _native._share_publish(self._open(), name, array, self._timeout)
        self._arrays[name] = array[...]

    def __delitem__(self, name: str) -> None:
        del self._arrays[name]
        _native._share_withdraw(self._open(), name)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._arrays))

    def __len__(self) -> int:
        return len(self._arrays)

    def close(self) -> None:
        """Ends the service; what is attached stays. It may be called again."""
        number, self._number = self._number, None
        self._arrays.clear()
        if number is not None:
            _native._share_close(number)

    def __enter__(self) -> "Server":
        self._open()
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None:
            try:
                self.close()
            except RuntimeError:
                pass  # a forked child: the server is its parent's

    def __repr__(self) -> str:
        return f"<usmbridge.share.Server {'closed' if self.closed else self.address!r}: {', '.join(self._arrays) or 'no names'}>"


def serve(path: "str | os.PathLike[str]", arrays: Mapping[str, Array] | None = None, *, timeout: float | None = _TIMEOUT) -> Server:
    """Publishes arrays under names until the server is closed.

    Arrays must be made with interprocess= (BufferError): with "readonly" nobody but their
    maker writes them, whatever they do; a read-only view of others arrives read-only too,
    which keeps from accidents alone. timeout: seconds that work pending on an array may
    take. ConnectionError: somebody serves there.
    """
    return Server(path, arrays, timeout)


def attach(path: "str | os.PathLike[str]", name: str, *, timeout: float | None = _TIMEOUT) -> Array:
    """The Array that is published under a name, on the same memory.

    USM is USM of this process's OpenCL CPU device, of the same kind; where there is no such
    device it is plain memory (usm_type None). ConnectionError: nobody serves there, or not
    this user; KeyError: no such name; TimeoutError: no answer within so many seconds (None:
    for ever).
    """
    array: Array = _native._share_attach(os.fspath(path), name, timeout)
    return array


def names(path: "str | os.PathLike[str]", *, timeout: float | None = _TIMEOUT) -> list[str]:
    """What is published there, in order."""
    listed: list[str] = _native._share_names(os.fspath(path), timeout)
    return listed


def stats() -> dict[str, int]:
    """Counts of this process: "peers" (processes connected), "leases" (its arrays that others
    have), "unopened" (those that were sent and have not arrived), "opened" (arrays of others
    that it has), "mapped" and "mapped_bytes" (segments of others; trim() unmaps idle ones)."""
    counts: dict[str, int] = _native._share_stats()
    return counts
