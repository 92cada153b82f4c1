"""Invalid pickles: pickles that are cut and changed, and buffers of other sizes and kinds. The result is an array on the
given memory, or an error; test_pickle.py has each argument of _unpickle."""

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


def example(r):
    cuts = strategies.times(r, r.randint(0, 3), lambda r: (r.choice(["cut", "byte", "remove", "double", "swap"]), r.randrange(1 << 12), r.randrange(256)))
    return {"dtype": r.choice(NUMPYS + ML), "shape": strategies.times(r, r.randint(0, 3), lambda r: r.randint(0, 4)), "protocol": r.randint(0, 5), "band": r.choice([True, False]),
            "place": r.choice(("host",) + (("shared", "device") if memory.sycl() else ())), "changes": cuts,
            "buffers": r.choice([None, None, [], ["bytes"], ["released"], ["strided"], ["floats"], ["pickle buffer"], ["bytes", "bytes"]]), "size": r.choice([None, None, None, None, 0, 1, 7, 8, 24, 4096])}


def buffer(what, size):
    """Returns a buffer of a kind."""
    whole = bytearray(size)
    if what == "bytes":
        return bytes(whole)
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
        a = load(e)
    except ERRORS:
        return
    check(a, e)
