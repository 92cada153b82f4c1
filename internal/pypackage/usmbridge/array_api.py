"""The array API standard, version 2024.12, for Arrays.

Each function hands the memory of its arguments to a library that computes, and
returns Arrays on the memory of that library's results: dpnp for unified shared
memory (USM), NumPy for plain host memory. Without dpnp, NumPy computes on USM
that the host can read, and the result is copied to USM of the same kind and
queue. Views stay views, and functions that the standard defines for data types
use NumPy.

The arguments are Arrays of one place and Python numbers. `usmbridge.asarray`
imports other arrays. Creation functions also take ``usm_type``.

dpnp deadlocks if several threads call it at once. The calls from here are
serialized by one lock; direct calls of dpnp from other threads are not.

Examples
--------
>>> import usmbridge as ub
>>> xp = ub.ones(3).__array_namespace__()
>>> xp.sum(xp.linspace(0, 1, 5)).item()
2.5
"""

import sys
import threading
import types

import numpy

from usmbridge import Array, DType, asarray, devices, empty, empty_like, from_dlpack, full, full_like, ones, ones_like, zeros, zeros_like

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

# The functions that go to the library as they are. A module is named by a line with a colon.
_TABLE = """
: linear algebra
matmul(x1, x2, /)
matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=2)
vecdot(x1, x2, /, *, axis=-1)
: creation from arrays
meshgrid(*arrays, indexing='xy')
tril(x, /, *, k=0)
triu(x, /, *, k=0)
: elementwise
abs(x, /)
acos(x, /)
acosh(x, /)
add(x1, x2, /)
asin(x, /)
asinh(x, /)
atan(x, /)
atan2(x1, x2, /)
atanh(x, /)
bitwise_and(x1, x2, /)
bitwise_left_shift(x1, x2, /)
bitwise_invert(x, /)
bitwise_or(x1, x2, /)
bitwise_right_shift(x1, x2, /)
bitwise_xor(x1, x2, /)
ceil(x, /)
clip(x, /, min=None, max=None)
conj(x, /)
copysign(x1, x2, /)
cos(x, /)
cosh(x, /)
divide(x1, x2, /)
equal(x1, x2, /)
exp(x, /)
expm1(x, /)
floor(x, /)
floor_divide(x1, x2, /)
greater(x1, x2, /)
greater_equal(x1, x2, /)
hypot(x1, x2, /)
imag(x, /)
isfinite(x, /)
isinf(x, /)
isnan(x, /)
less(x1, x2, /)
less_equal(x1, x2, /)
log(x, /)
log1p(x, /)
log2(x, /)
log10(x, /)
logaddexp(x1, x2, /)
logical_and(x1, x2, /)
logical_not(x, /)
logical_or(x1, x2, /)
logical_xor(x1, x2, /)
maximum(x1, x2, /)
minimum(x1, x2, /)
multiply(x1, x2, /)
negative(x, /)
nextafter(x1, x2, /)
not_equal(x1, x2, /)
positive(x, /)
pow(x1, x2, /)
real(x, /)
reciprocal(x, /)
remainder(x1, x2, /)
round(x, /)
sign(x, /)
signbit(x, /)
sin(x, /)
sinh(x, /)
square(x, /)
sqrt(x, /)
subtract(x1, x2, /)
tan(x, /)
tanh(x, /)
trunc(x, /)
: indexing and searching
take(x, indices, /, *, axis=None)
take_along_axis(x, indices, /, *, axis=-1)
argmax(x, /, *, axis=None, keepdims=False)
argmin(x, /, *, axis=None, keepdims=False)
count_nonzero(x, /, *, axis=None, keepdims=False)
nonzero(x, /)
searchsorted(x1, x2, /, *, side='left', sorter=None)
where(condition, x1, x2, /)
: manipulation
broadcast_arrays(*arrays)
broadcast_to(x, /, shape)
concat(arrays, /, *, axis=0)
expand_dims(x, /, axis)
flip(x, /, *, axis=None)
moveaxis(x, source, destination, /)
permute_dims(x, /, axes)
repeat(x, repeats, /, *, axis=None)
reshape(x, /, shape, *, copy=None)
roll(x, /, shift, *, axis=None)
squeeze(x, /, axis)
stack(arrays, /, *, axis=0)
tile(x, repetitions, /)
unstack(x, /, *, axis=0)
: sets and sorting
unique_all(x, /)
unique_counts(x, /)
unique_inverse(x, /)
unique_values(x, /)
argsort(x, /, *, axis=-1, descending=False, stable=True)
sort(x, /, *, axis=-1, descending=False, stable=True)
: statistics
all(x, /, *, axis=None, keepdims=False)
any(x, /, *, axis=None, keepdims=False)
cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False)
cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False)
diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
max(x, /, *, axis=None, keepdims=False)
mean(x, /, *, axis=None, keepdims=False)
min(x, /, *, axis=None, keepdims=False)
prod(x, /, *, axis=None, dtype=None, keepdims=False)
std(x, /, *, axis=None, correction=0.0, keepdims=False)
sum(x, /, *, axis=None, dtype=None, keepdims=False)
var(x, /, *, axis=None, correction=0.0, keepdims=False)
linalg:
cholesky(x, /, *, upper=False)
cross(x1, x2, /, *, axis=-1)
det(x, /)
diagonal(x, /, *, offset=0)
eigh(x, /)
eigvalsh(x, /)
inv(x, /)
matmul(x1, x2, /)
matrix_norm(x, /, *, keepdims=False, ord='fro')
matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=None)
matrix_transpose(x, /)
outer(x1, x2, /)
pinv(x, /, *, rtol=None)
qr(x, /, *, mode='reduced')
slogdet(x, /)
solve(x1, x2, /)
svd(x, /, *, full_matrices=True)
svdvals(x, /)
tensordot(x1, x2, /, *, axes=2)
trace(x, /, *, offset=0, dtype=None)
vecdot(x1, x2, /, *, axis=-1)
vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
fft:
fft(x, /, *, n=None, axis=-1, norm='backward')
ifft(x, /, *, n=None, axis=-1, norm='backward')
fftn(x, /, *, s=None, axes=None, norm='backward')
ifftn(x, /, *, s=None, axes=None, norm='backward')
rfft(x, /, *, n=None, axis=-1, norm='backward')
irfft(x, /, *, n=None, axis=-1, norm='backward')
rfftn(x, /, *, s=None, axes=None, norm='backward')
irfftn(x, /, *, s=None, axes=None, norm='backward')
hfft(x, /, *, n=None, axis=-1, norm='backward')
ihfft(x, /, *, n=None, axis=-1, norm='backward')
fftshift(x, /, *, axes=None)
ifftshift(x, /, *, axes=None)
"""

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


