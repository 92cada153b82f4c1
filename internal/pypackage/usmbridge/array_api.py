"""The array API standard, version 2024.12, for Arrays.

Each function hands the memory of its arguments to a library that computes, and
returns Arrays on the memory of that library's results: dpnp for unified shared
memory (USM), NumPy for plain host memory. Without dpnp, NumPy computes on USM
that the host can read, and the result is copied to USM of the same kind and
queue. Views stay views, and functions that the standard defines for data types
use NumPy. Work of dpnp can be pending when a function returns, as after a call
of dpnp itself; access on the host waits for it.

The arguments are Arrays of one place and Python numbers. Arrays of plain memory
without axes, and those that select elements, combine with Arrays in USM.
`usmbridge.asarray` imports other arrays. Functions that create arrays put them
in the default place, and also take ``usm_type``; `asarray` copies arrays of
plain memory there.

dpnp can deadlock if several threads call it at once. The calls from here are
serialized by one lock; direct calls of dpnp from other threads are not.

Examples
--------
>>> import usmbridge as ub
>>> xp = ub.ones(3).__array_namespace__()
>>> xp.sum(xp.linspace(0, 1, 5)).item()
2.5
"""

import contextlib
import gc
import sys
import threading
import types

from usmbridge import Array, DType, devices, empty, empty_like, from_dlpack, full, full_like, ones, ones_like, zeros, zeros_like
from usmbridge import asarray as _asarray
from usmbridge._native import _bound_owners, _computes_under, _cuda_context, _described
from usmbridge._need import numpy

__array_api_version__ = "2024.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")

e, inf, nan, newaxis, pi = numpy.e, numpy.inf, numpy.nan, None, numpy.pi

_DTYPES = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_DTYPES["integral"] = _DTYPES["signed integer"] + _DTYPES["unsigned integer"]
_DTYPES["numeric"] = _DTYPES["integral"] + _DTYPES["real floating"] + _DTYPES["complex floating"]
globals().update((name, numpy.dtype(name)) for name in _DTYPES["bool"] + _DTYPES["numeric"])
float16 = numpy.dtype("float16")  # beyond the standard, for SciPy

# The functions that go to the library as they are, by module and parameters.
_TABLE = {
    "": """
(x, /): abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan log log1p log2
(x, /): log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc
(x, /): matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values
(x1, x2, /): add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal floor_divide
(x1, x2, /): greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor matmul maximum minimum multiply
(x1, x2, /): nextafter not_equal pow remainder subtract
(x, /, *, axis=None, keepdims=False): all any argmax argmin count_nonzero max mean min
(x, /, *, axis=None, dtype=None, keepdims=False): prod sum
(x, /, *, axis=None, correction=0.0, keepdims=False): std var
(x, /, *, axis=None, dtype=None, include_initial=False): cumulative_prod cumulative_sum
(x, /, n=1, *, axis=-1, prepend=None, append=None): diff
(x, /, *, axis=-1, descending=False, stable=True): argsort sort
(x, /, min=None, max=None): clip
(x, /, *, k=0): tril triu
(x, /, shape): broadcast_to
(x, /, shape, *, copy=None): reshape
(x, /, axis): expand_dims squeeze
(x, /, axes): permute_dims
(x, /, *, axis=None): flip
(x, /, *, axis=0): unstack
(x, /, shift, *, axis=None): roll
(x, repeats, /, *, axis=None): repeat
(x, repetitions, /): tile
(x, source, destination, /): moveaxis
(x, indices, /, *, axis=None): take
(x, indices, /, *, axis=-1): take_along_axis
(x1, x2, /, *, axes=2): tensordot
(x1, x2, /, *, axis=-1): vecdot
(x1, x2, /, *, side='left', sorter=None): searchsorted
(condition, x1, x2, /): where
(arrays, /, *, axis=0): concat stack
(*arrays): broadcast_arrays
(*arrays, indexing='xy'): meshgrid
""",
    "linalg": """
(x, /): det eigh eigvalsh inv matrix_transpose slogdet svdvals
(x1, x2, /): matmul outer solve
(x1, x2, /, *, axes=2): tensordot
(x1, x2, /, *, axis=-1): cross vecdot
(x, n, /): matrix_power
(x, /, *, upper=False): cholesky
(x, /, *, offset=0): diagonal
(x, /, *, offset=0, dtype=None): trace
(x, /, *, rtol=None): matrix_rank pinv
(x, /, *, mode='reduced'): qr
(x, /, *, full_matrices=True): svd
(x, /, *, keepdims=False, ord='fro'): matrix_norm
(x, /, *, axis=None, keepdims=False, ord=2): vector_norm
""",
    "fft": """
(x, /, *, n=None, axis=-1, norm='backward'): fft ifft rfft irfft hfft ihfft
(x, /, *, s=None, axes=None, norm='backward'): fftn ifftn rfftn irfftn
(x, /, *, axes=None): fftshift ifftshift
""",
}

