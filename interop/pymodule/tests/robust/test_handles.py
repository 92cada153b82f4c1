"""Handles of arrays for other processes: cut, changed, lengthened, revoked, opened twice, in pickles and alone. An unchanged
handle opens the array once; a changed one opens nothing and does not affect the array."""

import io
import math
import pickle
import struct
from multiprocessing.reduction import ForkingPickler

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target
from robust.test_pickles import changed
from usmbridge import _native

# Bytes that are not a handle, an ended handle, and one whose maker cannot be reached.
REFUSALS = (ValueError, ReferenceError, ConnectionError)
PICKLES = (*REFUSALS, TypeError, AttributeError, LookupError, OverflowError, EOFError, MemoryError, ImportError, UnicodeError, RecursionError,
           BufferError, AssertionError, struct.error, pickle.UnpicklingError)
TIMES = [None, 5, 5.0, 1e300, math.inf, -1, -0.0, math.nan, "1", (), 1 << 2000]


class Unpickler(pickle._Unpickler):
    """Loads only the names of the module's pickles. It is Python's implementation: C's allocates gigabytes for the memo of a
    large number."""

    def find_class(self, module, name):
        if module == "usmbridge" and name in ("_share_open", "_unpickle", "DType"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(name)


def example(r):
    changes = strategies.times(r, r.randint(0, 2), lambda r: (r.choice(["cut", "byte", "byte", "byte", "remove", "double"]), r.randrange(1 << 10), r.randrange(256)))
    return {
        "how": r.choice(["handle", "handle", "handle", "pickle", "arguments"]), "changes": changes,
        "before": r.choice(["nothing", "nothing", "open", "revoke", "release", "others"]), "after": r.choice(["again", "revoke", "nothing"]),
        "shape": strategies.times(r, r.randint(0, 3), lambda r: r.randint(0, 4)), "dtype": r.choice(["int8", "float64", "complex64", "bfloat16", "int16"]),
        "shared": r.choice([True, "readonly"]), "view": r.choice(["whole", "whole", "reversed", "transposed", "readonly"]),
        "place": r.choice(("host", "shared") if memory.sycl() else ("host",)),
        "handle": r.choice(["own", "text", "none", "number", "buffer", "long", "empty"]), "usm": r.choice([True, False, 0, 1 << 40, "1", None]),
        "time": r.choice(TIMES),
    }


def made(e):
    place = {"device": "host"} if e["place"] == "host" else {"usm_type": e["place"]}
    a = ub.zeros(e["shape"], e["dtype"], interprocess=e["shared"], **place)
    if a.size:
        a[(0,) * a.ndim] = 1
    return {"whole": lambda: a, "reversed": lambda: a[(slice(None, None, -1),) * a.ndim], "transposed": lambda: a.T, "readonly": a.as_readonly}[e["view"]]()


def same(b, a, e):
    oracles.equal((b.shape, b.strides, str(b.dtype), b.readonly), (a.shape, a.strides, str(a.dtype), a.readonly or e["shared"] == "readonly"), "what was opened", e)
    oracles.equal(b.tolist(), a.tolist(), "its elements", e)


def opens(handle, a, e, good=True):
    """Opens a handle that must open, or must fail."""
    about = f"a handle of {len(handle)} bytes of {e!r}"
    b = oracles.outcome(lambda: _native._share_open(handle, a.usm_type is not None, 5.0), () if good else REFUSALS, about)
    oracles.equal(b is not None, good, "opened", about)
    if good:
        same(b, a, e)


def arguments(handle, a, e):
    """Calls _share_open with arguments of all kinds."""
    given = {"own": handle, "text": "handle", "none": None, "number": 7, "buffer": bytearray(handle), "long": handle * 99, "empty": b""}[e["handle"]]
    try:
        right = e["time"] is None or float(e["time"]) >= 0
    except (TypeError, ValueError, OverflowError):
        right = False
    right = right and not isinstance(e["time"], str) and type(given) is bytes
    call = lambda: _native._share_open(given, e["usm"], e["time"])  # noqa: E731
    b = oracles.outcome(call, REFUSALS if right else (TypeError, ValueError, OverflowError), e)
    if b is not None:
        oracles.equal((right, e["handle"]), (True, "own"), "opened", e)
        same(b, a, e)
    return b is not None


def in_pickle(a, e):
    stream = io.BytesIO()
    ForkingPickler(stream, 5).dump(a)
    data = stream.getvalue()
    other = changed(data, e["changes"])
    if other == data:
        same(oracles.outcome(Unpickler(io.BytesIO(data)).load, (), e), a, e)
        return
    oracles.outcome(Unpickler(io.BytesIO(other)).load, PICKLES, e)
    try:  # for the one opening that is allowed
        Unpickler(io.BytesIO(data)).load()
    except REFUSALS:
        pass


@target(example, 60)
def test_handles(e):
    a = made(e)
    if e["how"] == "pickle":
        in_pickle(a, e)
    else:
        handles = []
        handle = _native._share_export(a, 5.0, handles)
        oracles.equal(handles, [handle], "the list of handles", e)
        opened = False
        if e["before"] == "open":
            opens(handle, a, e)
            opened = True
        elif e["before"] == "revoke":
            _native._share_revoke(handles)
            opened = True
        elif e["before"] == "others":
            others = [_native._share_export(a, 5.0, handles) for _ in range(5)]
            oracles.equal(len(set(handles)), 6, "different handles", e)
            _native._share_revoke(others)
        if e["how"] == "arguments":
            if opened and e["handle"] == "own":
                opens(handle, a, e, False)
            else:
                opened = arguments(handle, a, e) or opened
        else:
            other = changed(handle, e["changes"])
            opens(other, a, e, other == handle and not opened)
            opened = opened or other == handle
        if e["after"] == "again":
            opens(handle, a, e, not opened)  # as if no attempt had been made
            opens(handle, a, e, False)
        _native._share_revoke(handle)
    oracles.equal((_native._share_stats()["unopened"], _native._share_stats()["leases"]), (0, 0), "handles that are left", e)
