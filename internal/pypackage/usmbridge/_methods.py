"""The methods of Array that NumPy, dpnp, CuPy and PyTorch share, and the functions beside them.

The package attaches them to Array when the first of them is used. usmbridge.array_api computes; a call loads it, and
NumPy with it. Where an adapter of the same name, after an underscore, is below, it is called with all arguments.
Otherwise the function of array_api is called.
"""

import operator
import pickle

from usmbridge import Array, asarray, empty, zeros

# A row has the signature and the first line of the docstring, then an example and its result.
_TABLE = """
all(axis=None, out=None, keepdims=False): Return whether all elements are true.
    (a > 1).all(axis=0).tolist() -> [True, False, True]
any(axis=None, out=None, keepdims=False): Return whether any element is true.
    (a > 5).any(axis=0).tolist() -> [True, False, False]
argmax(axis=None, out=None, *, keepdims=False): Return the index of the first maximum.
    a.argmax(axis=1).tolist() -> [0, 0]
argmin(axis=None, out=None, *, keepdims=False): Return the index of the first minimum.
    a.argmin(axis=1).tolist() -> [1, 2]
argpartition(kth, axis=-1, kind=None): Return indices that partition the elements: those that sort them.
    a.argpartition(1).tolist() -> [[1, 2, 0], [2, 1, 0]]
argsort(axis=-1, kind=None, *, stable=None): Return the indices that sort the elements.
    a.argsort().tolist() -> [[1, 2, 0], [2, 1, 0]]
clip(min=None, max=None, out=None): Return the elements, limited to a range.
    a.clip(2, 5).tolist() -> [[3, 2, 2], [5, 5, 4]]
conj(): Return the complex conjugates; the Array itself if it is real.
    (a[0] * 1j).conj().imag.tolist() -> [-3.0, -1.0, -2.0]
conjugate(): Return the complex conjugates, as `conj`.
    (a[0] * 1j).conjugate().imag.tolist() -> [-3.0, -1.0, -2.0]
cumprod(axis=None, dtype=None, out=None): Return the cumulative products.
    a.cumprod(axis=1).tolist() -> [[3, 3, 6], [6, 30, 120]]
cumsum(axis=None, dtype=None, out=None): Return the cumulative sums.
    a.cumsum().tolist() -> [3, 4, 6, 12, 17, 21]
diagonal(offset=0, axis1=0, axis2=1): Return a view of the elements on a diagonal of two axes.
    a.diagonal(offset=1).tolist() -> [1, 4]
dot(b, out=None): Return the product with an array: of vectors, matrices or numbers, as numpy.dot does.
    a.dot([1, 0, 2]).tolist() -> [7, 14]
dump(file): Write a pickle of the Array to a file.
    f = __import__("io").BytesIO(); a.dump(f); __import__("pickle").loads(f.getvalue()).shape -> (2, 3)
flatten(order="C"): Return a copy with one axis.
    a.flatten(order="F").tolist() -> [3, 6, 1, 5, 2, 4]
max(axis=None, out=None, keepdims=False): Return the maximum.
    a.max(axis=1, keepdims=True).tolist() -> [[3], [6]]
mean(axis=None, dtype=None, out=None, keepdims=False): Return the arithmetic mean.
    a.mean(axis=1).tolist() -> [2.0, 5.0]
min(axis=None, out=None, keepdims=False): Return the minimum.
    a.min().item() -> 1
nonzero(): Return the indices of the elements that are not zero, one Array for each axis.
    [i.tolist() for i in (a > 4).nonzero()] -> [[1, 1], [0, 1]]
partition(kth, axis=-1, kind=None): Move the elements so that kth is where sorting puts it: sort them in place.
    a.partition(1); a.tolist() -> [[1, 2, 3], [4, 5, 6]]
prod(axis=None, dtype=None, out=None, keepdims=False): Return the product.
    a.prod(axis=0).tolist() -> [18, 5, 8]
ravel(order="C"): Return a contiguous Array with one axis: a view if the elements lie in that order.
    a.ravel().base is a -> True
repeat(repeats, axis=None): Return each element several times.
    a[0].repeat(2).tolist() -> [3, 3, 1, 1, 2, 2]
round(decimals=0, out=None): Return the elements, rounded to a number of decimals.
    (a[0] / 7).round(2).tolist() -> [0.43, 0.14, 0.29]
searchsorted(v, side="left", sorter=None): Return the indices at which values keep a sorted Array sorted.
    ub.asarray([1, 2, 4]).searchsorted([2, 3]).tolist() -> [1, 2]
sort(axis=-1, kind=None, *, stable=None): Sort the elements in place.
    a.sort(); a.tolist() -> [[1, 2, 3], [4, 5, 6]]
squeeze(axis=None): Return a view without axes of length 1.
    a[None, :, :1].squeeze().shape -> (2,)
std(axis=None, dtype=None, out=None, ddof=0, keepdims=False): Return the standard deviation.
    a[0].std(ddof=1).item() -> 1.0
sum(axis=None, dtype=None, out=None, keepdims=False): Return the sum.
    a.sum(axis=0).tolist() -> [9, 6, 6]
swapaxes(axis1, axis2): Return a view with two axes exchanged.
    a.swapaxes(0, 1).shape -> (3, 2)
take(indices, axis=None, out=None, mode="raise"): Return the elements at indices.
    a.take([0, -1], axis=1).tolist() -> [[3, 2], [6, 4]]
tofile(fid, sep="", format="%s"): Write the elements to a file as bytes or text, as NumPy does.
    f = __import__("tempfile").TemporaryFile(); a.tofile(f); f.tell() -> 48
trace(offset=0, axis1=0, axis2=1, dtype=None, out=None): Return the sum of the elements on a diagonal of two axes.
    a.trace().item() -> 8
var(axis=None, dtype=None, out=None, ddof=0, keepdims=False): Return the variance.
    a.var(axis=0).tolist() -> [2.25, 4.0, 1.0]
"""

