"""SYCL unified shared memory shared without copies, by __sycl_usm_array_interface__ and DLPack."""

import sys as _sys

# A free-threaded build ("python3.14t") has no stable ABI and does not look at files that
# have it: without this, the C module would just not be there.
if "t" in getattr(_sys, "abiflags", ""):
    raise ImportError(
        "usmbridge needs the stable ABI, which this Python, a free-threaded build "
        f"({_sys.version.split()[0]}, ABI flags {_sys.abiflags!r}), has not: use the ordinary build of Python {_sys.version_info[0]}.{_sys.version_info[1]}",
        name=__name__, path=__file__)

from usmbridge import _native, _watch  # noqa: E402
from usmbridge._native import *  # noqa: E402, F403
from usmbridge._native import __version__, _info, _set_limit, _share_open, _unpickle  # noqa: E402, F401

__all__ = sorted(name for name in vars(_native) if not name.startswith("_"))

# Numba loads its extensions when it first compiles, after it has typed the arguments of that
# call. By then it must know Arrays.
_watch.when_imported("numba", "usmbridge.numba")

# Dask's workers learn what Arrays are from the first that comes.
_watch.when_imported("distributed", "usmbridge._dask_frames")

# multiprocessing sends Arrays by handle, and its fork server needs to know of Go.
_watch.when_imported("multiprocessing.reduction", "usmbridge._processes:reduction")
_watch.when_imported("multiprocessing.util", "usmbridge._processes:util")
_watch.when_imported("multiprocessing.forkserver", "usmbridge._processes:forkserver")
_watch.when_imported("multiprocessing.popen_spawn_posix", "usmbridge._processes:popen_spawn_posix")
_watch.when_imported("multiprocessing.popen_forkserver", "usmbridge._processes:popen_forkserver")


def __getattr__(name):
    # Numba's entry point is usmbridge:numba.init, which imports the package first: see _watch.bring.
    if name == "share" or (name == "numba" and "numba" in _sys.modules):
        full = f"usmbridge.{name}"
        __import__(full)
        return _sys.modules[full]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
