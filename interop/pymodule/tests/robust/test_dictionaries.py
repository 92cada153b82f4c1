"""Import by __sycl_usm_array_interface__: hostile objects under every key, checked against the table of errors in
docs/python.md."""

import ctypes as ct
import gc
import math
import sys

import capi
import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target
from robust.test_dlpack import everything

# ---- values that run code when they are looked at ------------------------------------------------------


class Stage:
    """The objects that code which runs during an import can change."""

    def __init__(self, e):
        self.e, self.dictionary, self.holder, self.ran, self.raised = e, None, None, 0, False

    def references(self):
        """Returns the reference count of the holder. It always reads this attribute: from 3.14 on some uses of a local variable
        count and some do not."""
        return sys.getrefcount(self.holder)

    def act(self, action):
        self.ran += 1
        d = self.dictionary
        if action == "raise":
            self.raised = True
            raise LookupError("mine")
        if action == "clear":
            d.clear()
        elif action == "swap":
            d.update(shape=(1,), strides=None, offset=0, typestr="|u1", typedescr=[("", "|u1")])
        elif action == "junk":
            for k in list(d):
                d[k] = object()
        elif action == "drop":
            self.holder.memory = None
            self.holder.__dict__.clear()
        elif action == "collect":
            gc.collect(0)
        elif action == "enter":
            ub.from_usm_array_interface(memory.usm("shared"))
            ub.zeros(3, device="host")


CHANGES = ("clear", "swap", "junk", "drop")
QUIET = (None, None, None, "collect", "enter")


def action(r):
    return r.choice(("raise", *CHANGES)) if strategies.rarely(r, 4) else r.choice(QUIET)


class Index:
    def __init__(self, stage, value, what):
        self.stage, self.value, self.what = stage, value, what

    def __index__(self):
        self.stage.act(self.what)
        return self.value


class Truth(Index):
    def __bool__(self):
        self.stage.act(self.what)
        return bool(self.value)


class Lying:
    """Its methods disagree with its base class; only the base's value is used."""

    def __len__(self):
        return 77

    def __iter__(self):
        raise LookupError("mine")

    def __getitem__(self, i):
        raise LookupError("mine")

    def __eq__(self, other):
        raise LookupError("mine")

    def __hash__(self):
        return 5


class LyingTuple(Lying, tuple):
    pass


class LyingList(Lying, list):
    pass


class LyingText(Lying, str):
    pass


class LyingInt(int):
    def __index__(self):
        return 12345

    __int__ = __index__


class Provider(Index):
    def _get_capsule(self):
        self.stage.act(self.what)
        return self.value()


def is_spec(x):
    return isinstance(x, tuple) and len(x) == 4 and x[0] == "make"


def made(x, stage):
    """Returns the object of a spec ("make", kind, value, action); literals stand for themselves."""
    if is_spec(x):
        _, sort, value, what = x
        value = made(value, stage)
        simple = {"index": Index, "truth": Truth}
        if sort in simple:
            return simple[sort](stage, value, what)
        if sort == "object":
            return object()
        if sort == "queue":
            return memory.queue()
        if sort == "context":
            return memory.queue().sycl_context
        if sort == "other":
            return memory.foreign_queue()
        if sort == "capsule":
            return memory.queue()._get_capsule()
        if sort == "context capsule":
            return memory.queue().sycl_context._get_capsule()
        if sort == "used capsule":
            c = memory.queue()._get_capsule()
            type(memory.queue())(c)
            return c
        if sort == "wrong capsule":
            return capi.py.PyCapsule_New(4096, None, None)
        if sort == "provider":
            return Provider(stage, memory.queue()._get_capsule, what)
        if sort == "bad provider":
            return Provider(stage, lambda: 5, what)
        return {"tuple": LyingTuple, "list": LyingList, "text": LyingText, "int": LyingInt}[sort](value)
    if isinstance(x, (tuple, list)):
        return type(x)(made(v, stage) for v in x)
    return x


