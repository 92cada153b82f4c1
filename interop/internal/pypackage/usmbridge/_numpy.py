"""NumPy's array protocols where Python suffices. The C module imports this file when it needs it."""

import numpy

from usmbridge import Array

_MAX_DEPTH = 32  # of nested lists and tuples


def _with_ndarrays(o, depth=0):
    """Returns o with an ndarray on the same memory for each Array in it, in lists and tuples too.

    The result is o itself if there is no Array in it.
    """
    if type(o) is Array:
        return numpy.asarray(o)
    if not isinstance(o, (list, tuple)) or depth == _MAX_DEPTH:
        return o
    items, found = list(o), False
    for i, item in enumerate(items):
        items[i] = _with_ndarrays(item, depth + 1)
        found = found or items[i] is not item
    if not found:
        return o
    return tuple(items) if isinstance(o, tuple) else items


def array_function(func, types, args, kwargs):
    """Calls a function of NumPy with ndarrays on the memory of the Arrays in its arguments.

    Without it NumPy would read an Array of device memory as a sequence, or, in functions that
    swallow errors (array_equal), return a wrong result.
    """
    if not isinstance(args, tuple) or not isinstance(kwargs, dict):
        raise TypeError("__array_function__ takes func, types, args and kwargs")
    for t in types:
        if t is not Array and not (isinstance(t, type) and issubclass(t, numpy.ndarray)):
            return NotImplemented
    positional = _with_ndarrays(args)
    found = positional is not args
    keywords = dict(kwargs)  # conversions can run code that changes kwargs
    for name, value in keywords.items():
        converted = _with_ndarrays(value)
        if converted is not value:
            keywords[name] = converted
            found = True
    return func(*positional, **keywords) if found else NotImplemented


def view(o):
    """Returns o.__array__(copy=False), which is on the memory of o, as an ndarray.

    An __array__ without the parameter copy may copy. Its TypeError becomes the ValueError that
    others raise if they cannot share their memory.
    """
    try:
        a = o.__array__(copy=False)
    except TypeError as e:
        raise ValueError(
            f"asarray: __array__(copy=False) of {type(o).__name__} failed ({e}), so its elements cannot be shared for sure; "
            "leave copy=False out, or pass numpy.array(x), to copy them") from None
    if not isinstance(a, numpy.ndarray):
        raise ValueError(f"asarray: __array__ returned a {type(a).__name__}, not a numpy.ndarray")
    return numpy.asarray(a)  # the elements of a subclass, such as a masked array, can have other meanings