# ---- the libraries ---------------------------------------------------------------------------


def _sort(x, /, *, axis=-1, descending=False, stable=True):
    r = numpy.sort(x, axis=axis, stable=stable)
    return numpy.flip(r, axis) if descending else r


def _argsort(x, /, *, axis=-1, descending=False, stable=True):
    if not descending:
        return numpy.argsort(x, axis=axis, stable=stable)
    # Equal elements keep their order: sort the reversed array and count from its end.
    r = numpy.argsort(numpy.flip(x, axis), axis=axis, stable=stable)
    return x.shape[axis] - 1 - numpy.flip(r, axis)


# The functions by library (USM or not), module and name. Functions that need no adaptation are added
# at first use. An index is in a list, because tuples in arguments are converted.
_functions = {
    (False, "", "sort"): _sort,
    (False, "", "argsort"): _argsort,
    (True, "", "expand_dims"): lambda x, axis: _dpnp.tensor.expand_dims(x, axis=axis),
    (True, "", "diff"): lambda x, n, **kwargs: _dpnp.tensor.diff(x, n=n, **kwargs),
    (True, "", "repeat"): lambda x, repeats, **kwargs: _dpnp.tensor.repeat(x, _python_integer(repeats), **kwargs),
}
for _usm_too in (False, True):
    _functions[_usm_too, "", "_get_item"] = lambda x, key: x[key[0]]
    _functions[_usm_too, "", "_set_item"] = lambda x, key, value: x.__setitem__(key[0], value)


# Functions that add or multiply many elements, or whose intermediate results are much larger or smaller than the result. In
# float16 they lose small terms (2048 + 1 is 2048) and overflow (65504 is the largest number), so they compute float16 in
# float32. NumPy does that in some of them.
_SUMS = frozenset("cross cumulative_prod cumulative_sum floor_divide logaddexp matmul matrix_norm mean prod std sum tensordot trace var vecdot vector_norm".split())


def _with_wide_sums(function):
    """Returns a function of _SUMS, of NumPy's or dpnp's arrays, that computes float16 in float32."""

    def convert(x, dtype):
        return x.astype(dtype) if hasattr(x, "astype") else _dpnp.tensor.astype(x, dtype)

    def wide(*args, **kwargs):
        dtype = kwargs.get("dtype")
        if dtype is None:
            types = [x.dtype for x in args if hasattr(x, "dtype")]
            dtype = types[0] if len(types) == 1 else numpy.result_type(*types)
        if dtype != numpy.float16:
            return function(*args, **kwargs)
        out, args = kwargs.pop("out", None), [convert(x, "float32") if hasattr(x, "dtype") else x for x in args]
        if "dtype" in kwargs:
            kwargs["dtype"] = numpy.dtype("float32")
        r = convert(function(*args, **kwargs), "float16")
        if out is None:
            return r
        if out.shape != r.shape:
            raise ValueError(f"the result has shape {r.shape}, the array on the left {out.shape}")
        out[...] = r
        return out

    return wide


