"""Indexing by integer and boolean arrays, as NumPy does. The C module calls _get and _set.

dpnp neither checks integers against the extent nor puts the axes where NumPy
does if slices separate the arrays. So a key is reduced to one form: a view of
the array, and arrays of integers for neighbouring axes of the view. The arrays
of a key are read on the host; a mask of the first axes alone is not.
"""

import operator

from . import Array, array_api, empty
from ._need import numpy


def _index_array(k):
    """Returns an integer, a sequence or an array in a key as a numpy.ndarray of integers or booleans on the host."""
    if not isinstance(k, bool) and not hasattr(k, "ndim") and hasattr(type(k), "__index__"):
        k = operator.index(k)
    x = k.asnumpy() if type(k) is Array else numpy.asarray(k)
    if x.size == 0 and not hasattr(k, "dtype"):  # an empty list has no element type
        x = x.astype(numpy.intp)
    if x.dtype.kind not in "iub":
        raise IndexError(f"arrays used as indices must be of integer or boolean type, not {x.dtype}")
    return x


def _expanded(a, key):
    """Returns the items of a key, with a slice for each axis that it leaves out and arrays as _index_array returns them."""
    items, plain = [], (slice, type(None), type(...))
    for k in key if isinstance(key, tuple) else (key,):
        items.append(k if isinstance(k, plain) else _index_array(k))
    used = sum(k.ndim if isinstance(k, numpy.ndarray) and k.dtype.kind == "b" else k is not None and k is not ... for k in items)
    if used > a.ndim:
        raise IndexError(f"too many indices: the array has {a.ndim} dimensions, but {used} were indexed")
    dots = [i for i, k in enumerate(items) if k is ...]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = dots[0] + 1 if dots else len(items)  # the ellipsis stays: it separates arrays, whatever its length
    items[at:at] = [slice(None)] * (a.ndim - used)
    return items


def _checked(x, extent, axis):
    """Returns an array of integers with all of them in range(extent)."""
    if x.min() < -extent or x.max() >= extent:
        bad = x[(x < -extent) | (x >= extent)].flat[0]
        raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {extent}")
    x = x.astype(numpy.int64)
    return x + (x < 0) * extent


def _selection(a, key):
    """Returns a view of an Array, the first of its axes that are indexed, and the arrays of integers that index
    them, broadcast to one shape."""
    basic, arrays, axes, axis, where, extents = [], [], [], 0, [], []
    items = _expanded(a, key)
    for position, k in enumerate(items):
        if k is ...:
            continue
        if k is None or isinstance(k, slice):
            basic.append(k)
            axis += k is not None
            continue
        if k.ndim == 0 and k.dtype.kind != "b":  # checked even if nothing is selected
            k = _checked(k, a.shape[axis], axis)
        if k.dtype.kind != "b":
            found, width = [k], 1
            extents.append((len(arrays), a.shape[axis], axis))
        elif k.ndim == 0:  # an axis of one element, which is selected or not
            found, width = [numpy.zeros(int(k), numpy.int64)], 0
        else:
            for n, (want, got) in enumerate(zip(a.shape[axis:], k.shape)):
                if got and want != got:  # as NumPy, which does not check masks without elements
                    raise IndexError(f"boolean index did not match indexed array along axis {axis + n}; size of axis is {want} but size of corresponding boolean axis is {got}")
            found, width = k.nonzero(), k.ndim
        for x in found:
            axes.append(len(basic))
            arrays.append(x)
            basic.append(slice(None) if width else None)
        where.append(position)
        axis += width
    try:
        arrays = list(numpy.broadcast_arrays(*arrays))
    except ValueError:
        raise IndexError("shape mismatch: indexing arrays could not be broadcast together with shapes " + " ".join(str(x.shape) for x in arrays)) from None
    if arrays[0].size:  # NumPy checks nothing if nothing is selected
        for n, extent, axis in extents:
            arrays[n] = _checked(arrays[n], extent, axis)
    view = a[tuple(basic)]
    if where[-1] - where[0] == len(where) - 1:
        return view, axes[0], arrays
    # As in NumPy, the axes of the result come first if slices lie between the arrays.
    rest = [n for n in range(view.ndim) if n not in axes]
    return view.transpose(*axes, *rest), 0, arrays