ODD = [True, 1.5, float("inf"), "1", b"1", None, [], (), {}, 3j, ("make", "object", None, None)]


def integer(r):
    kind = r.randrange(24)
    if kind < 17:
        return r.choice([0, 1, 1, 2, 3, 4, 8, 64])
    if kind < 19:
        return r.choice([-1, -2, 255, 257, 1 << 31, 1 << 61, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 64, -(1 << 200), 1 << 200])
    if kind < 20:
        return r.choice(ODD)
    if kind < 21:
        return "make", "int", r.choice([0, 1, 2, 4]), None
    return "make", "index", r.choice([0, 1, 2, 3, 4, 1 << 64, "1"]) if strategies.rarely(r, 4) else r.choice([1, 2, 3]), action(r)


def sequence(r, n=None):
    n = r.choice([0, 1, 1, 2, 2, 3, 4]) if n is None else n
    values = strategies.times(r, n, integer)
    kind = r.randrange(12)
    if kind == 10:
        return "make", r.choice(["tuple", "list"]), values, None
    return values if kind < 7 else list(values)


TYPESTRS = ["<f4", "|u1", "<c16", "<i8", "|b1", "=f4", "<f2", "|i4", "=u2", "<c8"]
BAD_TYPESTRS = [">f4", "|O8", "V4", "", "<", "<f", "<f" + "9" * 30, "\0f4", "<f4\0", "é", "\ud800", 5, None, b"<f4", "<M8[ns]", "<f16", "<b2", "f4", "<f3",
                "<F4", "<g4", " <f4", "<f4 ", "<f+4", "<f04", "<i-4", "|S1", "<U1", "<f0", "<i16", "<c4", ">u1", "|v1", "<f４"]
FILTERS = ["cpu", "opencl", "opencl:cpu", "opencl:cpu:0", "0", "host", "", "no:such:thing", "gpu:77", "\ud800", "a" * 3000, "cpu\0", "\0", "opencl:cpu:0:0", "-1", "é"]
SYCLOBJ = ["queue", "queue", "queue", "context", "capsule", "context capsule", "provider", "provider", "other", "used capsule", "wrong capsule", "bad provider", "object"]


def value(r, key, e):
    pick = r.choice
    if key == "version":
        return pick([1, 1, 1, True, ("make", "int", 1, None), 0, 2, -1, 1 << 80, "1", 1.0, None, ("make", "index", 1, action(r))])
    if key == "data":
        flag = pick([False, True, 0, 1, None, "x", ("make", "truth", r.randrange(2), action(r)), ("make", "truth", r.randrange(2), action(r))])
        at = pick([0, 0, 0, 4, 16, 100, 1, -1, -8, 1020, 1024, 1 << 20, "wild", "null", "negative", "huge", ("make", "index", 1, None), 1.5, "text"])
        kind = r.randrange(14)
        pair = ("address", at), flag
        return pair if kind < 9 else list(pair) if kind < 11 else pick([None, 5, "12", {}, (), (1,), (*pair, 2), ("make", "tuple", pair, None), ("make", "list", pair, None)])
    if key == "shape":
        return sequence(r) if r.randrange(6) else pick([None, 5, "5", (1,) * 64, (1,) * 65, {}, {1: 2}])
    if key == "strides":
        n = len(e["shape"]) if isinstance(e.get("shape"), (tuple, list)) and not is_spec(e["shape"]) else 1
        return pick([None, sequence(r, n), sequence(r, n), sequence(r), 5, "x"]) if r.randrange(3) else sequence(r, n)
    if key == "offset":
        return integer(r)
    if key == "typestr":
        return pick(TYPESTRS) if r.randrange(3) else ("make", "text", pick(TYPESTRS), None) if strategies.rarely(r, 4) else pick(BAD_TYPESTRS)
    if key == "typedescr":
        name = e.get("typestr") if isinstance(e.get("typestr"), str) else "<f4"
        return pick([[("", name)], [("", name)], [], None, (("", name),), [("a", name)], [("", "<f8")], [("", name, (2,))], [(5, 5)], [("\ud800", "\ud800")], [()],
                     [("a", [("b", "|u1")])], "x", 5, [5], [("x",)], [("", name), 5], ("make", "list", [("", name)], None), [["", name]]])
    if strategies.rarely(r, 3):
        return pick(FILTERS)
    return "make", pick(SYCLOBJ), None, action(r)