_FUNCTIONS = """
arange(start, stop=None, step=1, dtype=None, *, usm_type=None, device=None): Return numbers from start to stop.
    ub.arange(1, 7, 2).tolist() -> [1, 3, 5]
array(obj, dtype=None, *, copy=True, usm_type=None, device=None): Return a new Array of an object, as `asarray` with a copy.
    ub.array(a)[0].tolist() -> [3, 1, 2]
concat(arrays, axis=0): Join arrays along an axis.
    ub.concat([a, a[:1]]).shape -> (3, 3)
eye(N, M=None, k=0, dtype=None, *, usm_type=None, device=None): Return a matrix with ones on a diagonal.
    ub.eye(2).tolist() -> [[1.0, 0.0], [0.0, 1.0]]
empty_like(x, /, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order="K", interprocess=None): Return an Array without defined values, with the shape of another array.
    ub.empty_like(a, dtype="float64").shape -> (2, 3)
full(shape, fill_value, dtype=None, *, usm_type=None, sycl_queue=None, device=None, order="C", interprocess=None): Return an Array filled with a value.
    ub.full((2, 2), [1, 2], "int8").tolist() -> [[1, 2], [1, 2]]
full_like(x, /, fill_value, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order="K", interprocess=None): Return an Array filled with a value, with the shape of another array.
    ub.full_like(a, 7)[0].tolist() -> [7, 7, 7]
linspace(start, stop, num=50, *, endpoint=True, dtype=None, usm_type=None, device=None): Return evenly spaced numbers.
    ub.linspace(0, 1, 3).tolist() -> [0.0, 0.5, 1.0]
ones(shape, dtype=None, *, usm_type=None, sycl_queue=None, device=None, order="C", interprocess=None): Return an Array of ones.
    ub.ones(2, "int32").tolist() -> [1, 1]
ones_like(x, /, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order="K", interprocess=None): Return an Array of ones with the shape of another array.
    ub.ones_like(bytearray(2)).tolist() -> [1, 1]
stack(arrays, axis=0): Join arrays along a new axis.
    ub.stack([a, a]).shape -> (2, 2, 3)
zeros_like(x, /, *, dtype=None, usm_type=None, sycl_queue=None, device=None, order="K", interprocess=None): Return an Array of zeros with the shape of another array.
    ub.zeros_like(bytearray(2)).tolist() -> [0, 0]
"""

