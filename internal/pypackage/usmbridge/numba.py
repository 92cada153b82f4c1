"""Use arrays as arguments of functions that Numba compiles.

Numba loads this module by its entry point; programs need not import it. A
function under ``njit`` takes an `Array` whose memory the host can read, and
handles it as a NumPy array on the same memory. A read-only Array is a
read-only array.

A function that returns one of its arguments returns the Array itself. A view
or a new array is returned as a NumPy array; a view holds the Array's memory.

A function with an explicit signature takes the types in that signature:
declare an `ArrayType`, or pass ``numpy.asarray(a)``.

Memory that the host cannot read raises numba.TypingError. Pass
``a.asnumpy()`` or ``a.to_device("host")`` instead.

Examples
--------
>>> import numba, usmbridge as ub
>>> @numba.njit
... def double(x):
...     for i in range(x.size):
...         x[i] *= 2
>>> a = ub.ones(3, device="host")
>>> double(a)
>>> a.tolist()
[2.0, 2.0, 2.0]
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import cgutils, errors, imputils, types
from numba.core.datamodel import models
from numba.core.serialize import NumbaPickler
from numba.core.typing.typeof import Purpose
from numba.extending import NativeValue, box, register_model, typeof_impl, unbox
from numba.np import numpy_support

import usmbridge

__all__ = ["ArrayType", "init", "type_of"]

# The C functions that compiled code calls. Code in Numba's cache refers to them by these names.
_TAKE = "usmbridge_numba_take"
_BOX = "usmbridge_numba_box"
llvmlite.binding.add_symbol(_TAKE, usmbridge._native._numba_take)
llvmlite.binding.add_symbol(_BOX, usmbridge._native._numba_box)
# Version of the calling convention between compiled code and the C functions. Increment it when
# either side changes: functions that another version left in a cache are then compiled again.
_AGREEMENT = 2


class ArrayType(types.Array):
    """The Numba type of an Array.

    Views and results of such an argument are NumPy arrays.

    Parameters
    ----------
    dtype : numba.types.Type
        Element type.
    ndim : int
        Number of axes.
    layout : {"C", "F", "A"}
        Row-major, column-major or any order.
    readonly : bool, optional
        Whether compiled code may not write.
    """

    def __init__(self, dtype: types.Type, ndim: int, layout: str, readonly: bool = False) -> None:
        kind = "readonly Array" if readonly else "Array"
        super().__init__(dtype, ndim, layout, readonly=readonly, name=f"usmbridge.{kind}({dtype}, {ndim}d, {layout})")

    def __repr__(self) -> str:
        return f"usmbridge.numba.ArrayType({self.dtype!r}, {self.ndim}, {self.layout!r}, readonly={not self.mutable})"


register_model(ArrayType)(models.ArrayModel)


def _loader():
    """Returns the function that unpickles an ArrayType from a cache of Numba.

    The index of a cache lists all types that a function was compiled for, and processes that
    cannot import this package read it too. The function is therefore a closure, which
    NumbaPickler stores by value. Without this package, or with another version of it, it
    returns a tuple, which matches no argument's type."""

    def load(agreement, *args):
        try:
            from usmbridge import numba as ours
        except ImportError:
            ours = None
        if ours is None or ours._AGREEMENT != agreement:
            return ("usmbridge.numba.ArrayType", agreement, *args)
        return ours.ArrayType(*args)

    return load


_load = _loader()


def _reduce(t: ArrayType) -> tuple[Any, ...]:
    return _load, (_AGREEMENT, t.dtype, t.ndim, t.layout, not t.mutable)


NumbaPickler.dispatch_table[ArrayType] = _reduce


@imputils.lower_cast(ArrayType, types.Array)
@imputils.lower_cast(types.Array, ArrayType)
@imputils.lower_cast(ArrayType, ArrayType)
def _as_array(context, builder, fromty, toty, val):
    # Both types have the same structure. Numba's containers ask for conversions that the types do not allow.
    if fromty.can_convert_to(None, toty) is None:
        raise errors.TypingError(f"cannot use {fromty} as {toty}: the layout or the permission to write differs; copy the array first")
    return val