# Functions that dpnp computes of complex numbers by formulas that lose all digits of small and large numbers.
_COMPLEX_BY_NUMPY = frozenset("acos acosh asin asinh atan atanh".split())


def _with_complex_by_numpy(function, name):
    """Returns a function of dpnp's arrays that computes complex numbers by NumPy, on the host."""

    def computed(x):
        if x.dtype.kind != "c":
            return function(x)
        r = getattr(numpy, name)(_dpnp.tensor.asnumpy(x))
        return _dpnp.tensor.asarray(r, usm_type=x.usm_type, sycl_queue=x.sycl_queue)

    return computed


def _with_checked_exponent(function):
    """Returns dpnp's pow, which refuses negative powers of integers, as NumPy does. dpnp's result is 0."""

    def checked(x1, x2, **kwargs):
        kinds = ["i" if type(x) is int else x.dtype.kind if hasattr(x, "dtype") else "" for x in (x1, x2)]
        if kinds[0] in "iu" and kinds[1] == "i":
            if x2 < 0 if type(x2) is int else _dpnp.tensor.any(_dpnp.tensor.less(x2, 0)):
                raise ValueError("pow: integers to negative integer powers are not allowed; convert one of them to a floating-point type")
        return function(x1, x2, **kwargs)

    return checked


def _with_shapes(function, name):
    """Returns a product of NumPy's or dpnp's arrays whose errors have the shapes."""

    def product(x1, x2, **kwargs):
        try:
            return function(x1, x2, **kwargs)
        except ValueError as e:
            raise ValueError(f"{name}: the shapes {numpy.shape(x1)} and {numpy.shape(x2)} do not fit: {e}") from None

    return product


def _function(usm, module, name):
    found = _functions.get((usm, module, name))
    if found is None:
        # dpnp.tensor has the functions of the main namespace and is faster than dpnp.
        library = getattr(_dpnp if usm else numpy, module) if module else _dpnp.tensor if usm else numpy
        found = function = getattr(library, name)
        if name in ("matmul", "tensordot", "vecdot"):
            function = _with_shapes(function, name)
        if name in _SUMS:
            found = _with_wide_sums(function)
        elif usm and name in _COMPLEX_BY_NUMPY:
            found = _with_complex_by_numpy(function, name)
        elif usm and name == "pow":
            found = _with_checked_exponent(function)
        if name in ("broadcast_arrays", "meshgrid"):  # lists in the standard, tuples in some releases

            def found(*args, **kwargs):
                return list(function(*args, **kwargs))

        _functions[usm, module, name] = found
    return found


# Serializes the calls of dpnp. Reentrant, because the end of an object can run code anywhere.
_lock = threading.RLock()
_computes_under(_lock)
_dpnp = None  # the module; False if it is not installed


def _load_dpnp():
    """Returns the module dpnp or False. Its first call is made here, by one thread."""
    global _dpnp
    with _lock:
        if _dpnp is None:
            context = _cuda_context()  # which a first use of SYCL changes
            try:
                import dpnp
                import dpnp.tensor
            except ImportError:
                _dpnp = False
            else:
                one = dpnp.tensor.ones(1, dtype="float32")
                dpnp.tensor.sum(dpnp.tensor.add(one, one))
                _dpnp = dpnp
            if context is not None:
                _cuda_context(context)
    return _dpnp


def _by_dpnp(place):
    """Reports whether dpnp computes for the memory of an Array: 2 on a device of CUDA. RuntimeError for USM in a forked child."""
    if place.usm_type is None:
        return 0
    on_cuda = place._reach()
    if (_dpnp or (_dpnp is None and _load_dpnp())) is False:
        return 0
    return 2 if on_cuda else 1


