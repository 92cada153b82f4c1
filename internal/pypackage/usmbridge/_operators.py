"""The operators of Array, and what arrays of other libraries are to them. The C module calls them; usmbridge.array_api computes."""

import operator

from usmbridge import Array, array_api, asarray, full
from usmbridge._need import numpy


def _is_partner(x):
    """Reports whether x is an array of a library that NumPy leaves the operators to, such as a masked array or one of Dask.

    A type has __array_ufunc__ (NEP 13) or the older __array_priority__ for this. Arrays on USM are operands, and so
    are arrays with __dlpack__ and without __array_ufunc__.
    """
    t = type(x)
    if t is Array or t is numpy.ndarray or hasattr(t, "__sycl_usm_array_interface__"):
        return False
    if hasattr(t, "__array_ufunc__"):
        if t.__array_ufunc__ is not numpy.ndarray.__array_ufunc__:
            return True
    elif hasattr(t, "__dlpack__"):
        return False
    return getattr(x, "__array_priority__", 0) > 0


def _operand(x, like):
    """Returns an operand beside the Array like: Arrays and numbers as they are, other arrays as Arrays, None for a partner.

    Arrays of NumPy, sequences and buffers are copied to the memory of like.
    """
    if type(x) is Array or (isinstance(x, (int, float, complex)) and not isinstance(x, numpy.generic)):
        return x
    if _is_partner(x):
        return None
    if hasattr(type(x), "__sycl_usm_array_interface__"):
        return asarray(x)
    return array_api._beside(x, like)


# The results of comparing an integer with a larger one, as functions of whether the array is on the left.
_LESS = {"equal": lambda left: False, "not_equal": lambda left: True, "less": lambda left: left, "less_equal": lambda left: left,
         "greater": lambda left: not left, "greater_equal": lambda left: not left}


def _is_wide(x):
    """Reports whether x is an integer of Python that no integer type has."""
    return type(x) is int and not -(1 << 63) <= x < 1 << 64


def _with_wide(name, a, b):
    """Computes with an Array of USM and an integer for which _is_wide is true, as NumPy does."""
    x, array = (a, b) if _is_wide(a) else (b, a)
    kind = numpy.dtype(str(array.dtype)).kind
    if kind in "fc":
        a, b = (float(x), b) if _is_wide(a) else (a, float(x))
        return array_api._run("", name, (a, b), {})
    if name in _LESS:
        return full(array.shape, _LESS[name](array is (a if x > 0 else b)), dtype="bool", usm_type=array.usm_type, device=array._on)
    if name == "divide":
        a, b = (float(x), b) if _is_wide(a) else (a, float(x))
        return array_api._run("", name, (a, b), {})
    raise OverflowError(f"Python integer {x} out of bounds for {array.dtype}")


# Python's operators by the names of array_api.
_PYTHON = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "divmod": divmod, "matmul": operator.matmul, "pow": operator.pow, "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift, "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "less": operator.lt,
    "less_equal": operator.le, "equal": operator.eq, "not_equal": operator.ne, "greater": operator.gt, "greater_equal": operator.ge,
}


def _by_partner(name, a, b):
    """Computes an operator of an Array and a partner: as NumPy does with an ndarray on the Array's memory."""
    partner = b if type(a) is Array else a
    if getattr(type(partner), "__array_ufunc__", _by_partner) is None:
        return NotImplemented
    a, b = (x if x is partner else numpy.asarray(x) for x in (a, b))
    return _PYTHON[name](a, b)


def _operator(name):
    function = getattr(array_api, name, None)

    def operate(a, b):
        if type(a) is Array and (type(b) is Array or (type(b) in array_api._NUMBERS and a.usm_type is None)):
            return function(a, b)
        x, y = _operand(a, b), _operand(b, a)
        if x is None or y is None:
            return _by_partner(name, a, b)
        if _is_wide(x) and y.usm_type or _is_wide(y) and x.usm_type:
            return _with_wide(name, x, y)
        return array_api._run("", name, (x, y), {})

    return operate


