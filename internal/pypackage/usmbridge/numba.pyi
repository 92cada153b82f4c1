"""Types of usmbridge.numba."""

from typing import Literal

from numba.core.types import Array as _NumbaArray
from numba.core.types import Type as _Type

from usmbridge import Array

__all__ = ["ArrayType", "init", "type_of"]

class ArrayType(_NumbaArray):
    def __init__(self, dtype: _Type, ndim: int, layout: Literal["C", "F", "A"], readonly: bool = False) -> None: ...

def type_of(a: Array) -> ArrayType: ...
def init() -> None: ...