def _usm(a):
    """Returns a usm_ndarray of dpnp on the memory and the queue of an Array.

    Making one takes a third of a call, so the Array keeps it: Array._peer. It may not keep a Python object alive that
    can refer to the Array, because the collector does not see cycles through it.
    """
    if a.typestr is None:
        raise TypeError(f"dpnp has no element type {a.dtype}; convert the Array first, by astype(\"float32\")")
    a._use()
    made = a._peer
    if made is None:
        # dpnp.tensor does not import negative strides.
        turn = tuple([slice(None, None, -1 if step < 0 else 1) for step in a.strides])
        made = _dpnp.tensor.asarray(a._alone[turn])[turn]
        if not gc.is_tracked(a):  # Arrays on memory of Python objects are tracked
            a._peer = made
    return made


def _usm_dpnp(a):
    return _dpnp.asarray(_usm(a), copy=False)


def _usm_copy(a):
    return _dpnp.asarray(_dpnp.tensor.copy(_usm(a)), copy=False)


# The functions of linalg that return views, and wait for nothing.
_VIEWS = ("diagonal", "matrix_transpose")


def _waits(module, name):
    """Reports whether a function of dpnp's modules waits with the GIL held for work that tasks on the host can delay.

    oneMKL runs functions of linalg as tasks on the host, and SYCL runs few tasks at a time: others that need the GIL
    can be before them. Functions of fft wait for all work on the queue.
    """
    return module != "" and name not in _VIEWS


def _place_of(x, place):
    """Returns the Array whose place decides for x and place, each an Array or None; they must agree."""
    if place is None or x is place:
        return x
    queue, other = x._on, place._on
    if queue is other or (queue is not None and other is not None and queue == other):
        return place
    if queue is None or other is None:
        raise ValueError("the Arrays are in plain memory and in USM; move one of them: x.to_device(y.device)")
    raise ValueError("the Arrays have different queues; move one of them: x.to_device(y.sycl_queue)")


def _find(args, place=None):
    """Returns an Array among args, in lists and tuples too, that all others agree with; None if there is none."""
    for x in args:
        t = type(x)
        if t is Array:
            place = _place_of(x, place)
        elif t is list or t is tuple:
            place = _find(x, place)
        elif hasattr(t, "__dlpack__"):
            raise TypeError(f"the functions of usmbridge.array_api take Arrays and Python numbers, not {t.__name__}; usmbridge.asarray(x) shares its memory")
    return place


def _native(x, convert):
    """Returns x with the Arrays in it converted."""
    t = type(x)
    if t is Array:
        return convert(x)
    if t is list or t is tuple:
        return t([_native(i, convert) for i in x])
    return x


# The number of results of dpnp since a queue was waited for. A queue that is not waited for keeps records of its work:
# 600 bytes for each call. The bound is a prime number, so that each of several queues has its turn.
_unawaited = 0
_MOST_UNAWAITED = 251


def _of_dpnp(r, queue):
    """Returns an Array on the memory of an array of dpnp that is on a queue, which may have pending work on it.

    The dictionary of the array itself would wait for all work of the queue.
    """
    global _unawaited
    _unawaited += 1
    if _unawaited >= _MOST_UNAWAITED:
        _unawaited = 0
        queue.wait()
    if type(r) is not _dpnp.tensor.usm_ndarray:
        r = r.get_array()
    a = _described(r, {"version": 1, "data": (r._pointer, not r.flags.writable), "shape": r.shape, "strides": r.strides, "typestr": r.dtype.str, "syclobj": queue})
    if r.usm_data.reference_obj is None:
        a._peer = r
    return a


def _of_numpy(r):
    """Returns the result of a function of NumPy as an Array, or as _wrapped does."""
    if type(r) is numpy.ndarray and r.base is None:
        try:
            return from_dlpack(r)
        except BufferError:  # a type of ml_dtypes
            pass
    return _wrapped(r, None)


