"""The buffer protocol: valid and invalid buffers of other exporters, and exports, compared with NumPy's."""

import ctypes as ct
import importlib
import math

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target


class PyBuffer(ct.Structure):
    _fields_ = [
        ("buf", ct.c_void_p), ("obj", ct.c_void_p), ("len", ct.c_ssize_t), ("itemsize", ct.c_ssize_t),
        ("readonly", ct.c_int), ("ndim", ct.c_int), ("format", ct.c_char_p), ("shape", ct.POINTER(ct.c_ssize_t)),
        ("strides", ct.POINTER(ct.c_ssize_t)), ("suboffsets", ct.POINTER(ct.c_ssize_t)), ("internal", ct.c_void_p),
    ]


get_buffer = ct.PYFUNCTYPE(ct.c_int, ct.py_object, ct.POINTER(PyBuffer), ct.c_int)(("PyObject_GetBuffer", ct.pythonapi))
release_buffer = ct.PYFUNCTYPE(None, ct.POINTER(PyBuffer))(("PyBuffer_Release", ct.pythonapi))


# ---- an exporter of any Py_buffer ----------------------------------------------------------------


class Slot(ct.Structure):
    _fields_ = [("slot", ct.c_int), ("function", ct.c_void_p)]


class Spec(ct.Structure):
    _fields_ = [("name", ct.c_char_p), ("basicsize", ct.c_int), ("itemsize", ct.c_int), ("flags", ct.c_uint), ("slots", ct.POINTER(Slot))]


GET = ct.PYFUNCTYPE(ct.c_int, ct.c_void_p, ct.POINTER(PyBuffer), ct.c_int)
RELEASE = ct.PYFUNCTYPE(None, ct.c_void_p, ct.POINTER(PyBuffer))
current = {}


def fill(self, view, flags):
    e, v = current["e"], view[0]
    current["asked"] += 1
    at, strides = current["shape"], current["strides"]
    v.buf, v.len, v.itemsize, v.readonly, v.ndim = current["buf"], e["len"], e["itemsize"], e["readonly"], e["ndim"]
    v.format = e["format"]
    pointer = ct.POINTER(ct.c_ssize_t)
    v.shape = ct.cast(None if e["shape_null"] else at, pointer)
    v.strides = ct.cast(None if e["strides"] is None else strides, pointer)
    v.suboffsets = ct.cast(at if e["suboffsets"] else None, pointer)
    v.internal = None
    ct.pythonapi.Py_IncRef(ct.c_void_p(self))
    v.obj = self
    return 0


def empty(self, view):
    current["released"] += 1


functions = GET(fill), RELEASE(empty)
slots = (Slot * 3)(Slot(1, ct.cast(functions[0], ct.c_void_p)), Slot(2, ct.cast(functions[1], ct.c_void_p)), Slot(0, None))
spec = Spec(b"robust.Exporter", object.__basicsize__, 0, 1 << 10 | 1 << 18, slots)  # BASETYPE | DEFAULT
from_spec = ct.PYFUNCTYPE(ct.py_object, ct.POINTER(Spec))(("PyType_FromSpec", ct.pythonapi))
Exporter = from_spec(ct.byref(spec))

LETTERS = {"?": 1, "b": 1, "B": 1, "c": 1, "h": 2, "H": 2, "i": 4, "I": 4, "l": 8, "L": 8, "q": 8, "Q": 8, "n": 8, "N": 8,
           "e": 2, "f": 4, "d": 8, "Zf": 8, "Zd": 16}
NAMES = {"?": "bool", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32", "l": "int64",
         "L": "uint64", "q": "int64", "Q": "uint64", "n": "int64", "N": "uint64", "e": "float16", "f": "float32", "d": "float64",
         "Zf": "complex64", "Zd": "complex128"}


FORMATS = [None, b">i", b"!b", b"<f", b"=d", b"@l", b"T{i:a:}", b"3i", b"Z", b"", b"g", b"P", b"O", b"s", b"w", b"ZB", b"F", b"D", b"\xff", b"?\xe9"]


def clamped(n):
    return max(oracles.MIN64, min(oracles.MAX64, n))


