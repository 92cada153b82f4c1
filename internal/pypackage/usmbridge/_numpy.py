"""NumPy's array protocols where Python suffices. The C module imports this file when it needs it."""

import sys

from usmbridge import Array, DType, _native, asarray
from usmbridge._need import numpy

_MAX_DEPTH = 32  # of nested lists and tuples
_EMPTY = numpy.empty(0).__reduce__()[2]  # the state of an ndarray without elements


def _with_ndarrays(o, depth=0):
    """Returns o with an ndarray on the same memory for each Array in it, in lists and tuples too.

    The result is o itself if there is no Array in it.
    """
    if type(o) is Array:
        o._reach()  # the same in a forked child as Array's methods
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


def ndarray(a, dtype, copy):
    """Returns an ndarray on the memory of an Array, or a copy of it, as Array.__array__ does."""
    if a.typestr is not None:
        n = numpy.asarray(a)
    elif isinstance(a.dtype, numpy.dtype):  # of ml_dtypes, which no protocol of NumPy describes
        n = numpy.asarray(a.view(f"uint{8 * a.itemsize}")).view(a.dtype)
    else:
        to = "complex64" if a.dtype.startswith("complex") else "float32"
        raise TypeError(
            f"NumPy has no element type {a.dtype}, and ml_dtypes is not installed or has none either; "
            f'install a newer one, or convert: asarray(a, dtype="{to}").asnumpy()')
    if dtype is not None and n.dtype != dtype:
        if copy is False:
            raise ValueError("copy=False, but a change of the element type needs a copy; leave copy out to allow it")
        return n.astype(dtype)
    return n.copy() if copy else n


# The functions of NumPy with a parameter "like", which an Array can be. Their result is an ndarray, as that of the others.
_WITH_LIKE = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require", "empty", "ones", "zeros", "full", "identity", "eye",
              "tri", "arange", "fromfunction", "frombuffer", "fromiter", "fromstring", "fromfile", "loadtxt", "genfromtxt")


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
    names, values = list(kwargs), list(kwargs.values())  # conversions can run code that changes kwargs
    positional, keywords = _with_ndarrays(args), _with_ndarrays(values)
    if positional is args and keywords is values and func.__name__ not in _WITH_LIKE:
        return NotImplemented
    return func(*positional, **dict(zip(names, keywords)))


def array_ufunc(args, kwargs):
    """Calls a universal function of NumPy: the arguments of Array.__array_ufunc__.

    The result is an Array: of the function of array_api that NumPy has too, so that ``n + a`` is what the Array a
    returns, else of NumPy's result. Arrays in ``out`` are written to. With an array of a library that has its own
    operators, the function is called again with ndarrays in place of the Arrays, and returns what that library does.
    """
    if len(args) < 2:
        raise TypeError("__array_ufunc__ takes ufunc, method and the inputs")
    ufunc, method, *inputs = args
    kwargs = dict(kwargs or {})
    out = kwargs.get("out", ())
    if not isinstance(out, tuple):  # functions of Numba
        out = (out,)
    from usmbridge import _operators
    partner = any(map(_operators._is_partner, inputs))
    operate = _operators._OF_UFUNC.get(ufunc)
    if operate and method == "__call__" and not kwargs and not partner:
        return operate(*inputs)
    if out:
        kwargs["out"] = out
    kwargs = {name: _with_ndarrays(value) for name, value in kwargs.items()}
    operands = _with_ndarrays(inputs)
    if method == "at" and type(inputs[0]) is Array and not operands[0].flags.writeable:  # NumPy does not check this
        raise ValueError("the array is read-only, or its elements are packed and NumPy has a copy of them")
    r = getattr(ufunc, method)(*operands, **kwargs)
    like = None if partner else next((x for x in inputs if type(x) is Array), None)
    several = isinstance(r, tuple)
    results = r if several else (r,)
    results = tuple(o if type(o) is Array else x if o is not None else _beside(x, like) for o, x in zip(out or (None,) * len(results), results))
    return results if several else results[0]


def _beside(r, like):
    """Returns a result of NumPy as an Array beside the Array like, or unchanged if Arrays have no such elements or like is None."""
    from usmbridge import array_api
    if like is None:
        return r
    try:
        return array_api._wrapped(r, like if like.usm_type else None)
    except TypeError:
        return r


def text(a):
    """Returns the elements as NumPy prints them."""
    n = a.asnumpy() if a.usm_type == "device" else numpy.asarray(a)
    try:
        return numpy.array2string(n, separator=", ", prefix="Array(")
    finally:
        # If CPython 3.11 has no memory to call a function that has closures, it never drops the arguments.
        # NumPy's printing has such functions: make n independent of the memory.
        n.__setstate__(_EMPTY)


def number(a):
    """Returns the element of an Array of 0 dimensions as NumPy prints it."""
    return str(a.asnumpy()[()])


class _Described:
    """The value in which an object describes its memory, and the object.

    numpy.asarray holds it. Of the object itself, it would not hold a dictionary or a capsule that a property made, with
    which the memory may end.
    """

    def __init__(self, owner, name, description):
        self._owner = owner
        setattr(self, name, description)


def described(o, may_copy, want):
    """Returns an ndarray on the memory that o describes by __array_struct__ or __array_interface__."""
    for name in ("__array_struct__", "__array_interface__"):
        description = getattr(o, name, None)
        if description is None:
            continue
        if isinstance(description, dict) and not isinstance(description.get("data"), tuple):
            break  # the memory is that of a buffer, which NumPy holds
        return numpy.asarray(_Described(o, name, description))
    return numpy.asarray(o)