def _wrapped(r, place):
    """Returns the result of a library with Arrays in the place of its arrays.

    With an Array place, arrays of NumPy are copied to USM of its kind and queue.
    """
    if isinstance(r, (tuple, list)):
        items = [_wrapped(x, place) for x in r]
        return type(r)(*items) if hasattr(r, "_fields") else type(r)(items)
    if isinstance(r, numpy.generic):
        r = numpy.asarray(r)
    elif not isinstance(r, numpy.ndarray):
        return _of_dpnp(r, place._on) if hasattr(type(r), "__sycl_usm_array_interface__") else r
    if place is not None:
        return _asarray(r, usm_type=place.usm_type, device=place._on, copy=True)
    return _asarray(r)


def _call(place, module, name, args, kwargs):
    """Calls a function of the library that computes at the place of an Array, and returns Arrays there."""
    by = _by_dpnp(place)
    if not by:
        beside = place if place.usm_type is not None and "out" not in kwargs else None
        return _wrapped(_computed(False, module, name, args, kwargs, numpy.asarray), beside)
    _bound_owners()
    context = _cuda_context() if by == 2 else None  # dpnp changes it
    try:
        with _lock:
            if _waits(module, name):
                # dpnp's tasks for memory of its own do not need the GIL.
                return _wrapped(_computed(True, module, name, args, kwargs, _usm_copy, place._settle), place)
            return _wrapped(_computed(True, module, name, args, kwargs, _usm_dpnp if module else _usm), place)
    except RuntimeError as e:
        if context is None or not str(e).startswith("Kernel "):
            raise
        raise RuntimeError(
            f"{name.lstrip('_')}: dpnp has no kernels for {place.device}, a device of CUDA; compute on Array.cuda with CuPy or "
            'PyTorch, or on usmbridge.asarray(a, device="host")'
        ) from e
    finally:
        if context is not None:
            _cuda_context(context)
        _end_use(args)
        if kwargs:
            _end_use(kwargs.values())


def _end_use(args):
    """Waits for work on the Arrays among args, in lists and tuples too, whose memory others can access without a call."""
    failure = None
    for x in args:
        t = type(x)
        try:
            if t is Array:
                x._end_use()
            elif t is list or t is tuple:
                _end_use(x)
        except RuntimeError as e:
            failure = failure or e
    if failure is not None:
        raise failure


def _python_integer(x):
    """Returns integers of NumPy as Python's: dpnp takes no others as axes and counts."""
    return int(x) if isinstance(x, numpy.integer) else x


def _computed(usm, module, name, args, kwargs, convert, begin=None):
    args = [_native(x, convert) for x in args]
    if kwargs:
        kwargs = {k: _python_integer(_native(x, convert)) for k, x in kwargs.items()}
    if begin is not None:
        begin()
    return _function(usm, module, name)(*args, **kwargs)


def _beside(x, like):
    """Returns an Array, or the Array of another object, in memory of the kind and queue of an Array."""
    if like.usm_type is None:
        return _asarray(x, device="host")
    return _asarray(x, usm_type=like.usm_type, device=like._on)


def _in_usm(args):
    """Returns an Array in USM among args, in lists and tuples too; None if there is none."""
    for x in args:
        if type(x) in (list, tuple):
            x = _in_usm(x)
        if type(x) is Array and x.usm_type is not None:
            return x
    return None


# The positions or names of the arguments that select elements, as those of a subscript.
_SELECTORS = {"take": 1, "take_along_axis": 1, "repeat": 1, "searchsorted": "sorter"}


def _moved(name, args, kwargs):
    """Returns args and kwargs with copies of Arrays in plain memory, beside an Array in USM: those without axes and those that select elements.

    The Array out stays. Returns None if there is nothing to move.
    """
    like, moved = _in_usm((args, *kwargs.values())), False

    def select(x):
        nonlocal moved
        if x.usm_type is not None:
            return x
        moved = True
        return _beside(x, like)

    def move(x):
        return x if x.ndim else select(x)

    if like is None:
        return None
    items, selector = {**dict(enumerate(args)), **kwargs}, _SELECTORS.get(name)
    items = {k: x if k == "out" else _native(x, select if k == selector else move) for k, x in items.items()}
    return ([items[i] for i in range(len(args))], {k: items[k] for k in kwargs}) if moved else None


