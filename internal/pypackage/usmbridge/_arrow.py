"""Reads the parameters of Arrow's tensors. The C module imports this file when it needs it."""

import functools
import json
import math

from usmbridge import asarray

_MAX_NDIM = 64  # of an Array, whose first axis is the rows
_MAX = (1 << 63) - 1


def _refuse(what):
    return BufferError(f"the object's Arrow structs describe a tensor {what}")


def _integers(parameters, key):
    """Returns the list of integers under a key; None if there is none."""
    found = parameters.get(key)
    if found is None:
        return None
    if type(found) is not list or len(found) >= _MAX_NDIM:
        raise _refuse("whose axes are not a list, or are too many")
    if not all(type(n) is int and 0 <= n <= _MAX for n in found):
        raise _refuse("with an invalid extent or axis number")
    return found


def row(parameters, size):
    """Returns the shape and the strides of a row of arrow.fixed_shape_tensor, which has size elements.

    Axis i of a row is the stored axis permutation[i].
    """
    return _rows(parameters, size)


def _read(parameters, size):
    try:
        pairs = json.loads(parameters.decode(), object_pairs_hook=tuple)  # objects become tuples, never lists
    except (ValueError, RecursionError):
        pairs = None
    if type(pairs) is not tuple:
        raise _refuse("by parameters that are not a JSON object")
    named = dict(pairs)
    if len(named) < len(pairs):
        raise _refuse("by parameters with a duplicate name")
    shape, order = _integers(named, "shape"), _integers(named, "permutation")
    if shape is None:
        raise _refuse("without a shape")
    if math.prod(n for n in shape if n) > _MAX:  # strides are such products
        raise _refuse("whose size overflows")
    if math.prod(shape) != size:
        raise _refuse("whose shape does not match the size of its lists")
    axes = range(len(shape)) if order is None else order
    if sorted(axes) != list(range(len(shape))):
        raise _refuse("by a permutation that does not have each axis once")
    strides, step = [0] * len(shape), 1
    for i in reversed(range(len(shape))):
        strides[i] = step
        step *= shape[i] or 1
    return tuple(shape[i] for i in axes), tuple(strides[i] for i in axes)


_rows = functools.lru_cache(64)(_read)  # the columns of a table are read again and again


def frame(columns, dtype):
    """Returns an Array with an axis of the columns, which are Arrays, after the axis of the rows."""
    return asarray(columns, dtype=dtype, device="host").T
