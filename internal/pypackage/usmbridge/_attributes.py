"""The attributes of the package that are found at first use. The package imports this module for the first of them."""

import sys

import usmbridge
from usmbridge import _native

SUBMODULES = ("array_api", "dask", "numba", "share")


def find(name):
    """Returns an attribute and stores it in the package."""
    if name == "set_default":
        from usmbridge._defaults import set_default as found
    elif name == "DType":  # the class that the C module uses, which is one for each process
        found = type(_native._dtype_of("bool"))
    elif name in usmbridge._FUNCTIONS:
        from usmbridge import _methods
        found = _methods.FUNCTIONS[name]
    elif name in SUBMODULES:
        # Numba's entry point is usmbridge:numba.init, so that it imports the package before the
        # submodule: see _watch.bring.
        try:
            __import__(f"usmbridge.{name}")
        except ModuleNotFoundError as e:
            raise AttributeError(f"usmbridge.{name} needs another package: {e}") from e
        return sys.modules[f"usmbridge.{name}"]
    else:
        raise AttributeError(f"module 'usmbridge' has no attribute {name!r}")
    setattr(usmbridge, name, found)
    return found


def names():
    return sorted({*vars(usmbridge), *usmbridge.__all__, *SUBMODULES})
