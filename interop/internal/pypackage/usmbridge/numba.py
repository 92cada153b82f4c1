"""Arrays as arguments of functions that Numba compiles.

Numba finds this by its entry point; nobody has to import it. A function under `njit` takes
an Array whose memory the host may read, and sees in it what it sees in a NumPy array:
shape, strides, indexing, reductions, parallel loops. A read-only Array is a read-only array.

What a function returns: an argument given back is the very Array that went in; a view or
a new array is a NumPy array, and a view keeps the Array's memory alive.

A function with an explicit signature takes the types it names: an ArrayType of this
module, or pass numpy.asarray(a), which is the same memory.

Memory that the host cannot read is a TypingError: copy it with asnumpy(), or to the host
with to_device("host").
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

# Compiled functions, those in Numba's cache too, know what they call in us by name.
_TAKE = "usmbridge_numba_take"
_BOX = "usmbridge_numba_box"
llvmlite.binding.add_symbol(_TAKE, usmbridge._native._numba_take)
llvmlite.binding.add_symbol(_BOX, usmbridge._native._numba_box)
# What compiled code and those helpers agree upon. Counted up when either changes: what
# another version has left in a cache is compiled anew then.
_AGREEMENT = 2


class ArrayType(types.Array):
    """Numba's type of an Array: an array whose views and results are NumPy's."""

    def __init__(self, dtype: types.Type, ndim: int, layout: str, readonly: bool = False) -> None:
        kind = "readonly Array" if readonly else "Array"
        super().__init__(dtype, ndim, layout, readonly=readonly, name=f"usmbridge.{kind}({dtype}, {ndim}d, {layout})")

    def __repr__(self) -> str:
        return f"usmbridge.numba.ArrayType({self.dtype!r}, {self.ndim}, {self.layout!r}, readonly={not self.mutable})"


register_model(ArrayType)(models.ArrayModel)


def _loader():
    """What a cache of Numba's loads a type by. A function without a name in a module, for
    those are written out whole: the index of a cache lists all types that a function was
    compiled for, and is read by processes too that cannot import this package. To them,
    and to another version of it, the type is a tuple, which is no argument's type."""

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
def _as_array(context, builder, fromty, toty, val):
    # The same structure; what may be converted was settled by the type.
    return val


def _dtype(a: usmbridge.Array) -> types.Type:
    if a.typestr is None:
        raise errors.TypingError(f"Numba has no type for elements of {a.dtype}: convert them with asarray(a, dtype=...)")
    try:
        return numpy_support.from_dtype(np.dtype(a.typestr))
    except errors.NumbaError as e:
        raise errors.TypingError(f"Numba has no type for elements of {a.dtype} ({a.typestr}): convert them with asarray(a, dtype=...)") from e


def type_of(a: usmbridge.Array) -> ArrayType:
    """The type of an Array as an argument; a TypingError where the host cannot read it."""
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


# What the helpers in C are told besides the object: its element type as the kind and
# bits of NumPy's dtype, number of dimensions, layout, and whether it is written.
def _expected(context, typ):
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
    """What Numba's entry point calls; importing this module has done the work."""