def _run(module, name, args, kwargs):
    """Calls a function of the library that computes for the memory of the arguments."""
    moved = None
    try:
        place = _find(args)
        if kwargs:
            place = _find(kwargs.values(), place)
    except ValueError:
        moved = _moved(name, args, kwargs)
        if moved is None:
            raise
    if moved is not None:
        args, kwargs = moved
        place = _find((args, *kwargs.values()))
    if place is None:
        raise TypeError(f"{name}: no argument is an Array; usmbridge.asarray(x) makes one")
    return _call(place, module, name, args, kwargs)


# ---- the functions of the table ---------------------------------------------------------------


# Operands in plain memory go to NumPy at once: _run takes longer than many a computation.
_QUICK = {
    "x, /": """
    if type(x) is Array and x.usm_type is None:
        return _of_numpy({0}(_ndarray(x)))""",
    "x1, x2, /": """
    if type(x1) is Array and x1.usm_type is None:
        if type(x2) is Array and x2.usm_type is None:
            return _of_numpy({0}(_ndarray(x1), _ndarray(x2)))
        if type(x2) in _NUMBERS:
            return _of_numpy({0}(_ndarray(x1), x2))""",
}
_NUMBERS = frozenset((bool, int, float, complex))
_ndarray = numpy.asarray
_matmul = _with_shapes(numpy.matmul, "matmul")


def _source(module, name, parameters):
    """Returns Python code that defines a function of the table."""
    positional, keywords, optional, only = [], [], [], False
    for p in parameters.split(", "):
        p, _, default = p.partition("=")
        only = only or p == "*"
        if p in "/*":
            continue
        if not only:
            positional.append(p)
        else:
            (optional if default == "None" else keywords).append(p)
        only = only or p.startswith("*")
    lines = [
        f"def {name}({parameters}):",
        f'    "{name} of the array API standard, computed by dpnp or NumPy."',
        *(["    if isinstance(arrays, (list, tuple)): arrays = tuple(arrays)"] if positional == ["arrays"] else ()),  # subclasses
        *(_QUICK.get(parameters, "").format("_matmul" if name == "matmul" else f"numpy.{name}").split("\n") if not module else ()),
        f"    kw = {{{', '.join(f'{p!r}: {p}' for p in keywords)}}}",
        *(f"    if {p} is not None: kw[{p!r}] = {p}" for p in optional),
        f"    return _run({module!r}, {name!r}, ({', '.join(positional)},), kw)",
    ]
    return "\n".join(lines) + "\n"


def _define():
    """Defines the functions of the table, here and in modules of their own."""
    for module, table in _TABLE.items():
        made = globals()
        if module:
            full = f"{__name__}.{module}"
            made[module] = sys.modules[full] = types.ModuleType(full, f"The functions of the array API's extension {module}, for Arrays.")
            made = vars(made[module])
            made["_run"] = _run
        for line in table.strip().split("\n"):
            parameters, names = line[1:].split("): ")
            for name in names.split():
                exec(compile(_source(module, name, parameters), f"<{__name__}>", "exec"), made)


_define()

# ---- creation, data types -----------------------------------------------------------------------


def _create(module, name, args, kwargs, dtype, device, usm_type):
    place = empty(0, dtype, device=device, usm_type=usm_type)
    if dtype is not None:
        kwargs["dtype"] = dtype
    if _by_dpnp(place):
        kwargs.update(usm_type=place.usm_type, sycl_queue=place._on)
    return _call(place, module, name, args, kwargs)


def _real(dtype, device, usm_type):
    """Returns dtype, or the default real type at a place."""
    return dtype if dtype is not None else empty(0, device=device, usm_type=usm_type).dtype


