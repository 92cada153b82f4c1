"""Share arrays in SYCL unified shared memory (USM) and host memory without a copy.

An `Array` describes memory that it owns together with other arrays and
consumers. It gives that memory to dpctl and dpnp by
``__sycl_usm_array_interface__``, to every library that reads DLPack, to
NumPy and ``memoryview`` where the host can read it, and to Arrow. `asarray`
imports the arrays of those libraries.

New arrays come from `empty`, `zeros`, `ones`, `full` and their ``_like``
forms; `set_default` sets where they are made. Operators and the functions of
`array_api` compute with dpnp and NumPy. `devices` lists the devices. `stats` and `trim` show and reduce the
memory that the process holds. The submodules `cute`, `share`, `numba` and
`dask` serve CuTe DSL, other processes, Numba and Dask.

Examples
--------
>>> import usmbridge as ub
>>> a = ub.ones((2, 3), device="host")
>>> memoryview(a).shape
(2, 3)
>>> b = ub.asarray(a.__dlpack__())
>>> b[0, 0] = 5
>>> a.tolist()
[[5.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
"""

import sys as _sys

# A free-threaded build ("python3.14t") has no stable ABI and ignores files that use it. Without
# this check the error would be that the C module is missing.
if "t" in getattr(_sys, "abiflags", ""):
    raise ImportError(
        "usmbridge needs the stable ABI, and this Python is a free-threaded build "
        f"({_sys.version.split()[0]}, ABI flags {_sys.abiflags!r}) without it: use the ordinary build of Python {_sys.version_info[0]}.{_sys.version_info[1]}",
        name=__name__, path=__file__)

from usmbridge import _native, _watch  # noqa: E402
from usmbridge._native import *  # noqa: E402, F403
from usmbridge._native import __version__, _info, _set_limit, _set_make_room, _share_open, _unpickle  # noqa: E402, F401

# Go finds the program's dpctl in sys.path. It sets the variable of dpctl's OpenCL driver, which os.environ has read before.
_drivers = _native._set_paths("\n".join(p for p in _sys.path if isinstance(p, str)).encode(errors="surrogateescape"))
if _drivers:
    __import__("os").environ["OCL_ICD_FILENAMES"] = _drivers

# The functions and methods that usmbridge._methods defines.
_FUNCTIONS = "arange array concat empty_like eye full full_like linspace ones ones_like stack zeros_like".split()
_METHODS = """__round__ all any argmax argmin argpartition argsort clip conj conjugate cumprod cumsum diagonal dot dump flags flat flatten
imag mT max mean min nonzero partition prod ravel real repeat round searchsorted sort squeeze std sum swapaxes take tofile trace var"""


class _Lazy:
    """A method or attribute of Array before the first use of any. The use loads usmbridge._methods, which replaces all."""

    def __init__(self, name):
        self.name = name

    def load(self):
        __import__("usmbridge._methods")
        return self.name

    def __get__(self, a, cls):
        return getattr(cls if a is None else a, self.load())

    def __set__(self, a, value):
        setattr(a, self.load(), value)


if "sum" not in vars(_native.Array):
    for _name in _METHODS.split():
        setattr(_native.Array, _name, _Lazy(_name))

__all__ = sorted([name for name in vars(_native) if not name.startswith("_")] + ["DType", "set_default", *_FUNCTIONS])

# Numba loads its extensions when it first compiles, which is after it has determined the types
# of that call's arguments. Arrays have to be registered before that.
_watch.when_imported("numba", "usmbridge.numba")

# A Dask worker can receive an Array before it imports this package.
_watch.when_imported("distributed", "usmbridge._dask_frames")

# multiprocessing sends Arrays by handle. Its fork server must not fork a process that runs Go.
_watch.when_imported("multiprocessing.reduction", "usmbridge._processes:reduction")
_watch.when_imported("multiprocessing.util", "usmbridge._processes:util")
_watch.when_imported("multiprocessing.forkserver", "usmbridge._processes:forkserver")
_watch.when_imported("multiprocessing.popen_spawn_posix", "usmbridge._processes:popen_spawn_posix")
_watch.when_imported("multiprocessing.popen_forkserver", "usmbridge._processes:popen_forkserver")

# joblib's workers send Arrays by handle, too.
_watch.when_imported("joblib.externals.loky.backend.reduction", "usmbridge._processes:loky")
_watch.when_imported("loky.backend.reduction", "usmbridge._processes:loky")


def __getattr__(name):
    from usmbridge._attributes import find
    return find(name)


def __dir__():
    from usmbridge._attributes import names
    return names()