_PARAMETERS = {
    "arrays": "sequence of Array\n    The arrays. Other arrays are copied to the memory of the first Array.",
    "axis": "int, tuple of int or None\n    The axis, or axes where several have a meaning. None is all elements.",
    "axis1": "int\n    The first of two axes.",
    "axis2": "int\n    The second of two axes.",
    "b": "array or number\n    The other factor.",
    "copy": "{True, None, False}\n    None and False as for `asarray`.",
    "ddof": "number\n    What is subtracted from the count in the divisor.",
    "decimals": "int\n    Digits after the point.",
    "device": "optional\n    The device, as for `empty`.",
    "dtype": "str, numpy.dtype or scalar type, optional\n    Element type of the result.",
    "endpoint": "bool\n    Whether `stop` is the last number.",
    "fid": "file or path\n    Where to write.",
    "file": "file or path\n    Where to write.",
    "fill_value": "number or array_like\n    The value of every element. An array or a nested sequence is broadcast.",
    "format": "str\n    The format of an element in text.",
    "indices": "int, sequence or array of int\n    The indices, on a host or beside the Array.",
    "interprocess": "{None, False, True, \"readonly\"}\n    As for `empty`.",
    "k": "int\n    The diagonal: positive above the main one.",
    "kth": "int or sequence of int\n    The places that sorting would give their elements.",
    "keepdims": "bool\n    Whether reduced axes stay, with length 1.",
    "kind": "optional\n    Ignored: every sort is stable.",
    "max": "number or array, optional\n    The largest value.",
    "min": "number or array, optional\n    The smallest value.",
    "mode": '{"raise", "wrap", "clip"}\n    What happens to an index that is out of bounds.',
    "M": "int, optional\n    Columns; by default as many as rows.",
    "N": "int\n    Rows.",
    "num": "int\n    How many.",
    "obj": "object\n    As for `asarray`.",
    "offset": "int\n    The diagonal: positive above the main one.",
    "order": '{"C", "F", "A", "K"}\n    Order of the elements in new memory, or in which they are read: row-major,\n    column-major, column-major if the memory is, or that of the memory.',
    "out": "Array, optional\n    Where the result is written; it is returned.",
    "repeats": "int, sequence or array of int\n    How often.",
    "sep": "str\n    What separates elements in text; empty for bytes.",
    "shape": "int or sequence of int\n    The length of each axis.",
    "side": '{"left", "right"}\n    The side of elements that are equal.',
    "sorter": "array of int, optional\n    The indices that sort the Array.",
    "stable": "optional\n    Ignored: every sort is stable.",
    "start": "number\n    The first number; with only one argument of `arange` it is `stop`.",
    "step": "number\n    The difference of two numbers.",
    "stop": "number, optional\n    The end.",
    "sycl_queue": "optional\n    The queue, as for `empty`.",
    "usm_type": "{\"device\", \"shared\", \"host\"}, optional\n    Kind of USM, as for `empty`.",
    "v": "number, sequence or array\n    The values.",
    "x": "array_like\n    The array that gives the shape, the place, and the element type unless dtype does.",
}

# ---- helpers -------------------------------------------------------------------------------------


def _api():
    from usmbridge import array_api

    return array_api


def _beside(x, a):
    """Returns an operand of a method: Arrays and numbers as they are, other arrays as Arrays beside a."""
    from usmbridge import _operators

    found = _operators._operand(x, a)
    if found is None:
        raise TypeError(f"a method of an Array takes no {type(x).__name__}, which has operators of its own; pass an ndarray or an Array of its elements")
    return found


def _array_beside(x, a):
    """Returns an operand as an Array."""
    x = _beside(x, a)
    return x if type(x) is Array else _api()._beside(x, a)


def _kind(a):
    """Returns the rank of the element type of an Array: NumPy casts a result to the same rank or a higher one."""
    name = str(a.dtype)
    return next(i for i, prefixes in enumerate((("bool",), ("uint",), ("int",), ("float", "bfloat"), ("complex",))) if name.startswith(prefixes))