def _is_mask(a, key):
    """Reports whether a key is one boolean array with the shape of a's first axes, which dpnp applies on the device."""
    if type(key) is not Array and not isinstance(key, numpy.ndarray):
        return False
    return key.dtype == "bool" and 0 < key.ndim <= a.ndim and key.shape == a.shape[: key.ndim]


def _mask_beside(key, a):
    """Returns the mask of _is_mask as an Array in the USM of a. Arrays of other queues stay there."""
    return array_api._beside(key, a) if type(key) is not Array or key.usm_type is None else key


def _on_host(a):
    return a.usm_type is None or not array_api._by_dpnp(a)


def _host_key(first, arrays):
    return (slice(None),) * first + tuple(arrays)


def _usm_key(a, first, arrays):
    return (slice(None),) * first + tuple(array_api._beside(x, a) for x in arrays)


def _ndarray(k):
    return numpy.asarray(k) if k.usm_type is None else k.asnumpy()


def _get(a, key):
    if a.usm_type is None:
        return array_api._of_numpy(numpy.asarray(a)[array_api._native(key, _ndarray)])
    if not _on_host(a) and a.size and _is_mask(a, key):
        r = array_api._run("", "_get_item", (a, (_mask_beside(key, a),)), {})
    else:
        view, first, arrays = _selection(a, key)
        if _on_host(a) or not arrays[0].size or not view.size:
            chosen = numpy.asarray(view)[_host_key(first, arrays)] if a.usm_type != "device" else None
            if chosen is None:  # nothing is selected
                shape = view.shape[:first] + arrays[0].shape + view.shape[first + len(arrays) :]
                return empty(shape, dtype=a.dtype, usm_type=a.usm_type, device=a._on)
            return array_api._beside(chosen, a)
        r = array_api._run("", "_get_item", (view, (_usm_key(a, first, arrays),)), {})
    return r.copy() if r.readonly else r


def _assign(a, key, value):
    """Assigns by dpnp, which refuses values and indices that share memory with a before it writes."""
    try:
        array_api._run("", "_set_item", (a, (key,), value), {})
    except ValueError:
        array_api._run("", "_set_item", (a, (key,), value.copy()), {})


def _assign_on_host(a, key, value):
    """Assigns by NumPy: to the memory of a, or to a copy that is then assigned if a is packed, because NumPy has no view of that."""
    n = numpy.asarray(a)
    r = n if n.flags.writeable else n.copy()
    r[key] = numpy.asarray(value)
    if r is not n:
        a[...] = r


def _without_leading(value, ndim):
    """Returns a value for so many axes: as NumPy, without leading axes of one element beyond them."""
    extra = value.ndim - ndim
    return value.reshape(value.shape[extra:]) if extra > 0 and value.shape[:extra] == (1,) * extra else value


def _set(a, key, value):
    """Assigns an Array of a's element type in memory beside a."""
    if a.usm_type is None:
        _assign_on_host(a, array_api._native(key, _ndarray), value)
        return
    if not _on_host(a) and a.size and _is_mask(a, key):
        _assign(a, _mask_beside(key, a), _without_leading(value, a.ndim - key.ndim + 1))
        return
    view, first, arrays = _selection(a, key)
    if _on_host(a):
        _assign_on_host(view, _host_key(first, arrays), value)
        return
    shape = view.shape[:first] + arrays[0].shape + view.shape[first + len(arrays) :]
    value = _without_leading(value, len(shape))
    numpy.broadcast_to(numpy.empty(value.shape, "V0"), shape)  # raises for a value of another shape
    if 0 not in shape:
        _assign(view, _usm_key(a, first, arrays), value)
