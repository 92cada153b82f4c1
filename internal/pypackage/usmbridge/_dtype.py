"""The class DType. The C module imports this file when it needs it."""

from usmbridge import _native

TYPE_CHECKING = False  # as in typing, without importing it
if TYPE_CHECKING:
    from typing import final
else:
    def final(cls):
        return cls


@final
class DType(str):
    """An element type: a str with its array API name.

    It also equals the NumPy dtype and the NumPy or ml_dtypes scalar type of
    that name.

    Parameters
    ----------
    type : str, numpy.dtype or scalar type
        An array API name ("float32"), a type string ("<f4"), or an object with
        a `name` or `__name__` of that kind.

    Raises
    ------
    TypeError
        If `type` names no element type of this machine's byte order.

    Examples
    --------
    >>> import usmbridge as ub
    >>> ub.DType("f4"), ub.DType(float).itemsize
    ('float32', 8)
    """

    __module__ = "usmbridge"
    __slots__ = ()

    def __new__(cls, type, /):
        return _native._dtype_of(type)

    def __init_subclass__(cls):
        raise TypeError("usmbridge.DType cannot be a base class")

    @property
    def name(self):
        """Name of the element type; a str."""
        return str.__str__(self)

    @property
    def itemsize(self):
        """Bytes of one element; 1 for types smaller than a byte."""
        bits = self.lstrip("abcdefghijklmnopqrstuvwxyz").partition("_")[0]
        return max(int(bits or 8) // 8, 1)

    def __eq__(self, other):
        same = None if isinstance(other, str) else _equals(self, other)
        return str.__eq__(self, other) if same is None else same

    def __ne__(self, other):
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    __hash__ = str.__hash__

    def __reduce__(self):
        return type(self), (self.name,)


def named(name):
    """Returns the DType of a name."""
    return str.__new__(DType, name)


def _attribute(o, name, otherwise):
    """Returns an attribute; an exception counts as none."""
    try:
        return getattr(o, name, otherwise)
    except Exception:
        return otherwise


def _equals(dtype, o):
    """Reports whether o is the dtype or scalar type of NumPy or ml_dtypes of that name. None: it is neither."""
    scalar = isinstance(o, type)
    module = _attribute(o if scalar else type(o), "__module__", None)
    if not isinstance(module, str) or module.partition(".")[0] != "numpy" and module != "ml_dtypes":
        return None
    name = _attribute(o, "__name__" if scalar else "name", None)
    if not isinstance(name, str):
        return False
    if scalar and name == "bool_":  # NumPy 1's bool
        name = "bool"
    return str.__eq__(dtype, name) and (scalar or _attribute(o, "isnative", True) is not False)