def _numbers(*values):
    """Returns the numbers of Python that Arrays and numbers of NumPy, which have an element type, stand for."""
    return [x.item() if type(x) is Array or getattr(x, "ndim", None) == 0 else x for x in values]


def _any_complex(values):
    return True in [isinstance(v, complex) for v in values]


def _all_integers(values):
    return False not in [isinstance(v, int) for v in values if v is not None]


def arange(start, /, stop=None, step=1, *, dtype=None, device=None, usm_type=None):
    """arange of the array API standard, computed by dpnp or NumPy."""
    args = _numbers(start, stop, step) if stop is not None else _numbers(0, start, step)
    if dtype is None:
        dtype = numpy.dtype("int64") if _all_integers(args) else _real(None, device, usm_type)
    return _create("", "arange", args, {}, dtype, device, usm_type)


def _of_arrays(o):
    """Reports whether o is an Array, or a list or tuple with one in it."""
    return type(o) is Array or isinstance(o, (list, tuple)) and True in map(_of_arrays, o)


def asarray(obj, /, *, dtype=None, device=None, copy=None, usm_type=None):
    """asarray of the array API standard: as usmbridge.asarray, but by default in the place of new arrays.

    Arrays, lists of Arrays and arrays in USM keep their place. Without ``device`` and ``usm_type``, all else is copied
    to the default place if that is in USM, and shared if it is plain memory.
    """
    if device is not None or usm_type is not None or _of_arrays(obj):
        return _asarray(obj, dtype=dtype, device=device, copy=copy, usm_type=usm_type)
    place = empty(0)
    if place.usm_type is None:
        return _asarray(obj, dtype=dtype, copy=copy)
    a = _asarray(obj, dtype=dtype, copy=False if copy is False else None)
    if a.usm_type is not None:  # numbers, which are new there, or USM of the object
        return a.copy() if copy and not isinstance(obj, (list, tuple)) else a
    if copy is False:
        raise ValueError("asarray: copy=False, but new arrays are in USM and the object is not; leave it out, or share its memory by usmbridge.asarray(x) or from_dlpack(x)")
    return _beside(a, place)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None, usm_type=None):
    """eye of the array API standard, computed by dpnp or NumPy."""
    return _create("", "eye", (n_rows, n_cols), {"k": k}, _real(dtype, device, usm_type), device, usm_type)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True, usm_type=None):
    """linspace of the array API standard, computed by dpnp or NumPy."""
    if dtype is None and True in [isinstance(x, (numpy.generic, numpy.ndarray)) for x in (start, stop)]:
        dtype = numpy.result_type(*[x.item() if type(x) is Array else x for x in (start, stop)], 1.0)
    start, stop = _numbers(start, stop)
    if dtype is None:
        dtype = None if _any_complex((start, stop)) else _real(None, device, usm_type)
    return _create("", "linspace", (start, stop, num), {"endpoint": endpoint}, dtype, device, usm_type)


def logspace(start, stop, /, num=50, *, endpoint=True, base=10.0, dtype=None, device=None, usm_type=None):
    """Returns base to evenly spaced powers, as NumPy's logspace does. It is beyond the standard."""
    r = pow(base, linspace(start, stop, num, endpoint=endpoint, device=device, usm_type=usm_type))  # noqa: F821
    return r if dtype is None else astype(r, dtype, copy=False)


def diag(x, /, k=0):
    """Returns a diagonal of a matrix, or a matrix with a vector on a diagonal, as NumPy's diag does. It is beyond the standard."""
    if type(x) is not Array or x.ndim not in (1, 2):
        raise ValueError(f"diag takes an Array of 1 or 2 dimensions, not {x.ndim if type(x) is Array else type(x).__name__}")
    if x.ndim == 2:
        return linalg.diagonal(x, offset=k)  # noqa: F821
    n, first = (x.size + k, k) if k > 0 else (x.size - k, -k * (x.size - k))
    r = zeros((n, n), dtype=x.dtype, usm_type=x.usm_type, device=x._on or "host")
    r.reshape(-1)[first :: n + 1][: x.size] = x
    return r


