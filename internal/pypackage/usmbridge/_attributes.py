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
        raise AttributeError(f"module 'usmbridge' has no attribute {name!r}{_instead(name)}")
    setattr(usmbridge, name, found)
    return found


def _instead(name):
    """Returns where an attribute that the package lacks can be found, for messages. It loads no other module of the package."""
    if name.startswith("_"):
        return ""
    from importlib.resources import files
    try:
        stub = files(usmbridge).joinpath("array_api.pyi").read_text()
    except OSError:  # a program bundled without stubs
        stub = ""
    if f"\ndef {name}(" in stub or f"\n{name}: " in stub:
        return f"; use usmbridge.array_api.{name}"
    return f"; usmbridge.array_api has the functions of the array API, and NumPy's functions, such as numpy.{name} if it exists, take numpy.asarray(a)"


def names():
    return sorted({*vars(usmbridge), *usmbridge.__all__, *SUBMODULES})