def view(o, may_copy, want):
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
    if a.ndim == 2 and a.dtype.kind == "f":  # frames of pandas can copy all the same, and convert integers beside missing values
        r = _with_missing(o, want)
        if r is not None and not may_copy:
            raise ValueError("asarray: copy=False, but missing values become NaN in a copy")
        if r is not None:
            return r
    return numpy.asarray(a)  # the elements of a subclass, such as a masked array, can have other meanings


# What converts an array of elements that Arrays do not have, by the kind of its dtype.
_REMEDIES = {
    "O": 'x.astype("float64") converts objects that are numbers',
    "M": 'x.astype("int64") has the counts since 1970 in its unit',
    "m": 'x.astype("int64") has the counts in its unit',
    "f": 'x.astype("float64") rounds them',
    "c": 'x.astype("complex128") rounds them',
    "V": 'take one field, as in x["name"], or x.view(dtype) with a dtype of numbers',
}
_OF_TEXT = 'x.astype("float64") reads numbers, and numpy.unique(x, return_inverse=True)[1] numbers the values'


def _is_checked(exporter):
    """Reports whether the exporter of a buffer describes its memory truly. A memoryview does not check what others describe."""
    array = getattr(sys.modules.get("_ctypes"), "Array", bytes)
    return isinstance(exporter, (numpy.ndarray, bytes, bytearray, array))


def _whole_strides(n):
    return not any(step % n.itemsize for step, extent in zip(n.strides, n.shape) if extent > 1)


def _wait_for(n):
    """Waits for the work of devices on the elements of an ndarray, if they are in USM."""
    first = end = n.__array_interface__["data"][0]
    for step, extent in zip(n.strides, n.shape):
        first += min(0, step * (extent - 1))
        end += max(0, step * (extent - 1))
    if n.size:
        _native._wait_at(first, end + n.itemsize)


def _is_nullable(dtype):
    """Reports whether a dtype of pandas has missing values of its own, which conversions to NumPy's types can lose."""
    return hasattr(dtype, "na_value")


def _with_missing(o, want):
    """Returns a column or frame of pandas with missing values as an Array. want is the name of the element type that the caller converts to, or None.

    The result is None for all other objects, and for elements that are not numbers. Missing values are NaN, and a type without NaN is refused.
    """
    if not hasattr(type(o), "isna"):
        return None
    if hasattr(type(o), "iloc") and o.ndim == 2:
        columns = [o.iloc[:, i] for i in range(o.shape[1])]
        if not any(_is_nullable(x.dtype) and x.array.isna().any() for x in columns):
            return None
        return asarray([asarray(x, dtype=want) for x in columns], dtype=want, device="host").T
    if not _is_nullable(getattr(o, "dtype", None)):
        return None
    column = getattr(o, "array", o)
    missing = numpy.asarray(column.isna(), dtype=bool)
    values = numpy.asarray(column[~missing]) if missing.any() else missing
    if values is missing or values.dtype.kind not in "biufc":
        return None
    target = want or values.dtype.name
    if not target.startswith(("float16", "float32", "float64", "bfloat16", "complex")):
        raise BufferError(f"{missing.sum()} of {missing.size} elements of the {type(o).__name__} are missing, which elements of {target} cannot represent; "
                          "fill them first, by x.fillna(value), or ask for a floating-point type, in which they are NaN")
    from usmbridge import full
    r = full(missing.shape, numpy.nan, target, device="host")
    r[~missing] = values
    return r


def _is_aligned(n):
    """Reports whether the elements lie at multiples of their size. NumPy's flag asks for that of the parts of complex numbers."""
    return n.__array_interface__["data"][0] % n.itemsize == 0


def copied(o, may_copy, want):
    """Returns a copy of an array whose memory cannot be shared, in this machine's byte order and with whole strides.

    The result is None if o is not an array that NumPy reads.
    """
    given = isinstance(o, numpy.ndarray)
    if given:
        n = numpy.asarray(o)  # a subclass without its methods
    elif hasattr(type(o), "__dlpack__"):  # its owner has refused
        return None
    elif hasattr(o, "__array__"):
        if not may_copy:
            return None
        n = _with_missing(o, want)
        if n is not None:
            return n
        n = numpy.asarray(o)
    elif _is_checked(o.obj if type(o) is memoryview else o):
        try:
            n = numpy.asarray(memoryview(o))
        except (TypeError, ValueError, BufferError, NotImplementedError):  # not a buffer of numbers
            return None
    else:
        try:
            n = numpy.asarray(_native._of_swapped(o))
        except (TypeError, BufferError):  # not a buffer of numbers in the other byte order
            return None
        n = n.view(n.dtype.newbyteorder())
    native = n.dtype if n.dtype.isnative else n.dtype.newbyteorder("=")
    try:
        DType(native)
    except TypeError:
        if not given and not hasattr(o, "__array__"):
            return None
        remedy = _OF_TEXT if n.dtype.kind in "SUT" else _REMEDIES.get(n.dtype.kind, "convert them by x.astype(dtype)")
        raise TypeError(f"asarray: an Array has no elements of dtype {n.dtype}; {remedy}") from None
    whole = _whole_strides(n)
    if n.dtype.isnative and _is_aligned(n) and whole:  # there is another reason why it was not shared
        return n if hasattr(o, "__array__") and not given else None
    if not may_copy:
        why = "in another byte order" if not n.dtype.isnative else "at unaligned addresses" if whole else "at strides that are not multiples of their size"
        raise ValueError(f"asarray: {n.dtype} elements {why} cannot be shared; usmbridge.asarray(x) without copy=False copies them")
    _wait_for(n)
    return n.astype(native, order="K", copy=True)
