"""The defaults for new arrays."""

import contextvars

from usmbridge import _native

_defaults = contextvars.ContextVar("usmbridge.defaults", default=(None, None, None))
_native._defaults_from(_defaults.get)
_UNCHANGED = object()


class set_default:
    """Set the defaults for new arrays, from now on or in a ``with`` statement.

    They apply to `empty`, `zeros`, `ones`, `full` and to `asarray` of numbers,
    wherever the caller gives no argument. The ``_like`` functions use them for
    the rest of a place of which the caller gives a part: the kind of memory for
    a device, or the device for a kind if the other array is in plain memory.
    Arguments that are left out stay as they are; None restores the built-in
    default.

    Parameters
    ----------
    usm_type : {"device", "shared", "host"} or None
        The kind of USM. Built in: "shared".
    device : filter string, Device or None
        Also a device or queue of dpctl or dpnp. Built in: the default SYCL
        device, or the host backend if there is none. On the host backend new
        arrays are in plain memory, whatever the default of ``usm_type`` is.
    dtype : element type or None
        The real floating-point type. Complex numbers have twice its size. Built
        in: float64, or float32 on devices without double precision.

    Raises
    ------
    TypeError, ValueError
        If a value is invalid or there is no such device.

    Notes
    -----
    The defaults are held in a context variable. Each thread begins with the
    built-in ones, and each asyncio task with a copy of its creator's.

    Examples
    --------
    >>> import usmbridge as ub
    >>> with ub.set_default(device="host", dtype="float32"):
    ...     a = ub.zeros(2)
    >>> a
    Array([0., 0.], dtype=float32, device=host)
    >>> ub.zeros(2).dtype == "float64"
    True
    """

    __module__ = "usmbridge"

    def __init__(self, *, usm_type=_UNCHANGED, device=_UNCHANGED, dtype=_UNCHANGED):
        given = usm_type, device, dtype
        self._token = _defaults.set(tuple(old if new is _UNCHANGED else new for old, new in zip(_defaults.get(), given)))
        try:
            if all(value is not _UNCHANGED and value is not None for value in (device, usm_type)):
                _native.empty(0, device=device, usm_type=usm_type)
            made = _native.empty(0)
            if not str(made.dtype).startswith(("float", "bfloat")):
                raise ValueError(f"set_default: dtype must be a real floating-point type, not {made.dtype}")
        except BaseException:
            self._restore()
            raise

    def _restore(self):
        if self._token is not None:
            _defaults.reset(self._token)
            self._token = None

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self._restore()