_INT, _FLOAT, _COMPLEX = 2, 3, 4


def _checked(out):
    if type(out) is not Array:
        raise TypeError(f"out must be an Array, not {type(out).__name__}")
    return out


def _stored(r, out):
    """Returns the result r, in the Array out if that is given."""
    if out is None:
        return r
    if _checked(out).shape != r.shape:
        raise ValueError(f"out has shape {out.shape}, the result {r.shape}")
    if _kind(r) > _kind(out):
        raise TypeError(f"the result is {r.dtype}, which is not cast to out of {out.dtype}")
    out[...] = r
    return out


def _sum_type(a, dtype, out):
    """Returns the element type of a sum. Without dtype, it is that of out if the elements can be cast to it."""
    if dtype is not None or out is None or _kind(a) > _kind(_checked(out)):
        return dtype
    return out.dtype


def _axis(a, axis):
    """Returns an axis of an Array, counted from the first."""
    i = operator.index(axis)
    if not -a.ndim <= i < a.ndim:
        raise ValueError(f"axis {i} is out of bounds for an Array of {a.ndim} dimensions")
    return i % a.ndim


def _flat(a, axis):
    """Returns an Array and its axis; with None the elements along one axis."""
    return (a.reshape(-1), 0) if axis is None else (a, _axis(a, axis))


def _plain(name, a, out=None, **kw):
    """Calls a function of array_api."""
    if "dtype" in kw:
        kw["dtype"] = _sum_type(a, kw["dtype"], out)
    return _stored(getattr(_api(), name)(a, **kw), out)


# ---- adapters ------------------------------------------------------------------------------------


def _argsort(a, axis, kind, stable):
    a, axis = _flat(a, axis)
    return _api().argsort(a, axis=axis)


def _argpartition(a, kth, axis, kind):
    a, axis = _flat(a, axis)
    _check_kth(a, kth, axis)
    return _api().argsort(a, axis=axis)


def _check_kth(a, kth, axis):
    for k in kth if isinstance(kth, (list, tuple)) else (kth,):
        if not -a.shape[axis] <= operator.index(k) < a.shape[axis]:
            raise ValueError(f"partition: kth {k} is out of bounds for an axis of {a.shape[axis]}")


def _clip(a, low, high, out):
    limits = [x if x is None else _beside(x, a) for x in (low, high)]
    dtype = _api().result_type(a, *(x for x in limits if x is not None))
    a = a.astype(dtype, copy=False)  # dpnp does not combine types here
    return _stored(_api().clip(a, *limits), out)


def _conj(a):
    return _api().conj(a) if _kind(a) == _COMPLEX else a


_conjugate = _conj


def _cumulative(name):
    def cumulative(a, axis, dtype, out):
        a, axis = _flat(a, axis)
        return _plain(name, a, out, axis=axis, dtype=dtype)

    return cumulative


_cumprod, _cumsum = _cumulative("cumulative_prod"), _cumulative("cumulative_sum")


def _diagonal(a, offset, axis1, axis2):
    last = [_axis(a, axis1), _axis(a, axis2)]
    if last[0] == last[1]:
        raise ValueError("diagonal: axis1 and axis2 must be different")
    a = a.transpose([i for i in range(a.ndim) if i not in last] + last)
    return _api().linalg.diagonal(a, offset=offset)


def _dot(a, b, out):
    b = _beside(b, a)
    if type(b) is not Array:
        b = _api()._beside(b, a)  # as numpy.dot, where a number is an array of its own type
    if 0 in (a.ndim, b.ndim):
        return _stored(_api().multiply(a, b), out)
    r = _api().tensordot(a, b, axes=([a.ndim - 1], [max(b.ndim - 2, 0)]))
    return _stored(r, out)


def _dump(a, file):
    if hasattr(file, "write"):
        pickle.dump(a, file, protocol=5)
    else:
        with open(file, "wb") as f:
            _dump(a, f)


