"""Share arrays with unrelated processes by name, over a Unix socket.

A process publishes arrays with `serve`, other processes of the same user map
them with `attach`. The arrays need interprocess memory (``interprocess=True``
or ``"readonly"`` at creation). A Go program that serves with the package
interop/share can be attached to, and can attach, in the same way.

Server and client both hold the memory: it stays until the last process has
released it, even if the server withdraws the name, closes or ends.

A path names a socket without a file, made from the absolute path and the
user. "unix:/path" is a socket file, "@name" an abstract name, and "" a new
random name.

A signal such as Ctrl-C interrupts every wait for another process. It cannot
interrupt a wait for work that is pending on an array: the exception is raised
when the work completes.

Processes that multiprocessing starts do not need this module: an Array that
multiprocessing sends arrives on the same memory. See docs/python-processes.md.

Examples
--------
>>> import usmbridge as ub
>>> frame = ub.zeros(3, device="host", interprocess=True)
>>> with ub.share.serve("", {"frame": frame}) as server:
...     # Another process would do this with the address.
...     here = ub.share.attach(server.address, "frame")
>>> frame[0] = 7
>>> here.tolist()
[7.0, 0.0, 0.0]
>>> here.release(), frame.release()
(None, None)
"""

import os
from collections.abc import Iterator, Mapping, MutableMapping

from usmbridge import Array, _native

__all__ = ["Server", "attach", "export", "names", "open", "revoke", "serve", "stats", "wait"]

_TIMEOUT = 10.0
# The limits of a server, in the order of the C code.
_LIMITS = ("max_peers", "max_leases", "max_segments", "max_names", "max_queued")