KEYS = ["version", "data", "shape", "strides", "offset", "typestr", "typedescr", "syclobj"]


def example(r):
    """Returns the differences from a valid dictionary; "absent" removes a key."""
    changes = {}
    for key in sorted(r.sample(KEYS, r.choice([0, 1, 1, 2, 2, 3, 4])), key=KEYS.index):
        changes[key] = "absent" if strategies.rarely(r, 12) else value(r, key, changes)
    kind = r.choice(["shared", "device", "host"])
    return {"memory": kind, "owner": r.choice(["known", "unknown"]), "keys": changes, "function": r.choice(["from_usm_array_interface", "asarray"])}


# ---- the model ---------------------------------------------------------------------------------------


class Problem(Exception):
    pass


class Model:
    """Reads the values by the table. errors has the exceptions that are right, if there is one; otherwise facts is set."""

    def __init__(self, keys, base, size, known):
        self.keys, self.base, self.size, self.known, self.errors = keys, base, size, known, set()
        self.changes = False

    def wrong(self, kind):
        self.errors.add(kind)
        raise Problem

    def read(self, key, f):
        try:
            return f(self.keys.get(key, "absent"))
        except Problem:
            return None

    def watch(self, what):
        if what == "raise":
            self.wrong(LookupError)
        self.changes |= what in CHANGES

    def items(self, x, kind=TypeError):
        if is_spec(x) and x[1] in ("tuple", "list"):
            x = x[2]
        if is_spec(x) or not isinstance(x, (tuple, list)):
            self.wrong(kind)
        return list(x)

    def integer(self, x):
        if is_spec(x):
            _, sort, v, what = x
            if sort == "index":
                self.watch(what)
                if isinstance(v, str):
                    self.wrong(TypeError)
                x = v
            elif sort == "int":
                # Its own __index__ would be valid too, but the number is its value.
                x = v
            else:
                self.wrong(TypeError)
        if not isinstance(x, int):
            self.wrong(TypeError)
        if not oracles.fits(x):
            self.wrong(OverflowError)
        return int(x)

    def integers(self, x):
        values = self.items(x)
        if len(values) > 64:
            self.wrong(ValueError)
        result, bad = [], False
        for v in values:  # one error is raised; each of theirs is right
            try:
                result.append(self.integer(v))
            except Problem:
                bad = True
        if bad:
            raise Problem
        return result

    def version(self, x):
        if x == "absent":
            self.wrong(ValueError)
        if is_spec(x) and x[1] == "index":
            self.watch(x[3])
        if is_spec(x) and x[1] in ("int", "index"):
            x = x[2]
        if is_spec(x) or not isinstance(x, int):
            self.wrong(TypeError)
        if x != 1:
            self.wrong(ValueError)

    def data(self, x):
        if x is None or x == "absent":
            self.wrong(ValueError)
        pair = self.items(x)
        if len(pair) != 2:
            self.wrong(ValueError)
        (_, at), flag = (pair[0] if isinstance(pair[0], tuple) and pair[0][:1] == ("address",) else ("address", "text")), pair[1]
        if is_spec(flag):
            if at in ("negative", "huge", "text") or isinstance(at, float):
                self.errors.update({LookupError} if flag[3] == "raise" else ())
            else:
                self.watch(flag[3])
            flag = flag[2]
        if at == "text" or isinstance(at, float):
            self.wrong(TypeError)
        if at in ("negative", "huge"):
            self.wrong(OverflowError)
        if at in ("null", "wild") or is_spec(at):
            self.wrong(ValueError)
        return self.base + at, bool(flag)

    def shape(self, x):
        if x is None or x == "absent":
            self.wrong(ValueError)
        values = self.integers(x)
        if any(v < 0 for v in values):
            self.wrong(ValueError)
        return values

    def strides(self, x):
        return None if x is None or x == "absent" else self.integers(x)

    def offset(self, x):
        return 0 if x is None or x == "absent" else self.integer(x)

    def typestr(self, x):
        if x is None or x == "absent":
            self.wrong(ValueError)
        if is_spec(x) and x[1] == "text":
            x = x[2]
        if not isinstance(x, str):
            self.wrong(TypeError)
        if x[:1] not in ("<", "=", "|") or x[1:] not in oracles.TYPESTRS or not x:
            self.wrong(ValueError)
        return oracles.TYPESTRS[x[1:]]

    def typedescr(self, x):
        if x is None or x == "absent":
            return
        values = self.items(x)
        if not values:
            return
        first = values[0]
        if not isinstance(first, tuple) or len(first) < 2:
            self.wrong(TypeError)
        name = self.keys.get("typestr")
        name = name[2] if is_spec(name) else name
        if len(values) == 1 and len(first) == 2 and first[1] == name and not first[0]:
            return
        if len(values) > 1 and not all(isinstance(v, tuple) for v in values):
            self.errors.add(TypeError)
        if len(values) == 1 and len(first) == 2 and first[0] == "" and isinstance(first[1], str) and isinstance(name, str) and \
                first[1][:1] in ("<", "=", "|") and first[1][1:] == name[1:]:
            return  # one type in two spellings
        self.errors.add(ValueError)
        raise Problem

    def syclobj(self, x):
        if x is None or x == "absent":
            self.wrong(ValueError)
        if isinstance(x, str):
            if x not in ("cpu", "opencl", "opencl:cpu", "opencl:cpu:0", "0"):
                self.wrong(ValueError)
            return
        if not is_spec(x):
            self.wrong(TypeError)
        sort = x[1]
        if sort in ("provider", "bad provider"):
            self.watch(x[3])
        if sort in ("object", "bad provider"):
            self.wrong(TypeError)
        if sort in ("other", "used capsule", "wrong capsule"):
            self.wrong(ValueError)

    def run(self):
        self.read("version", self.version)
        data, shape = self.read("data", self.data), self.read("shape", self.shape)
        strides, offset = self.read("strides", self.strides), self.read("offset", self.offset)
        name = self.read("typestr", self.typestr)
        self.read("typedescr", self.typedescr)
        self.read("syclobj", self.syclobj)
        if shape is not None and strides is not None and len(shape) != len(strides):
            self.errors.add(ValueError)
        if self.errors or None in (data, shape, offset, name):
            return None
        bits = oracles.BITS[name]
        try:
            oracles.layout(shape, strides, bits, ValueError)
        except oracles.Refused:
            self.errors.add(ValueError)
            return None
        if 0 in shape:  # no element is accessed, and strides and an offset can be any
            try:
                oracles.layout(tuple(max(1, n) for n in shape), strides, bits, ValueError)
                assert oracles.fits(offset * bits)
            except (oracles.Refused, AssertionError):
                return "either"
        filled = tuple(oracles.c_order(shape) if strides is None else strides)
        lo, hi = oracles.span(shape, filled, bits)
        first = data[0] + offset * (bits // 8)
        facts = oracles.Facts(tuple(shape), None if strides is None and 0 in shape else filled, name, first if 0 not in shape else None, data[1], bits)
        lo, hi = first + lo, first + hi
        if not (self.base <= lo and hi <= self.base + self.size):
            if 0 in shape or not self.known and memory.pointer_type(lo) and memory.pointer_type(lo) == memory.pointer_type(hi - 1):
                return "either"  # the model does not know
            self.errors.add(ValueError)
            return None
        if 0 in shape and hi == self.base + self.size:
            return "either"
        return facts


class Holder:
    pass


class Known(Holder):
    """Looks like dpctl's memory, whose size is looked up; its flag means the opposite."""


Known.__module__, Known.__qualname__ = "dpctl.memory._memory", "MemoryUSMShared"

ERRORS = (TypeError, ValueError, OverflowError, BufferError, LookupError)


def resolved(x, base):
    """Fills in addresses."""
    if isinstance(x, tuple) and len(x) == 2 and x[0] == "address":
        named = {"wild": 0x123456789000, "null": 0, "negative": -8, "huge": 1 << 64, "text": "12"}
        at = x[1]
        return named[at] if isinstance(at, str) else at if is_spec(at) or isinstance(at, float) else base + at
    if isinstance(x, (tuple, list)):
        return type(x)(resolved(v, base) for v in x)
    return x


@target(example, 300)
def test_dictionaries(e):
    if memory.sycl() is None:
        return
    owner = memory.usm(e["memory"], 1024)
    base, size = owner._pointer, owner.nbytes
    stage = Stage(e)
    h = stage.holder = (Known if e["owner"] == "known" else Holder)()
    h.memory, h._pointer, h.nbytes = owner, base, size
    keys = {"version": 1, "data": (("address", 0), False), "shape": (4,), "typestr": "<f4", "syclobj": ("make", "queue", None, None), **e["keys"]}
    model = Model({k: v for k, v in keys.items() if v != "absent"}, base, size, e["owner"] == "known")
    want = model.run()
    d = stage.dictionary = {k: made(resolved(v, base), stage) for k, v in keys.items() if not (isinstance(v, str) and v == "absent")}
    h.__sycl_usm_array_interface__ = d
    before = stage.references()
    try:
        a = getattr(ub, e["function"])(h)
    except ERRORS as error:
        if want is None and not model.changes:
            kinds = tuple(model.errors)
            if not isinstance(error, kinds):
                raise AssertionError(f"raised {type(error).__name__}: {error}; right are {kinds} for {e!r}") from error
        elif want == "either" and not model.changes:
            oracles.equal(type(error), ValueError, "the error", e)
        elif isinstance(want, oracles.Facts) and not model.changes:
            raise AssertionError(f"refused with {type(error).__name__}: {error} for {e!r}") from error
        elif isinstance(error, LookupError) and not stage.raised:
            raise
        del error
        memory.settled()
        oracles.equal(stage.references(), before, "references after an error", e)
        return
    if model.changes:  # whatever it was at the time, it lies within the memory
        lo, hi = oracles.span(a.shape, a.strides, max(8, a.itemsize * 8))
        if a.size and e["owner"] == "known" and not base <= a._pointer + lo <= a._pointer + hi <= base + size:
            raise AssertionError(f"beyond the allocation: {a.shape, a.strides} for {e!r}")
        oracles.equal(a.size, math.prod(a.shape), "size", e)
    elif want is None:
        raise AssertionError(f"taken, though it must be refused with {model.errors}: {a.shape, a.strides, str(a.dtype)} for {e!r}")
    elif want != "either":
        want.readonly ^= e["owner"] == "known"
        want.check(a, e)
        oracles.equal(a.usm_type, e["memory"], "usm_type", e)
        if e["memory"] != "device" and a.size and a.nbytes <= 1024:
            c = a.copy()
            host = c if c.usm_type is None else c.to_device("host")
            oracles.equal(int.from_bytes(ct.string_at(host._pointer, host.nbytes), "little"), want.elements(ct.string_at), "elements", e)
            everything(a)
    del a
    memory.settled()
    oracles.equal(stage.references(), before, "references at the end", e)