def _ordered(a, order):
    """Returns a view with the axes in the order in which ravel reads them."""
    flags = a.flags
    if order == "A":
        order = "F" if flags.f_contiguous and not flags.c_contiguous else "C"
    if order == "K":
        return a.transpose(sorted(range(a.ndim), key=lambda i: -abs(a.strides[i])))
    if order not in ("C", "F"):
        raise ValueError(f"order must be C, F, A or K, not {order!r}")
    return a.T if order == "F" else a


def _flatten(a, order):
    return _ordered(a, order).reshape(-1, copy=True)


def _ravel(a, order):
    a = _ordered(a, order)
    return a.reshape(-1, copy=not a.flags.c_contiguous)


def _mean(a, axis, dtype, out, keepdims):
    dtype = _sum_type(a, dtype, out)
    r = _api().mean(a if dtype is None else a.astype(dtype, copy=False), axis=axis, keepdims=keepdims)
    return _stored(r if dtype is None else r.astype(dtype, copy=False), out)


def _partition(a, kth, axis, kind):
    _check_kth(a, kth, _axis(a, axis))
    _sort(a, axis, kind, None)


def _repeat(a, repeats, axis):
    a, axis = _flat(a, axis)
    return _api().repeat(a, _beside(repeats, a), axis=axis)


def _round(a, decimals, out):
    xp, power = _api(), operator.index(decimals)
    if _kind(a) <= _INT:
        if power >= 0:
            return _stored(a.copy(), out)
        return _stored(_round(a.astype("float64"), power, None).astype(a.dtype), out)
    scale, back = (xp.multiply, xp.divide) if power > 0 else (xp.divide, xp.multiply)
    factor = 10.0 ** abs(power)
    r = back(xp.round(scale(a, factor)), factor) if power else xp.round(a)
    return _stored(r.astype(a.dtype, copy=False), out)


def _searchsorted(a, v, side, sorter):
    return _api().searchsorted(a, _array_beside(v, a), side=side, sorter=None if sorter is None else _beside(sorter, a))


def _sort(a, axis, kind, stable):
    if a.readonly:
        raise ValueError("the array is read-only; copy() it to write")
    a[...] = _api().sort(a, axis=_axis(a, axis))


def _squeeze(a, axis):
    if axis is None:
        gone = [i for i, n in enumerate(a.shape) if n == 1]
    else:
        gone = [_axis(a, i) for i in (axis if isinstance(axis, tuple) else (axis,))]
    if any(a.shape[i] != 1 for i in gone):
        raise ValueError(f"squeeze: axis {axis} of shape {a.shape} has another length than 1")
    if len(set(gone)) < len(gone):
        raise ValueError(f"squeeze: axis {axis} names one axis twice")
    return a[tuple([0 if i in gone else slice(None) for i in range(a.ndim)])]


def _swapaxes(a, axis1, axis2):
    axes = list(range(a.ndim))
    i, j = _axis(a, axis1), _axis(a, axis2)
    axes[i], axes[j] = j, i
    return a.transpose(axes)


def _take(a, indices, axis, out, mode):
    xp, (a, axis) = _api(), _flat(a, axis)
    i = _array_beside(indices, a)
    if i.size and _kind(i) > _INT:  # an empty list has no element type
        raise TypeError(f"take: the indices are integers, not {i.dtype}")
    i, n = i.astype("int64"), a.shape[axis]
    if mode == "wrap":
        i = xp.remainder(i, n)
    elif mode == "clip":
        i = xp.clip(i, 0, n - 1)
    elif mode != "raise":
        raise ValueError(f'take: mode must be "raise", "wrap" or "clip", not {mode!r}')
    r = a[(slice(None),) * axis + (i,)]
    return _stored(r if i.ndim else r.copy(), out)


def _tofile(a, fid, sep, format):
    a.asnumpy().tofile(fid, sep, format)


def _trace(a, offset, axis1, axis2, dtype, out):
    return _plain("sum", _diagonal(a, offset, axis1, axis2), out, axis=-1, dtype=dtype)