def _frequencies(name):
    def frequencies(n, /, *, d=1.0, dtype=None, device=None, usm_type=None):
        r = _create("fft", name, (n,), {"d": d}, None, device, usm_type)
        return astype(r, _real(dtype, device, usm_type), copy=False)

    frequencies.__name__ = frequencies.__qualname__ = name
    frequencies.__doc__ = f"fft.{name} of the array API standard, computed by dpnp or NumPy."
    return frequencies


fft.fftfreq, fft.rfftfreq = _frequencies("fftfreq"), _frequencies("rfftfreq")  # noqa: F821


def astype(x, dtype, /, *, copy=True, device=None):
    """astype of the array API standard, with the conversion of Array.astype."""
    if type(x) is not Array:
        raise TypeError(f"astype takes an Array, not {type(x).__name__}")
    r = x.astype(dtype, copy=copy) if copy or x.dtype != dtype else x
    return r if device is None else r.to_device(device)


def _types(args):
    return [x.dtype if type(x) is Array else str(x) if type(x) is DType else x for x in args]


def can_cast(from_, to, /):
    """can_cast of the array API standard, by NumPy's rules."""
    return numpy.can_cast(*_types((from_, to)))


def finfo(type, /):
    """finfo of the array API standard, with Python's numbers."""
    info = numpy.finfo(*_types((type,)))
    numbers = {name: float(getattr(info, name)) for name in ("eps", "max", "min", "smallest_normal")}
    return types.SimpleNamespace(bits=int(info.bits), dtype=info.dtype, **numbers)


def iinfo(type, /):
    """iinfo of the array API standard: NumPy's."""
    return numpy.iinfo(*_types((type,)))


def isdtype(dtype, kind):
    """isdtype of the array API standard: NumPy's."""
    return numpy.isdtype(numpy.dtype(str(dtype)) if isinstance(dtype, str) else dtype, kind)


def result_type(*arrays_and_dtypes):
    """result_type of the array API standard, by NumPy's rules."""
    return numpy.result_type(*_types(arrays_and_dtypes))


class __array_namespace_info__:
    """What this namespace offers, as the array API standard describes it."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        return empty(0).device

    def devices(self):
        return devices()

    def default_dtypes(self, *, device=None):
        real = empty(0, device=device).dtype
        twice = numpy.dtype("complex128" if real.itemsize > 4 else "complex64")
        return {"real floating": real, "complex floating": twice, "integral": numpy.dtype("int64"), "indexing": numpy.dtype("int64")}

    def dtypes(self, *, device=None, kind=None):
        kinds = (kind,) if isinstance(kind, str) else kind or ("bool", "numeric")
        names = [name for k in kinds for name in _DTYPES[k]]
        # Importing _defaults makes every new array ask for the defaults. Without it there are none.
        defaults = sys.modules.get("usmbridge._defaults")
        with defaults.set_default(dtype=None) if defaults else contextlib.nullcontext():
            if empty(0, device=device).dtype == "float32":  # no double precision
                names = [name for name in names if name not in ("float64", "complex128")]
        return {name: numpy.dtype(name) for name in names}


def _namespace(version):
    if version is not None and version not in VERSIONS:
        raise ValueError(f"__array_namespace__: version {version!r} of the array API is not supported; these are: {', '.join(VERSIONS)}")
    return sys.modules[__name__]


def asnumpy(x, /):
    """Returns a copy of an Array, from device memory too, as a numpy.ndarray."""
    return x.asnumpy() if type(x) is Array else numpy.asarray(x)


__all__ = [name for name in globals() if (not name.startswith("_") or name.startswith("__array")) and name not in ("contextlib", "gc", "sys", "threading", "types", "numpy", "Array", "DType", "VERSIONS")]


def __dir__():
    return __all__