def _get_item(x, key):
    return x[key[0]]


def _set_item(x, key, value):
    x[key[0]] = value


# The functions by library (USM or not), module and name; others are added at first use.
_functions = {
    (False, "", "sort"): _sort,
    (False, "", "argsort"): _argsort,
    (True, "", "expand_dims"): lambda x, axis: _dpnp.tensor.expand_dims(x, axis=axis),
}
for _usm_too in (False, True):
    _functions[_usm_too, "", "_get_item"], _functions[_usm_too, "", "_set_item"] = _get_item, _set_item


def _function(usm, module, name):
    found = _functions.get((usm, module, name))
    if found is None:
        # dpnp.tensor has the functions of the main namespace and is faster than dpnp.
        library = getattr(_dpnp if usm else numpy, module) if module else _dpnp.tensor if usm else numpy
        found = getattr(library, name)
        if name in ("broadcast_arrays", "meshgrid"):  # lists in the standard, tuples in some releases
            found = _listed(found)
        _functions[usm, module, name] = found
    return found


def _listed(function):
    return lambda *args, **kwargs: list(function(*args, **kwargs))


# Serializes the calls of dpnp. Reentrant, because the end of an object can run code anywhere.
_lock = threading.RLock()
_dpnp = None  # the module; False if it is not installed


def _load_dpnp():
    """Returns the module dpnp or False. Its first call is made here, by one thread."""
    global _dpnp
    with _lock:
        if _dpnp is None:
            try:
                import dpnp
                import dpnp.tensor
            except ImportError:
                _dpnp = False
            else:
                one = dpnp.tensor.ones(1, dtype="float32")
                dpnp.tensor.sum(dpnp.tensor.add(one, one))
                _dpnp = dpnp
    return _dpnp


def _by_dpnp(place):
    """Reports whether dpnp computes for the memory of an Array."""
    return place.usm_type is not None and (_dpnp or (_dpnp is None and _load_dpnp())) is not False


def _usm(a):
    """Returns a usm_ndarray of dpnp on the memory and the queue of an Array."""
    if a.typestr is None:
        raise TypeError(f"dpnp has no element type {a.dtype}; convert the Array first, by astype(\"float32\")")
    asarray = _dpnp.tensor.asarray
    if _all_positive(a.strides):
        return asarray(a)
    # dpnp.tensor does not import negative strides.
    turn = tuple(slice(None, None, -1 if step < 0 else 1) for step in a.strides)
    return asarray(a[turn])[turn]


def _all_positive(strides):
    for step in strides:
        if step < 0:
            return False
    return True


def _usm_dpnp(a):
    return _dpnp.asarray(_usm(a), copy=False)