def _variance(a, axis, ddof, keepdims, name="var"):
    if _kind(a) == _COMPLEX:  # dpnp.tensor has none
        r = _variance(a.real, axis, ddof, keepdims) + _variance(a.imag, axis, ddof, keepdims)
        return r if name == "var" else _api().sqrt(r)
    return getattr(_api(), name)(a, axis=axis, correction=ddof, keepdims=keepdims)


def _var(a, axis, dtype, out, ddof, keepdims, name="var"):
    if dtype is not None:
        a = a.astype(dtype, copy=False)
    r = _variance(a, axis, ddof, keepdims, name)
    return _stored(r if dtype is None else r.astype(dtype, copy=False), out)


def _std(*args):
    return _var(*args, name="std")


def _arange(start, stop, step, dtype, usm_type, device):
    return _api().arange(start, stop, step, dtype=dtype, usm_type=usm_type, device=device)


def _array(obj, dtype, copy, usm_type, device):
    return asarray(obj, dtype=dtype, copy=copy, usm_type=usm_type, device=device)


def _eye(N, M, k, dtype, usm_type, device):
    return _api().eye(N, M, k=k, dtype=dtype, usm_type=usm_type, device=device)


def _linspace(start, stop, num, endpoint, dtype, usm_type, device):
    return _api().linspace(start, stop, num, endpoint=endpoint, dtype=dtype, usm_type=usm_type, device=device)


def _filled(a, value):
    a[...] = value
    return a


def _ones(shape, dtype, usm_type, sycl_queue, device, order, interprocess):
    return _filled(empty(shape, dtype, usm_type=usm_type, sycl_queue=sycl_queue, device=device, order=order, interprocess=interprocess), 1)


def _full(shape, fill_value, dtype, usm_type, sycl_queue, device, order, interprocess):
    if dtype is None:
        at = empty((), usm_type=usm_type, sycl_queue=sycl_queue, device=device)  # reads a capsule, which can be used once
        usm_type, sycl_queue, device = at.usm_type, at._queue, None if at.usm_type else "host"
        fill_value = asarray(fill_value, usm_type=usm_type, device=sycl_queue or device)
        dtype = fill_value.dtype
    return _filled(empty(shape, dtype, usm_type=usm_type, sycl_queue=sycl_queue, device=device, order=order, interprocess=interprocess), fill_value)


def _empty_like(x, dtype, usm_type, sycl_queue, device, order, interprocess, new=empty):
    if not isinstance(order, str):
        raise TypeError(f"order must be C, F, A or K, not {type(order).__name__}")
    a = asarray(x)
    if order in ("A", "K"):
        order = "F" if a.flags.fnc else "C"
    elif order not in ("C", "F"):
        raise ValueError(f"order must be C, F, A or K, not {order!r}")
    if device is None and sycl_queue is None and a.usm_type:
        usm_type, sycl_queue = a.usm_type if usm_type is None else usm_type, a._queue
    elif device is None and sycl_queue is None and usm_type is None:
        device = "host"
    return new(a.shape, a.dtype if dtype is None else dtype, usm_type=usm_type, sycl_queue=sycl_queue, device=device, order=order, interprocess=interprocess)


def _zeros_like(*args):
    return _empty_like(*args, new=zeros)


def _ones_like(*args):
    return _filled(_empty_like(*args), 1)


def _full_like(x, fill_value, *args):
    return _filled(_empty_like(x, *args), fill_value)


def _joined(name):
    def join(arrays, axis):
        arrays = list(arrays)
        first = next((x for x in arrays if type(x) is Array), None)
        arrays = [asarray(x) if first is None else _array_beside(x, first) for x in arrays]
        return getattr(_api(), name)(arrays, axis=axis)

    return join


_concat, _stack = _joined("concat"), _joined("stack")

# ---- attributes ----------------------------------------------------------------------------------