def _dtype(a: usmbridge.Array) -> types.Type:
    if a.typestr is None:
        raise errors.TypingError(f"Numba has no type for elements of {a.dtype}: convert them with asarray(a, dtype=...)")
    try:
        return numpy_support.from_dtype(np.dtype(a.typestr))
    except errors.NumbaError as e:
        raise errors.TypingError(f"Numba has no type for elements of {a.dtype} ({a.typestr}): convert them with asarray(a, dtype=...)") from e


def type_of(a: usmbridge.Array) -> ArrayType:
    """Return the Numba type of an Array.

    Parameters
    ----------
    a : Array
        The array.

    Returns
    -------
    ArrayType
        The type that a compiled function takes it as.

    Raises
    ------
    numba.TypingError
        If the host cannot read the memory, or Numba has no such element type.

    Examples
    --------
    >>> import usmbridge as ub, usmbridge.numba
    >>> usmbridge.numba.type_of(ub.zeros((2, 3), device="host"))
    usmbridge.numba.ArrayType(float64, 2, 'C', readonly=False)
    """
    try:
        view = memoryview(a)
    except BufferError as e:
        raise errors.TypingError(
            f"a compiled function cannot take this Array (shape {a.shape}, {a.dtype}, usm_type {a.usm_type!r}): {e}. "
            'Pass a.asnumpy(), or a.to_device("host")') from e
    layout = "C" if view.c_contiguous else "F" if view.f_contiguous else "A"
    return ArrayType(_dtype(a), a.ndim, layout, readonly=view.readonly)


@typeof_impl.register(usmbridge.Array)
def _typeof(a, c):
    if c.purpose is Purpose.constant:
        raise errors.TypingError("an Array as a global of a compiled function would be frozen into it: pass it as an argument")
    return type_of(a)


def _expected(context, typ):
    """Constants that tell the C functions which Array the code was compiled for: the kind and the
    bits of the NumPy dtype, the number of axes, the layout, and whether the code may write."""
    dtype = numpy_support.as_dtype(typ.dtype)
    values = (ord(dtype.kind), dtype.itemsize * 8, typ.ndim, ord(typ.layout), int(typ.mutable))
    return [context.get_constant(types.int32, v) for v in values]


def _call(builder, name, result, args):
    signature = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), args)


@unbox(ArrayType)
def _unbox(typ, obj, c):
    native = c.context.make_array(typ)(c.context, c.builder)
    place = c.builder.bitcast(native._getpointer(), c.pyapi.voidptr)
    hold = _call(c.builder, _TAKE, c.pyapi.pyobj, [obj, place, *_expected(c.context, typ)])
    failed = cgutils.is_null(c.builder, hold)
    with c.builder.if_then(c.builder.not_(failed), likely=True):
        owner = c.builder.bitcast(hold, c.pyapi.voidptr)
        native.meminfo = c.pyapi.nrt_meminfo_new_from_pyobject(c.builder.bitcast(native.data, c.pyapi.voidptr), owner)
        c.pyapi.decref(hold)
    return NativeValue(native._getvalue(), is_error=failed)


@box(ArrayType)
def _box(typ, val, c):
    plain = types.Array(typ.dtype, typ.ndim, typ.layout, readonly=not typ.mutable)
    native = c.context.make_array(typ)(c.context, c.builder, value=val)
    place = c.builder.bitcast(native._getpointer(), c.pyapi.voidptr)
    same = _call(c.builder, _BOX, c.pyapi.pyobj, [place, c.context.get_constant(types.int32, typ.ndim)])
    result = cgutils.alloca_once_value(c.builder, same)
    with c.builder.if_else(cgutils.is_not_null(c.builder, same)) as (given_back, other):
        with given_back:
            c.context.nrt.decref(c.builder, typ, val)
        with other:
            c.builder.store(c.box(plain, val), result)
    return c.builder.load(result)


def init() -> None:
    """Do nothing: Numba's entry point calls it after it has imported this module.

    Examples
    --------
    >>> import usmbridge.numba
    >>> usmbridge.numba.init()
    """