def _by_numpy(name, a, b):
    """Computes in place with an ndarray on the memory of the Array a. b is a partner, a number, or an Array that the host reads.

    NumPy writes to a copy, which is then assigned, if the result can be another object or a is packed.
    """
    n = numpy.asarray(a)
    r = n if n.flags.writeable and (type(b) is Array or type(b) in array_api._NUMBERS) else n.copy()
    if getattr(numpy, _UFUNCS.get(name, name))(r, numpy.asarray(b) if type(b) is Array else b, out=r) is not r:
        raise TypeError(f"{name}: the result with a {type(b).__name__} is not an array that an Array can hold; use it without the assignment")
    if r is not n:
        a[...] = r


def _in_place(name):
    def operate(a, b):
        if a.readonly:
            raise ValueError("the array is read-only; copy() it to write")
        x = _operand(b, a)
        if name == "matmul" and getattr(b if x is None else x, "ndim", 0) < 2:
            raise ValueError("matmul: the result has fewer axes than the array on the left; use it without the assignment")
        if x is None:
            _by_numpy(name, a, b)
        elif not array_api._by_dpnp(a):
            if type(x) is Array and (x.usm_type is not None or (x.ndim and a.usm_type is not None)):
                array_api._find((a, x))
            _by_numpy(name, a, x)
        elif _widens(name, a, x):
            # dpnp has no such cast of its results.
            r = array_api._run("", name, (a, x), {})
            if r.shape != a.shape:
                raise ValueError(f"the result has shape {r.shape}, the array on the left {a.shape}")
            a[...] = r
        else:
            array_api._run("", name, (a, x), {"out": a})
        return a

    return operate


def _widens(name, a, b):
    """Reports whether NumPy computes a and b, an Array or a number, in another type than that of a, to which it casts in place.

    TypeError if there is no such cast.
    """
    if type(b) is Array:
        other = b.dtype
    else:
        other = numpy.dtype("bool") if isinstance(b, bool) else next(t for t in (int, float, complex) if isinstance(b, t))
    mine = a.dtype
    if not isinstance(mine, numpy.dtype):
        return False
    key = name, mine, type(other), other  # a type of Python equals a dtype of NumPy
    if key not in _widening:
        if len(_widening) >= 256:
            _widening.clear()
        _widening[key] = _widens_types(name, mine, other)
    return _widening[key]


_widening: dict[tuple, bool] = {}  # the results, because NumPy takes longer than some computations


def _widens_types(name, mine, other):
    wide = getattr(numpy, _UFUNCS.get(name, name)).resolve_dtypes((mine, other, None))[-1]
    if not numpy.can_cast(wide, mine, "same_kind"):
        raise TypeError(f"{name}: the result is {wide}, which is not cast to {mine} in place; use it without the assignment")
    return wide != mine


# The names in NumPy of operators that array_api names otherwise.
_UFUNCS = {"pow": "power", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift"}
for _name in _PYTHON:
    globals()[f"_op_{_name}"] = _operator(_name)
    globals()[f"_in_{_name}"] = _in_place(_name)


def _op_divmod(a, b):
    x, y = _operand(a, b), _operand(b, a)
    if x is None or y is None:
        return _by_partner("divmod", a, b)
    return array_api.floor_divide(x, y), array_api.remainder(x, y)


def _on_operands(function):
    """Returns a function that takes an array of another library beside an Array, as operators do."""

    def operate(*inputs):
        like = inputs[0] if type(inputs[0]) is Array else inputs[-1]
        return function(*[_operand(x, like) for x in inputs])

    return operate


# The universal functions of NumPy that are functions of array_api, and the functions that compute them for Arrays.
_OF_UFUNC = {u: _on_operands(getattr(array_api, name)) for name, u in vars(numpy).items() if isinstance(u, numpy.ufunc) and hasattr(array_api, name)}
_OF_UFUNC.update((getattr(numpy, _UFUNCS.get(name, name)), globals()[f"_op_{name}"]) for name in _PYTHON)


def _contains(a, x):
    if _is_partner(x):
        return x in numpy.asarray(a)
    return array_api.any(_op_equal(a, x)).item()