def _place_of(x, place):
    """Returns the Array whose place decides for x and place, each an Array or None; they must agree."""
    if place is None or x is place:
        return x
    queue, other = x.sycl_queue, place.sycl_queue
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
        return t(_native(i, convert) for i in x)
    return x


def _wrapped(r, place=None):
    """Returns the result of a library with Arrays in the place of its arrays.

    With an Array place, they are copied to USM of its kind and queue.
    """
    if isinstance(r, numpy.generic):
        r = numpy.asarray(r)
    if hasattr(r, "__dlpack__"):
        return asarray(r) if place is None else asarray(r, usm_type=place.usm_type, device=place.sycl_queue, copy=True)
    if isinstance(r, (tuple, list)):
        items = [_wrapped(x, place) for x in r]
        return type(r)(*items) if hasattr(r, "_fields") else type(r)(items)
    return r


def _run(module, name, args, kwargs):
    """Calls a function of the library that computes for the memory of the arguments."""
    place = _find(args)
    if kwargs:
        place = _find(kwargs.values(), place)
    if place is None:
        raise TypeError(f"{name}: no argument is an Array; usmbridge.asarray(x) makes one")
    if _by_dpnp(place):
        convert = _usm_dpnp if module else _usm
        with _lock:
            args = [_native(x, convert) for x in args]
            kwargs = {k: _native(x, convert) for k, x in kwargs.items()}
            return _wrapped(_function(True, module, name)(*args, **kwargs))
    args = [_native(x, numpy.asarray) for x in args]
    kwargs = {k: _native(x, numpy.asarray) for k, x in kwargs.items()}
    return _wrapped(_function(False, module, name)(*args, **kwargs), None if place.usm_type is None else place)


# ---- the functions of the table ---------------------------------------------------------------


def _source(module, line):
    """Returns Python code that defines the function of a line of the table."""
    name, parameters = line[:-1].split("(", 1)
    positional, keywords, only = [], [], False
    for p in parameters.split(", "):
        p, _, default = p.partition("=")
        if p in "/*":
            only = only or p == "*"
        elif p.startswith("*"):
            positional.append(p)
            only = True
        elif not only:
            positional.append(p)
        else:
            keywords.append((p, default))
    given = ", ".join(f"{p!r}: {p}" for p, default in keywords if default != "None")
    code = f"def {name}({parameters}):\n    kw = {{{given}}}\n"
    for p, default in keywords:
        if default == "None":
            code += f"    if {p} is not None: kw[{p!r}] = {p}\n"
    return code + f"    return _run({module!r}, {name!r}, ({', '.join(positional)},), kw)\n"


def _define():
    module, names, code = "", [], {"": "", "linalg": "", "fft": ""}
    for line in _TABLE.split("\n"):
        if line.endswith(")"):
            code[module] += _source(module, line)
            names.append((module, line.split("(")[0]))
        elif line.endswith(":"):
            module = line[:-1]
    for module, text in code.items():
        made = globals()
        if module:
            full = f"{__name__}.{module}"
            made[module] = sys.modules[full] = types.ModuleType(full, f"The functions of the array API's extension {module}, for Arrays.")
            made = vars(made[module])
            made["_run"] = _run
        exec(compile(text, f"<{__name__}, the functions of the table>", "exec"), made)
    for module, name in names:
        f = globals()[module] if module else None
        f = getattr(f, name) if module else globals()[name]
        f.__doc__ = f"{'.'.join(filter(None, (module, name)))} of the array API standard, computed by dpnp or NumPy."
    return names


_names = _define()

# ---- creation, data types -----------------------------------------------------------------------


def _create(module, name, args, kwargs, dtype, device, usm_type):
    place = empty(0, dtype, device=device, usm_type=usm_type)
    if dtype is not None:
        kwargs["dtype"] = dtype
    if _by_dpnp(place):
        with _lock:
            return _wrapped(_function(True, module, name)(*args, usm_type=place.usm_type, sycl_queue=place.sycl_queue, **kwargs))
    return _wrapped(_function(False, module, name)(*args, **kwargs), None if place.usm_type is None else place)


def _real(dtype, device, usm_type):
    """Returns dtype, or the default real type at a place."""
    return dtype if dtype is not None else empty(0, device=device, usm_type=usm_type).dtype


def _any_complex(values):
    return True in [isinstance(v, complex) for v in values]


def _all_integers(values):
    return False not in [isinstance(v, int) for v in values if v is not None]