def _limits(given: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the limits for the C code, where 0 means the default."""
    for name, value in given.items():
        if name not in _LIMITS:
            raise TypeError(f"serve() got an unexpected keyword argument {name!r}; the limits are {', '.join(_LIMITS)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if not 0 < value < 1 << 31:
            raise ValueError(f"{name}={value}: must be from 1 to 2**31 - 1")
    return tuple(given.get(name, 0) for name in _LIMITS)


class Server(MutableMapping[str, Array]):
    """A mapping from names to the arrays that are published under them.

    `serve` returns it. Assigning an item publishes an array and replaces the
    previous one; deleting an item withdraws it. Clients that have attached
    keep their array. Methods can be called from any thread. After `close`
    they raise ValueError, and in a forked child process RuntimeError.

    Parameters
    ----------
    path, arrays, timeout, **limits
        As in `serve`.

    Examples
    --------
    >>> import usmbridge as ub
    >>> server = ub.share.serve("")
    >>> server["a"] = ub.zeros(3, device="host", interprocess=True)
    >>> list(server), len(server)
    (['a'], 1)
    >>> server.close()
    """

    def __init__(
        self,
        path: "str | os.PathLike[str]",
        arrays: Mapping[str, Array] | None = None,
        timeout: float | None = _TIMEOUT,
        **limits: int,
    ) -> None:
        self._number: int | None = None
        self._arrays: dict[str, Array] = {}
        self._timeout = timeout
        self._address: str
        self._number, self._address = _native._share_listen(os.fspath(path), timeout, _limits(limits))
        try:
            for name, array in (arrays or {}).items():
                self[name] = array
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """Address that `attach` takes in any process."""
        return self._address

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
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
        """Stop the server; calling it again does nothing.

        Attached arrays stay valid.

        Examples
        --------
        >>> import usmbridge as ub
        >>> server = ub.share.serve("")
        >>> server.close()
        >>> server.closed
        True
        """
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
                pass  # in a forked child: the server belongs to the parent

    def __repr__(self) -> str:
        return f"<usmbridge.share.Server {'closed' if self.closed else self.address!r}: {', '.join(self._arrays) or 'no names'}>"


def serve(
    path: "str | os.PathLike[str]",
    arrays: Mapping[str, Array] | None = None,
    *,
    timeout: float | None = _TIMEOUT,
    **limits: int,
) -> Server:
    """Publish arrays under names until the server is closed.

    Parameters
    ----------
    path : str or os.PathLike
        The address, in a form that the module describes.
    arrays : mapping of str to Array, optional
        The first arrays to publish. If the memory was made with
        ``interprocess="readonly"``, clients cannot write it in any way. A
        read-only view of other memory arrives as a read-only Array, which
        only prevents accidents.
    timeout : float, optional
        Seconds to wait for pending work on an array; None waits forever.
    **limits : int, optional
        `max_peers`: connections (256). `max_leases`: arrays that one process
        holds (65536). `max_segments`: segments that one process knows (1024).
        `max_names`: published names (4096). `max_queued`: bytes that wait for
        a process that does not read, which is disconnected beyond it (1 MiB).

    Returns
    -------
    Server
        The server; a context manager that closes it.

    Raises
    ------
    BufferError
        If an array is not interprocess memory.
    ConnectionError
        If another process serves at the address.
    TimeoutError
        If pending work takes longer than `timeout`.
    RuntimeError
        In a forked child process.

    Examples
    --------
    >>> import usmbridge as ub
    >>> with ub.share.serve("") as server:
    ...     server["a"] = ub.zeros(3, device="host", interprocess=True)
    ...     ub.share.names(server.address)
    ['a']
    """
    return Server(path, arrays, timeout, **limits)


def attach(path: "str | os.PathLike[str]", name: str, *, timeout: float | None = _TIMEOUT) -> Array:
    """Return the array that a server publishes under a name, on the same memory.

    Parameters
    ----------
    path : str or os.PathLike
        The address of the server.
    name : str
        The name.
    timeout : float, optional
        Seconds to wait for an answer; None waits forever.

    Returns
    -------
    Array
        The array. USM becomes USM of the same kind on this process's OpenCL
        CPU device, or plain memory if it has no such device.

    Raises
    ------
    ConnectionError
        If no process serves at the address, or one of another user does.
    KeyError
        If the server has no such name.
    TimeoutError
        If there is no answer in time.
    RuntimeError
        In a forked child process.

    Examples
    --------
    >>> import usmbridge as ub
    >>> a = ub.ones(2, device="host", interprocess="readonly")
    >>> with ub.share.serve("", {"a": a}) as server:
    ...     b = ub.share.attach(server.address, "a")
    >>> b.tolist(), b.interprocess
    ([1.0, 1.0], 'readonly')
    """
    array: Array = _native._share_attach(os.fspath(path), name, timeout)[0]
    return array


def wait(path: "str | os.PathLike[str]", name: str, after: int = 0, *, timeout: float | None = None) -> tuple[Array, int]:
    """Wait for a newer version of an array than the last one seen.

    Each assignment to a name of a `Server` publishes a new version, with a
    higher number. Versions that were replaced before the call or during it
    are skipped.

    Parameters
    ----------
    path : str or os.PathLike
        The address of the server.
    name : str
        The name. If it is not published yet, the call waits for it.
    after : int, optional
        The number of the last version seen; 0 accepts any version.
    timeout : float, optional
        Seconds to wait; None waits forever. A signal can interrupt the wait.

    Returns
    -------
    tuple of (Array, int)
        The newest version, as `attach` returns it, and its number.

    Raises
    ------
    ConnectionError
        If no process serves at the address, or the server ends.
    TimeoutError
        If no newer version is published in time.
    RuntimeError
        In a forked child process.

    Examples
    --------
    >>> import usmbridge as ub
    >>> with ub.share.serve("") as server:
    ...     server["frame"] = ub.ones(2, device="host", interprocess=True)
    ...     frame, number = ub.share.wait(server.address, "frame")
    ...     server["frame"] = ub.zeros(2, device="host", interprocess=True)
    ...     frame, number = ub.share.wait(server.address, "frame", number)
    >>> frame.tolist()
    [0.0, 0.0]
    """
    try:
        found: tuple[Array, int] = _native._share_attach(os.fspath(path), name, timeout, after)
    except TimeoutError:
        raise TimeoutError(f"no version of {name!r} after number {after} was published within {timeout} s") from None
    return found


def export(array: Array, *, timeout: float | None = _TIMEOUT) -> bytes:
    """Return a handle of an array, for one process to open.

    Send the bytes over any channel. A process that reads them can open the
    array instead of the receiver. The handle is valid for one `open`, and ends
    with this process or after ten minutes.

    Parameters
    ----------
    array : Array
        An array of interprocess memory.
    timeout : float, optional
        Seconds to wait for pending work on the array; None waits forever.

    Returns
    -------
    bytes
        The handle. Go programs open it with package interop/share.

    Raises
    ------
    BufferError
        If the array is not interprocess memory.
    TimeoutError, RuntimeError
        As in `serve`.

    Examples
    --------
    >>> import usmbridge as ub
    >>> handle = ub.share.export(ub.ones(2, device="host", interprocess=True))
    >>> ub.share.open(handle).tolist()
    [1.0, 1.0]
    """
    handle: bytes | None = _native._share_export(array, timeout)
    if handle is None:
        raise BufferError("other processes cannot map this array; create it with interprocess=True")
    return handle


def open(handle: bytes, *, timeout: float | None = _TIMEOUT) -> Array:
    """Return the array of a handle, on the same memory.

    Parameters
    ----------
    handle : bytes
        A handle of `export` or of Go's Server.Export, which was not opened.
    timeout : float, optional
        Seconds to wait for an answer; None waits forever.

    Returns
    -------
    Array
        The array, as in `attach`.

    Raises
    ------
    ReferenceError
        If the handle was opened or has ended.
    ValueError
        If the bytes are not a handle.
    ConnectionError, TimeoutError, RuntimeError
        As in `attach`.

    Examples
    --------
    >>> import usmbridge as ub
    >>> ub.share.open(b"")
    Traceback (most recent call last):
    ValueError: share: ParseHandle: not a handle: the 0 bytes do not begin with the magic number of a handle
    """
    array: Array = _native._share_open(handle, True, timeout)
    return array


def revoke(handle: bytes) -> None:
    """End a handle that was not opened, so that its memory is free again.

    It has no effect on a handle that was opened. Without it, a handle that
    no process opens holds the memory for ten minutes.

    Parameters
    ----------
    handle : bytes
        A handle of `export`.

    Raises
    ------
    RuntimeError
        In a forked child process.

    Examples
    --------
    >>> import usmbridge as ub
    >>> handle = ub.share.export(ub.ones(2, device="host", interprocess=True))
    >>> ub.share.revoke(handle)
    """
    _native._share_revoke(handle)


def names(path: "str | os.PathLike[str]", *, timeout: float | None = _TIMEOUT) -> list[str]:
    """Return the names that a server publishes.

    Parameters
    ----------
    path : str or os.PathLike
        The address of the server.
    timeout : float, optional
        Seconds to wait for an answer; None waits forever.

    Returns
    -------
    list of str
        The names, sorted.

    Raises
    ------
    ConnectionError, TimeoutError, RuntimeError
        As in `attach`.

    Examples
    --------
    >>> import usmbridge as ub
    >>> with ub.share.serve("") as server:
    ...     ub.share.names(server.address)
    []
    """
    listed: list[str] = _native._share_names(os.fspath(path), timeout)
    return listed


def stats() -> dict[str, int]:
    """Return what this process shares, as counts.

    Returns
    -------
    dict of str to int
        "peers": connected processes. "leases": arrays of this process that
        others hold. "unopened": arrays that were sent and not yet opened.
        "opened": arrays of other processes that this one holds. "mapped" and
        "mapped_bytes": mapped segments of other processes and their size;
        `usmbridge.trim` unmaps idle ones.

    Raises
    ------
    RuntimeError
        In a forked child process.

    Examples
    --------
    >>> import usmbridge as ub
    >>> ub.share.stats()["opened"] >= 0
    True
    """
    counts: dict[str, int] = _native._share_stats()
    return counts
