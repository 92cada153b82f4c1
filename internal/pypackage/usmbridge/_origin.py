"""Finds the Array in USM of which an object is a view. The C module imports this file when it needs it."""

import sys

from usmbridge import Array, from_usm_array_interface

_MAX_DEPTH = 32  # of views of views


def _array_behind(o):
    """Returns the Array whose buffer an ndarray or a memoryview is a view of; None if there is none."""
    numpy = sys.modules.get("numpy")
    for _ in range(_MAX_DEPTH):
        if type(o) is Array:
            return o
        if type(o) is memoryview:
            o = o.obj
        elif numpy is not None and isinstance(o, numpy.ndarray):
            o = o.base
        else:
            return None
    return None


class _Described:
    """A dictionary of USM. The module remembers the memory of the object from one import to the next."""


def in_usm(a, o):
    """Returns an Array like a, an Array in plain memory made of o, on the same memory in USM; a itself if o is not a view of USM.

    It has the queue and the kind of the Array behind o, and is read-only if o is.
    """
    behind = _array_behind(o)
    if behind is None or a.typestr is None:
        return a
    d = _Described()
    try:
        d.__sycl_usm_array_interface__ = whole = behind.__sycl_usm_array_interface__
    except (AttributeError, ValueError, RuntimeError):  # not USM, released meanwhile, or a forked child
        return a
    try:
        memory = from_usm_array_interface(d)  # with the same record of pending work as the Array behind o
        d.__sycl_usm_array_interface__ = {"data": (a._pointer, a.readonly), "shape": a.shape, "strides": a.strides, "typestr": a.typestr,
                                          "version": 1, "offset": 0, "syclobj": whole["syclobj"]}
        found = from_usm_array_interface(d)
        del memory
    except (ValueError, RuntimeError):  # elements outside its memory
        return a
    return found