def arange(start, /, stop=None, step=1, *, dtype=None, device=None, usm_type=None):
    """arange of the array API standard, computed by dpnp or NumPy."""
    args = (start, stop, step) if stop is not None else (0, start, step)
    if dtype is None:
        dtype = numpy.dtype("int64") if _all_integers(args) else _real(None, device, usm_type)
    return _create("", "arange", args, {}, dtype, device, usm_type)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None, usm_type=None):
    """eye of the array API standard, computed by dpnp or NumPy."""
    return _create("", "eye", (n_rows, n_cols), {"k": k}, _real(dtype, device, usm_type), device, usm_type)


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True, usm_type=None):
    """linspace of the array API standard, computed by dpnp or NumPy."""
    if dtype is None:
        dtype = None if _any_complex((start, stop)) else _real(None, device, usm_type)
    return _create("", "linspace", (start, stop, num), {"endpoint": endpoint}, dtype, device, usm_type)


def _frequencies(name):
    def frequencies(n, /, *, d=1.0, dtype=None, device=None, usm_type=None):
        r = _create("fft", name, (n,), {"d": d}, None, device, usm_type)
        return astype(r, _real(dtype, device, usm_type), copy=False)

    frequencies.__name__ = frequencies.__qualname__ = name
    frequencies.__doc__ = f"fft.{name} of the array API standard, computed by dpnp or NumPy."
    return frequencies


fft.fftfreq, fft.rfftfreq = _frequencies("fftfreq"), _frequencies("rfftfreq")  # noqa: F821


def astype(x, dtype, /, *, copy=True, device=None):
    """astype of the array API standard, computed by dpnp or NumPy."""
    if type(x) is not Array:
        raise TypeError(f"astype takes an Array, not {type(x).__name__}")
    r = x
    if copy or x.dtype != dtype:
        r = _run("", "astype", (x, dtype), {"copy": copy}) if x.typestr and DType(dtype) in _DTYPES["numeric"] + ("bool",) else x.astype(dtype, copy=copy)
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
        if empty(0, device=device).dtype.itemsize < 8:
            names = [name for name in names if name not in ("float64", "complex128")]
        return {name: numpy.dtype(name) for name in names}


def _namespace(version):
    if version is not None and version not in VERSIONS:
        raise ValueError(f"__array_namespace__: version {version!r} of the array API is not supported; these are: {', '.join(VERSIONS)}")
    return sys.modules[__name__]


def asnumpy(x, /):
    """Returns a copy of an Array, from device memory too, as a numpy.ndarray."""
    return x.asnumpy() if type(x) is Array else numpy.asarray(x)


# ---- operators and indexing: called by the C module ----------------------------------------------


def _operand(x, like):
    """Returns an operand beside the Array like: Arrays and numbers as they are, other arrays as Arrays.

    Arrays of NumPy, sequences and buffers are copied to the memory of like.
    """
    if type(x) is Array or (isinstance(x, (int, float, complex)) and not isinstance(x, numpy.generic)):
        return x
    if hasattr(type(x), "__sycl_usm_array_interface__"):
        return asarray(x)
    if like.usm_type is None:
        return asarray(x, device="host")
    return asarray(x, usm_type=like.usm_type, device=like.sycl_queue)


def _operator(name):
    def operate(a, b):
        return _run("", name, (_operand(a, b), _operand(b, a)), {})

    return operate


def _in_place(name):
    def operate(a, b):
        if a.readonly:
            raise ValueError("the array is read-only; copy() it to write")
        b = _operand(b, a)
        # The results of NumPy in USM are written to the memory of a.
        out = a if _by_dpnp(a) else numpy.asarray(a)
        _find((a, b))
        if out is a:
            _run("", name, (a, b), {"out": a})
        else:
            _function(False, "", name)(out, _native(b, numpy.asarray), out=out)
        return a

    return operate


_OPERATORS = ("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "matmul", "pow", "bitwise_left_shift", "bitwise_right_shift",
              "bitwise_and", "bitwise_or", "bitwise_xor", "less", "less_equal", "equal", "not_equal", "greater", "greater_equal")
for _name in _OPERATORS:
    globals()[f"_op_{_name}"] = _operator(_name)
    globals()[f"_in_{_name}"] = _in_place(_name)


def _op_divmod(a, b):
    a, b = _operand(a, b), _operand(b, a)
    return floor_divide(a, b), remainder(a, b)  # noqa: F821


def _contains(a, x):
    return any(_op_equal(a, x)).item()  # noqa: F821


def _key(key, a):
    """Returns an index with Arrays beside a in the place of NumPy's arrays and of lists."""
    keys = key if type(key) is tuple else (key,)
    plain = (int, slice, type(None), type(...))
    keys = tuple(k if isinstance(k, plain) and not isinstance(k, numpy.generic) else _operand(k, a) for k in keys)
    return keys if type(key) is tuple else keys[0]


def _get(a, key):
    return _run("", "_get_item", (a, (_key(key, a),)), {})


def _set(a, key, value):
    _run("", "_set_item", (a, (_key(key, a),), _operand(value, a)), {})


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("sys", "threading", "types", "numpy", "Array", "DType", "VERSIONS")]


def __dir__():
    return __all__
