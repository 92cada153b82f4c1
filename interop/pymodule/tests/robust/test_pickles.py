"""Invalid pickles: every argument of _unpickle, pickles that are cut and changed, buffers of other sizes and kinds, and
buffers that change. The result is an array on the given memory, or the right error."""

import ctypes as ct
import io
import math
import pickle
import pickletools

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target
from robust.test_values import ML, NUMPYS

ERRORS = (TypeError, ValueError, OverflowError, BufferError, LookupError, AttributeError, MemoryError, EOFError, pickle.UnpicklingError, ImportError, UnicodeError, RecursionError)


class Pool(io.BytesIO):
    """Loads only the names of the module's pickles; other code in a pickle is not covered."""


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "usmbridge" and name in ("_unpickle", "DType"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(name)


def argument(r, i):
    """Returns the i-th argument, mostly of the right kind."""
    wild = [None, -1, 1 << 64, "", "\0", "x" * 3000, b"", (), [], {}, 1.5, True, "\udc80", object, ("make", r.choice(["raise", "index", "name"]))]
    if strategies.rarely(r, 7):
        return r.choice(wild)
    return [
        lambda: r.choice([("bytes", size(r)), ("bytearray", size(r)), ("readonly", size(r)), ("array", size(r)), ("pickle buffer", size(r)), ("strided", size(r)), ("floats", size(r)), ("released", size(r))]),
        lambda: r.choice(NUMPYS + ML + ["int1", "complex32", "float128", "<f4", "O"]),
        lambda: strategies.times(r, r.randint(0, 4), strategies.extent) if not strategies.rarely(r, 20) else strategies.times(r, r.choice([63, 64, 65]), lambda r: 1),
        lambda: r.choice(["C", "F", "C", "F", "K"]), lambda: r.choice([False, False, True]),
        lambda: r.choice([None, None, None, "device", "shared", "host", "other"]),
        lambda: r.choice([None, None, None, filter_string(), "host", "opencl:gpu:99", ""]), lambda: r.choice([False, True]),
    ][i]()


def size(r):
    return r.choice([None, None, None, None, 0, 1, 7, 8, 24, 4096])


def filter_string():
    d = memory.sycl()
    return d.filter_string if d else "opencl:cpu:0"


def example(r):
    if not r.randrange(3):
        return {"call": [argument(r, i) for i in range(8)] if not strategies.rarely(r, 30) else [argument(r, i) for i in range(r.randint(0, 7))]}
    cuts = strategies.times(r, r.randint(0, 3), lambda r: (r.choice(["cut", "byte", "remove", "double", "swap"]), r.randrange(1 << 12), r.randrange(256)))
    return {"dtype": r.choice(NUMPYS + ML), "shape": strategies.times(r, r.randint(0, 3), lambda r: r.randint(0, 4)), "protocol": r.randint(0, 5), "band": r.choice([True, False]),
            "place": r.choice(("host",) + (("shared", "device") if memory.sycl() else ())), "changes": cuts,
            "buffers": r.choice([None, None, [], ["bytes"], ["released"], ["strided"], ["floats"], ["pickle buffer"], ["bytes", "bytes"]]), "size": size(r)}


class Made:
    def __init__(self, what):
        self.what = what

    def __index__(self):
        if self.what == "raise":
            raise LookupError("mine")
        return 1

    __bool__ = __index__

    @property
    def name(self):
        return "float32" if self.what == "name" else self.__index__()


def buffer(what, size):
    """Returns a buffer of a kind, and the memory (address, size) that an array can use without a copy."""
    whole = bytearray(size)
    if what == "bytes":
        return bytes(whole)
    if what == "bytearray":
        return whole
    if what == "readonly":
        return memoryview(bytes(whole))
    if what == "array":
        return ub.zeros(size, "uint8", device="host")
    if what == "pickle buffer":
        return pickle.PickleBuffer(ub.zeros(size, "uint8", device="host"))
    if what == "released":
        a = ub.zeros(size, "uint8", device="host")
        b = pickle.PickleBuffer(a)
        a.release()
        return b
    if what == "strided":
        return memoryview(bytearray(2 * size))[::2]
    return memoryview(bytearray(4 * size)).cast("f") if size else memoryview(b"").cast("b")


def wanted(call):
    """Returns the bytes of a call's array, if the model knows them."""
    try:
        bits = oracles.BITS[call[1]] if call[1] != "int1" else 1
        if call[4] and bits < 8:
            bits = 8
        n = (math.prod(call[2]) * bits + 7) // 8
        return n if 0 <= n < 1 << 16 else 16
    except (TypeError, KeyError):
        return 16


def check(a, about):
    if not isinstance(a, ub.Array):
        return
    oracles.equal((a.size, a.ndim), (math.prod(a.shape), len(a.shape)), "an array and its shape", about)
    if all(n < 1 << 12 for n in a.shape):
        oracles.equal(len(str(a.tolist())) > 0, True, "a list", about)
    b = a.copy()
    oracles.equal((b.shape, b.nbytes, str(b.dtype)), (a.shape, a.nbytes, str(a.dtype)), "a copy", about)
    if a.usm_type != "device" and a.nbytes:
        ct.string_at(a._pointer, a.nbytes)
    if not a.readonly and a.size and str(a.dtype) != "float8_e8m0fnu":
        a.fill(0)
        if any(v != 0 for v in a.reshape(-1).tolist()):
            raise AssertionError(f"zeros were written: {a} of {about!r}")


def call(e):
    args = [Made(x[1]) if isinstance(x, tuple) and len(x) == 2 and x[0] == "make" else x for x in e["call"]]
    if args and isinstance(args[0], tuple) and len(args[0]) == 2:
        what, n = args[0]
        args[0] = buffer(what, wanted(e["call"] + [False] * 8) if n is None else n)
    return ub._unpickle(*args)


def changed(data, changes):
    for what, at, byte in changes:
        at %= max(1, len(data))
        if what == "cut":
            data = data[:at]
        elif what == "byte":
            data = data[:at] + bytes([byte]) + data[at + 1 :]
        elif what == "remove":
            data = data[:at] + data[at + 1 :]
        elif what == "double":
            data = data[:at] + data[at : at + byte % 16] + data[at:]
        else:
            ops = [op[2] for op in pickletools.genops(data)] if data.endswith(b".") and not data[:-1].endswith(b".") and "".join(c[0] for c in changes) == "swap" else []
            if len(ops) > 3:
                i = ops[1 + byte % (len(ops) - 2)]
                data = data[:at] + data[i : i + 8] + data[at + 8 :]
    return data


def load(e):
    place = {"device": "host"} if e["place"] == "host" else {"usm_type": e["place"]}
    try:
        a = ub.ones(e["shape"], e["dtype"], **place)
    except OverflowError:
        return None
    buffers = [] if e["band"] and e["protocol"] == 5 else None
    data = pickle.dumps(a, e["protocol"], buffer_callback=None if buffers is None else buffers.append)
    given = buffers
    if e["buffers"] is not None:
        given = [buffer(what, a.nbytes if e["size"] is None else e["size"]) for what in e["buffers"]]
    b = Unpickler(Pool(changed(data, e["changes"])), buffers=given).load()
    if not e["changes"] and given is buffers:
        oracles.equal((b.shape, str(b.dtype), b.tolist(), b.usm_type), (a.shape, str(a.dtype), a.tolist(), a.usm_type), "from a pickle", e)
    return b


@target(example)
def test_pickles(e):
    try:
        a = call(e) if "call" in e else load(e)
    except ERRORS:
        return
    check(a, e)