def export(r):
    shape, strides = strategies.shape_and_strides(r)
    letter = r.choice(sorted(LETTERS))
    size = LETTERS[letter]
    rarely = strategies.rarely
    return {
        "format": r.choice(FORMATS) if rarely(r, 6) else letter.encode(),
        "itemsize": r.choice([r.randint(-2, 17), strategies.int64(r)]) if rarely(r, 14) else size,
        "ndim": r.choice([-1, -(1 << 31), -70, 65, (1 << 31) - 1]) if rarely(r, 25) else len(shape),
        "shape": shape, "shape_null": rarely(r, 25),
        "strides": None if strides is None else tuple(clamped(s * size) + (1 if rarely(r, 60) and s < 1 << 50 else 0) for s in strides),
        "len": r.choice([strategies.int64(r), r.randint(-4, 64)]) if rarely(r, 14) else clamped(math.prod(shape) * size),
        "readonly": r.choice([0, 1, 1, 0, 7]), "suboffsets": rarely(r, 25),
        "at": r.randint(0, 1024) if rarely(r, 6) else r.randint(0, 64) * 16, "null": rarely(r, 25),
    }


def is_swapped(e):
    """Reports whether the elements have the other byte order, and are copied."""
    return (e["format"] or b"")[:1] in (b">", b"!") and e["itemsize"] != 1