class _Flags:
    """The layout of an Array, by attributes and by NumPy's keys."""

    _NAMES = {"C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "A": "aligned", "O": "owndata"}
    __slots__ = ("c_contiguous", "f_contiguous", "writeable", "aligned", "owndata", "contiguous", "writable", "forc", "fnc")

    def __init__(self, a):
        bits = a._flags
        self.c_contiguous = self.contiguous = c = bits & 2 != 0
        self.f_contiguous = f = bits & 4 != 0
        self.writeable = self.writable = bits & 1 == 0
        self.aligned, self.owndata = bits & 8 != 0, a.base is None
        self.forc, self.fnc = c or f, f and not c

    def __getitem__(self, key):
        name = self._NAMES.get(key, key.lower() if isinstance(key, str) and key.isupper() else "")
        if name not in self.__slots__:
            raise KeyError(f"no flag {key!r}")
        return getattr(self, name)

    def __repr__(self):
        return "\n".join(f"  {name.upper()} : {getattr(self, name)}" for name in self._NAMES.values())


def _part(i, doc):
    """Returns the property of one part of complex numbers."""

    def get(a):
        name = str(a.dtype)
        if name.startswith("complex"):
            return a[..., None].view(f"float{8 * a.itemsize // 2}")[..., i]
        return a if i == 0 else FUNCTIONS["zeros_like"](a).as_readonly()

    return property(get, lambda a, value: get(a).__setitem__(..., value), doc=doc)


def _flat_view(self):
    r = _ravel(self, "C")
    return r if self.flags.c_contiguous else r.as_readonly()


def _mT(self):
    if self.ndim < 2:
        raise ValueError(f"mT: a matrix has two dimensions, the array has {self.ndim}")
    return _swapaxes(self, -1, -2)


def _round_number(self, *ndigits):
    if self.ndim:
        raise TypeError(f"round() takes an array of 0 dimensions, this one has {self.ndim}; a.round() rounds each element")
    return round(self.item(), *ndigits)


# ---- definition ----------------------------------------------------------------------------------


def _docstring(name, names, summary, example):
    code, result = example.split(" -> ")
    lines = [summary, ""]
    if names:
        lines += ["Parameters", "----------", *(f"{p} : {_PARAMETERS[p]}" for p in names), ""]
    if name not in ("dump", "partition", "sort", "tofile"):
        lines += ["Returns", "-------", "tuple of Array" if name == "nonzero" else "Array", ""]
    lines += ["Examples", "--------", ">>> import usmbridge as ub", '>>> a = ub.asarray([[3, 1, 2], [6, 5, 4]], device="host")']
    return "\n".join([*lines, f">>> {code}", result, ""])


def _define(table, owner):
    """Returns the functions of a table by name. owner is "Array." for methods and "" for functions."""
    made = {}
    rows = iter(table.strip().split("\n"))
    for row, example in zip(rows, rows):
        signature, summary = row.split("): ", 1)
        name, parameters = signature.split("(", 1)
        names = [p.partition("=")[0] for p in parameters.split(", ") if p not in ("*", "/", "")]
        first = ["self"] if owner else []
        call = f"_{name}({', '.join(first + names)})"
        if f"_{name}" not in globals():
            call = f"_plain({', '.join([repr(name), 'self', *(f'{p}={p}' for p in names)])})"
        head = ", ".join(first + [parameters] * (parameters != ""))
        exec(compile(f"def {name}({head}):\n    return {call}\n", f"<{__name__}>", "exec"), globals(), made)
        f = made[name]
        f.__qualname__, f.__module__ = owner + name, "usmbridge"
        f.__doc__ = _docstring(name, names, summary, example.strip())
    return made


FUNCTIONS = _define(_FUNCTIONS, "")
METHODS = _define(_TABLE, "Array.")
METHODS["__round__"] = _round_number
METHODS["flags"] = property(_Flags, doc="Layout of the memory: ``a.flags.c_contiguous`` or ``a.flags[\"C_CONTIGUOUS\"]``.")
METHODS["flat"] = property(_flat_view, doc="The elements along one axis: a view if they are contiguous, or a read-only copy.")
METHODS["mT"] = property(_mT, doc="Transposed matrices: a view with the last two axes exchanged. ValueError for an Array of less than two.")
METHODS["real"] = _part(0, "Real parts of the elements: a view, or the Array itself if it is real.")
METHODS["imag"] = _part(1, "Imaginary parts of the elements: a view, or read-only zeros if the Array is real.")
for _name, _item in METHODS.items():
    setattr(Array, _name, _item)
