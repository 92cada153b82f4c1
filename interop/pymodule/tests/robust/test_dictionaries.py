"""Import by __sycl_usm_array_interface__: any layout, and wrong values under any keys. FORMS has the ways to write a right
value, and WRONG values with their errors, as docs/python-exchange.md lists them. test_switches.py has the changes during
an import."""

import ctypes as ct
import sys
import types

import pytest

import capi
import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target
from robust.strategies import Number, Truth
from robust.test_dlpack import everything

# ---- values that run code when they are looked at ------------------------------------------------------


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


class Provider(Number):
    def _get_capsule(self):
        return self.value()


def used_capsule():
    c = memory.queue()._get_capsule()
    type(memory.queue())(c)
    return c


# ---- the tables ------------------------------------------------------------------------------------------

ABSENT = object()
SEQUENCES = [
    lambda v: v, lambda v: list(v), lambda v: LyingTuple(v), lambda v: LyingList(v), lambda v: tuple(map(LyingInt, v)),
    lambda v: tuple(Number(n) for n in v),
]
FORMS = {
    "version": [lambda v: v, lambda v: True, lambda v: LyingInt(v), lambda v: Number(v)],
    "data": [lambda v: v, lambda v: list(v), lambda v: LyingTuple(v), lambda v: LyingList(v), lambda v: (v[0], int(v[1])),
             lambda v: (Number(v[0]), v[1]), lambda v: (v[0], Truth(v[1]))],
    "shape": SEQUENCES,
    "strides": SEQUENCES,
    "offset": [lambda v: v, lambda v: LyingInt(v), lambda v: Number(v)],
    "typestr": [lambda v: v, lambda v: LyingText(v), lambda v: "=" + v[1:], lambda v: "|" + v[1:]],
    "typedescr": [lambda v: ABSENT, lambda v: None, lambda v: [], lambda v: v, lambda v: tuple(v), lambda v: LyingList(v)],
    "syclobj": [lambda v: v, lambda v: v.sycl_context, lambda v: v._get_capsule(), lambda v: v.sycl_context._get_capsule(),
                lambda v: Provider(v._get_capsule), lambda v: memory.sycl().filter_string],
}


def rows(error, *values):
    return [(value if callable(value) else lambda value=value: value, error) for value in values]


NOT_INTEGERS = (1.5, float("inf"), "1", b"1", {}, 3j, object())
INTEGERS = [
    *rows(TypeError, 5, "5", {}, {1: 2}, lambda: (Number("1"),), *((x,) for x in NOT_INTEGERS)), *rows(ValueError, (1,) * 65),
    *rows(ValueError, (1 << 63,), (1 << 64,), (-(1 << 200),), lambda: [Number(1 << 64)]),
]
WRONG = {
    "version": [*rows(TypeError, *NOT_INTEGERS, None, lambda: Number("1")), *rows(ValueError, ABSENT, 0, 2, -1, 1 << 80, -(10**30), (1 << 64) + 1)],
    "data": [
        *rows(TypeError, 5, "12", {}, ("12", False), (1.5, False), (None, False)), *rows(OverflowError, (-8, False), (1 << 64, True)),
        *rows(ValueError, ABSENT, None, (), [], (1,), (1, False, 2), (0, False), (0x123456789000, False), (1, True), ((1 << 64) - 1, False)),
    ],
    "shape": [*INTEGERS, *rows(ValueError, ABSENT, None, (-1,), (1 << 62, 8))],
    "strides": [*INTEGERS, *rows(ValueError, (1,) * 9, [1] * 64)],
    "offset": [*rows(TypeError, *NOT_INTEGERS, (1,)), *rows(ValueError, 1 << 63, -(1 << 200))],
    "typestr": [
        *rows(TypeError, 5, b"<f4", ["<f4"]),
        *rows(ValueError, ABSENT, None, *">f4,|O8,V4,,<,<f,<f999999999999999999999,\0f4,\0\0\0,!f4, f4,|V4,<m8,<x4,float32,<f4\0,é,<M8[ns],<f16,<b2,f4,<f3,<F4,<g4, <f4,<f4 ,<f+4,<f04,<i-4,|S1,<U1,<f0,<c4,<f４".split(","), "\ud800"),
    ],
    "typedescr": [
        *rows(TypeError, "x", 5, [5], [()], [("x",)], [["", "<f4"]]),
        *rows(ValueError, [("", "<g4")], [("a", "<f4")], [("", "<f4", (2,))], [(5, 5)], [("\ud800", "\ud800")], [("a", [("b", "|u1")])], [("", "<f4")] * 2),
    ],
    "syclobj": [
        *rows(TypeError, 5, 1.5, (), {}, object(), lambda: Provider(lambda: 5)),
        *rows(ValueError, ABSENT, None, "host", "", "no:such:thing", "gpu:77", "\ud800", "a" * 3000, "cpu\0", "-1", "é", lambda: memory.foreign_queue(),
              lambda: used_capsule(), lambda: capi.py.PyCapsule_New(4096, None, None)),
    ],
}
KEYS = list(WRONG)
ADDRESSES = range(len(WRONG["data"]) - 3, len(WRONG["data"]))  # of WRONG["data"]: pointers to other memory