def export_model(e, address):
    """Returns the facts of a buffer or Refused; None if an exporter's lie cannot be detected, or for a copy."""
    no = oracles.Refused(BufferError, TypeError)
    form = (e["format"] if e["format"] is not None else b"B").decode("latin-1")
    letter = form[1:] if form[:1] in tuple("@=<>!|") else form
    if letter in ("F", "D"):
        letter = {"F": "Zf", "D": "Zd"}[letter]
    if letter not in LETTERS or LETTERS[letter] != e["itemsize"]:
        # Formats whose size is not standard but known to the array libraries depend on the exporter.
        return no if letter not in LETTERS or e["itemsize"] not in (1, 2, 4, 8, 16) else None
    if e["suboffsets"] or not 0 <= e["ndim"] <= 64:
        return no
    if e["shape_null"] and e["ndim"] > 1:
        return None
    shape = tuple(e["shape"][: e["ndim"]]) + (0,) * (e["ndim"] - len(e["shape"]))
    if e["shape_null"] and e["ndim"] == 1:
        shape = (e["len"] // e["itemsize"] if e["len"] >= 0 else -(-e["len"] // e["itemsize"]),)
    if any(n < 0 for n in shape):
        return no
    strides = None
    if e["strides"] is not None:
        given = tuple(e["strides"][: e["ndim"]]) + (0,) * (e["ndim"] - len(e["strides"]))
        if any(s % e["itemsize"] for s in given):
            return no
        strides = tuple(s // e["itemsize"] for s in given)
    n = 1
    for extent in shape:
        n *= extent
    fields = dict(versioned=True, version=(1, 3), flags=int(e["readonly"] != 0), ndim=e["ndim"], device=(1, 0), shape=shape,
                  strides=strides, data=address, byte_offset=0, dtype=next((c, b, 1) for (c, b), name in oracles.NAMES.items() if name == NAMES[letter]))
    want = oracles.attempt(oracles.tensor, fields, 0)
    if isinstance(want, oracles.Refused):
        return no
    # By the standard len is the product of the shape; another value is a lie.
    return want if not is_swapped(e) and e["len"] == n * e["itemsize"] else None


@target(export, 1500)
def test_exporters(e):
    current.update(e=e, asked=0, released=0, shape=(ct.c_ssize_t * 64)(*e["shape"]), strides=(ct.c_ssize_t * 64)(*(e["strides"] or ())))
    current["buf"] = address = 0 if e["null"] else memory.window().address + e["at"]
    want = export_model(e, address)
    x = Exporter()
    try:
        if want is None:
            a = oracles.outcome(lambda: ub.asarray(x), (BufferError, TypeError, ValueError), e)
        else:
            a = oracles.expect(lambda: ub.asarray(x), want, e)
        oracles.equal(current["released"], 0 if a is not None and not is_swapped(e) else current["asked"], "releases", e)
        if a is not None and want is not None and want.address is not None:
            lo, hi = want.span()
            if memory.window().address <= lo and hi <= memory.window().address + memory.window().size and a.size <= 512 and a.ndim < 9:
                c = a.copy()
                oracles.equal(int.from_bytes(ct.string_at(c._pointer, c.nbytes), "little"), want.elements(ct.string_at), "elements", e)
                del c
        del a
        memory.settled()
        oracles.equal(current["released"], current["asked"], "releases at the end", e)
    finally:
        current["e"] = None


# ---- honest exporters: NumPy's arrays and memoryviews of them -------------------------------------

DTYPES = [*"?bBhHiIlLqQefdFD", [("a", "i4"), ("b", "f8")]]


def array(r):
    def cut(r):
        bound = lambda: r.choice([None, r.randint(-5, 5)])  # noqa: E731
        return bound(), bound(), r.choice([None, 1, 2, -1, -2, 3])

    return {
        "shape": strategies.times(r, r.randint(0, 4), lambda r: r.randint(0, 5)), "ones": r.choice([28, 60]) if strategies.rarely(r, 12) else 0,
        "dtype": r.choice(DTYPES), "cut": strategies.times(r, r.randint(0, 4), cut), "order": r.choice("CFT"),
        "readonly": bool(r.randrange(2)), "flags": r.randrange(0x200),
    }


def made(e, np):
    dtype = np.dtype(e["dtype"])
    count = 1
    for n in e["shape"]:
        count *= n
    x = np.frombuffer(bytes(i * 11 & 0x3F for i in range(count * dtype.itemsize)), np.uint8).copy()
    x = x.view(dtype).reshape(e["shape"])
    if e["order"] != "C":
        x = np.asfortranarray(x) if e["order"] == "F" else x.T
    x = x.reshape(x.shape + (1,) * min(e["ones"], 64 - x.ndim)) if e["ones"] else x
    x = x[(*(slice(*c) for c in e["cut"][: x.ndim]), ...)]
    if dtype.names:
        x = x[dtype.names[-1]]  # strides that are not multiples of the item size
    x.flags.writeable = not e["readonly"]
    return x


# ---- out: the same requests to NumPy ---------------------------------------------------------------

ASKS = [0, 1, 4, 8, 0x18, 0x1C, 0x38, 0x58, 0x98, 0x118, 0x11C, 0x11D, 0x11, 0x19, 0x1D]


def ask(x, flags):
    v = PyBuffer()
    try:
        get_buffer(x, ct.byref(v), flags)
    except (BufferError, ValueError):  # NumPy raises ValueError for a read-only array
        return None
    n = v.ndim
    got = (v.len, v.itemsize, v.readonly, n, v.format, tuple(v.shape[:n]) if v.shape else None, tuple(v.strides[:n]) if v.strides else None)
    address = v.buf
    release_buffer(ct.byref(v))
    return got, address


@target(array)
def test_buffers_out(e):
    np = importlib.import_module("numpy")
    x = made(e, np)
    if any(s % x.itemsize for s in x.strides) or x.ctypes.data % x.itemsize and x.size:
        return
    a = ub.from_dlpack(x)
    for flags in [e["flags"], *ASKS]:
        ours, theirs = ask(a, flags), ask(x, flags)
        about = hex(flags), e
        if theirs is None or ours is None:
            oracles.equal(ours is None, theirs is None, "refused", about)
            continue
        got, want = list(ours[0]), list(theirs[0])
        equivalent = {b"q": b"l", b"Q": b"L"}
        got[4], want[4] = equivalent.get(got[4], got[4]), equivalent.get(want[4], want[4])
        if want[6] is not None and got[6] is not None:
            live = [i for i, n in enumerate(x.shape) if n > 1] if x.size else []
            got[6], want[6] = [got[6][i] for i in live], [want[6][i] for i in live]
        if not flags & 8:  # no shape was requested: one run of bytes, which NumPy calls 0-d and a memoryview 1-d
            want[3] = 1
        # 0-d: NULL and an empty array are equivalent
        for k in (5, 6):
            if x.ndim == 0:
                got[k] = want[k] = None
        oracles.equal(got, want, "buffer", about)
        if x.size:
            oracles.equal(ours[1], theirs[1], "address", about)