def example(r):
    """Returns a layout, the form of each value, and the wrong values, by their places in the tables."""
    n = r.choice([0, 1, 1, 2, 2, 3, 4])
    integer = lambda: strategies.small_or_wild(r, 0, 4, 30)
    return {
        "memory": r.choice(["shared", "device", "host"]), "owner": r.choice(["known", "unknown"]), "function": r.choice(["from_usm_array_interface", "asarray"]),
        "shape": tuple(integer() for _ in range(n)), "strides": strategies.times(r, n + strategies.rarely(r, 20), strategies.stride) if r.randrange(2) else None,
        "offset": r.choice([0, 0, 1, 4, 16, 255, integer()]), "typestr": "<" + r.choice(sorted(oracles.TYPESTRS)), "readonly": bool(r.randrange(2)),
        "at": r.choice([0, 0, 0, 4, 16, 100, 1, -1, -8, 1020, 1024, 1 << 20]),
        "form": {key: r.randrange(len(FORMS[key])) for key in KEYS},
        "wrong": {key: r.randrange(len(WRONG[key])) for key in r.sample(KEYS, r.choice([0, 0, 0, 0, 1, 1, 2, 3]))},
    }


def model(e, base, size):
    """Returns the errors of the layout, or the facts of the array; None if the model does not know whether it is right."""
    shape, strides, name, known = e["shape"], e["strides"], oracles.TYPESTRS[e["typestr"][1:]], e["owner"] == "known"
    bits = oracles.BITS[name]
    if any(n < 0 for n in shape) or strides is not None and len(strides) != len(shape):
        return {ValueError}
    try:
        oracles.layout(shape, strides, bits, ValueError)
    except oracles.Refused:
        return {ValueError}
    if 0 in shape:  # no element is accessed, and strides and an offset can be any
        try:
            oracles.layout(tuple(max(1, n) for n in shape), strides, bits, ValueError)
            assert oracles.fits(e["offset"] * bits)
        except (oracles.Refused, AssertionError):
            return None
    filled = oracles.c_order(shape) if strides is None else strides
    lo, hi = oracles.span(shape, filled, bits)
    first = base + e["at"] + e["offset"] * (bits // 8)
    lo, hi = first + lo, first + hi
    if not (base <= lo and hi <= base + size):
        if 0 in shape or not known and memory.pointer_type(lo) and memory.pointer_type(lo) == memory.pointer_type(hi - 1):
            return None
        return {ValueError}
    if 0 in shape and hi == base + size:
        return None
    # dpctl's memory writes True for writable memory
    return oracles.Facts(shape, None if strides is None and 0 in shape else filled, name, None if 0 in shape else first, e["readonly"] != known, bits)


def dictionary(e, base):
    """Returns the dictionary of an example. Wrong values replace right ones."""
    right = {"version": 1, "data": (base + e["at"], e["readonly"]), "shape": e["shape"], "strides": e["strides"], "offset": e["offset"],
             "typestr": e["typestr"], "typedescr": [("", e["typestr"])], "syclobj": memory.queue()}
    d = {key: None if v is None else FORMS[key][e["form"][key]](v) for key, v in right.items()}
    d |= {key: WRONG[key][at][0]() for key, at in e["wrong"].items()}
    return {key: v for key, v in d.items() if v is not ABSENT}


class Holder:
    pass


class Known(Holder):
    """Looks like dpctl's memory, whose size is looked up; its flag means the opposite."""


Known.__module__, Known.__qualname__ = "dpctl.memory._memory", "MemoryUSMShared"

ERRORS = (TypeError, ValueError, OverflowError, BufferError, LookupError)
PYTHONS = ("int too", "__index__", "surrogates")  # errors of Python, which do not name the key


@target(example, 1500)
def test_dictionaries(e):
    check(e)


@pytest.mark.parametrize("key", KEYS)
def test_each_value(key):
    """Each wrong value alone, and each form of a right one."""
    for owner in ("known", "unknown"):
        e = {"memory": "shared", "owner": owner, "function": "from_usm_array_interface", "shape": (2, 3), "strides": (-3, 1), "offset": 4, "typestr": "<i2",
             "readonly": False, "at": 4, "form": dict.fromkeys(KEYS, 0), "wrong": {}}
        for at in range(len(WRONG[key])):
            text = check({**e, "wrong": {key: at}})
            assert text is None or any(name in text for name in (key, *PYTHONS)), text
        for at in range(len(FORMS[key])):
            check({**e, "form": {**e["form"], key: at}})


def check(e):
    """Checks one import. Returns the text of its error, or None."""
    if memory.sycl() is None:
        return None
    owner = memory.usm(e["memory"], 1024)
    base, size = owner._pointer, owner.nbytes
    holding = types.SimpleNamespace(h=(Known if e["owner"] == "known" else Holder)())  # always read here: some uses of a local variable count a reference
    holding.h.memory, holding.h._pointer, holding.h.nbytes = owner, base, size
    holding.h.__sycl_usm_array_interface__ = dictionary(e, base)
    want = model(e, base, size)
    wrong = dict(e["wrong"])
    if e["owner"] == "known" and 0 in e["shape"] and wrong.get("data") in ADDRESSES:  # not used
        del wrong["data"]
        want = None
    wrong = {WRONG[key][at][1] for key, at in wrong.items()} | (want if isinstance(want, set) else set())
    before, text = sys.getrefcount(holding.h), None
    try:
        a = getattr(ub, e["function"])(holding.h)
    except ERRORS as error:
        text, right = str(error), (*wrong, *([ValueError] if want is None else []))
        if not isinstance(error, right):
            raise AssertionError(f"raised {type(error).__name__}: {error}; right are {right} for {e!r}") from error
    else:
        if wrong:
            raise AssertionError(f"taken, though it must be refused with {wrong}: {a.shape, a.strides, str(a.dtype)} for {e!r}")
        if want is not None:
            want.check(a, e)
            oracles.equal(a.usm_type, e["memory"], "usm_type", e)
            if e["memory"] != "device" and a.size and a.nbytes <= 1024:
                c = a.copy()
                host = c if c.usm_type is None else c.to_device("host")
                oracles.equal(int.from_bytes(ct.string_at(host._pointer, host.nbytes), "little"), want.elements(ct.string_at), "elements", e)
                everything(a)
        del a
    memory.settled()
    oracles.equal(sys.getrefcount(holding.h), before, "references at the end", e)
    return text
