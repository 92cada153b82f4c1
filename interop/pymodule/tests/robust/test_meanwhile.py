"""Changes during all operations on elements: at the k-th call of foreign code the arrays of the operation are released or
dropped, its source is emptied or grows, memory is overwritten, or an error is raised. Releasing and collecting do not
change the result; other changes may end the operation with an error. Nothing is left behind."""

import functools
import gc
import importlib
import operator
import sys
import threading

import pytest

import usmbridge as ub
from robust import changing, memory, producers
from robust.changing import ERRORS, Integer, Moment, Truth, watched
from robust.engine import target

CHANGES = ["release", "drop", "churn", "collect", "raise", "clear", "grow", "release sources"]
STEADY = {"release", "churn", "collect", "drop"}  # changes that do not affect the result


def np():
    return importlib.import_module("numpy")


class Number(Integer):
    def __float__(self):
        self.moment()
        return float(self.value)

    def __complex__(self):
        self.moment()
        return complex(self.value)


class Named:
    """An element type by its name."""

    def __init__(self, moment, name):
        self.moment, self.text = moment, name

    @property
    def name(self):
        self.moment()
        return self.text


class Typed(Number):
    """A number that names its type."""

    @property
    def dtype(self):
        self.moment()
        return Named(self.moment, "float32")


class Items:
    """A sequence by __len__ and __getitem__ alone."""

    def __init__(self, moment, items):
        self.moment, self.items = moment, items

    def __len__(self):
        self.moment()
        return len(self.items)

    def __getitem__(self, i):
        self.moment()
        return self.items[i]


class Listed(list):
    """A list with an iteration of its own."""

    moment = None

    def __iter__(self):
        self.moment()
        for x in list.__iter__(self):
            self.moment()
            yield x


class Hand:
    """One operation, its arrays, and the objects that can be emptied; run returns a value to compare."""

    argument = False  # the array is an argument, which may have been released before it is read

    def __init__(self, k, what, place):
        self.what, self.place = what, place
        self.before = owners()
        self.moment = Moment(k, self.change)
        self.arrays = [ub.asarray([[1, 2, 3], [4, 5, 6]], dtype="float32", **place)]
        self.kept = self.arrays[0][...]  # shows what was written
        self.sources, self.lists = [], []
        self.prepare()
        self.moment.calls = 0

    def prepare(self):
        pass

    def change(self):
        what = self.what
        if what == "release":
            for a in self.arrays:
                a.release()
        elif what == "release sources":
            for a in self.sources:
                a.release()
        elif what == "drop":
            self.arrays.clear()
        elif what == "churn":
            for place in ({"device": "host"}, self.place):
                for n in (1, 2, 3, 6):
                    ub.empty(n, "float32", **place).fill(-1)
        elif what == "collect":
            gc.collect(0)
        elif what == "raise":
            raise LookupError("mine")
        elif what == "clear":
            for x in self.lists:
                x.clear()
        elif what == "grow":
            for x in self.lists:
                if isinstance(x, dict):
                    x.update({f"more{i}": 1 for i in range(100)})
                elif len(x) < 1000:  # an iteration must end
                    x.extend([1] * 1000)

    @property
    def a(self):
        return self.arrays[0]

    def number(self, n):
        return Number(self.moment, n)

    def list(self, *items):
        self.lists.append(list(items))
        return self.lists[-1]

    def source(self, values, dtype="float32", **place):
        self.sources.append(ub.asarray(values, dtype=dtype, **(place or self.place)))
        return self.sources[-1]


def owners():
    return ub.stats()["live_buffers.all.current"]


def facts(x):
    if isinstance(x, ub.Array):
        return x.shape, str(x.dtype), x.usm_type, x.readonly, x.tolist()
    if isinstance(x, (list, tuple)):
        return [facts(y) for y in x]
    return x.tolist() if hasattr(x, "tolist") else x


# ---- the entries -----------------------------------------------------------------------------------------


class Set(Hand):
    def run(self):
        m = self.moment
        self.a[Integer(m, 0), slice(Integer(m, 0), Integer(m, 3), Integer(m, 1))] = self.list(self.number(7), Truth(m, 8), 9.0)
        return self.kept


class SetArrays(Hand):
    def prepare(self):
        self.parts = self.list(self.source(7.0), self.number(8), self.source(9, "int16"))

    def run(self):
        self.a[Integer(self.moment, 1)] = self.parts
        return self.kept


class SetObject(Hand):
    """The value is memory by a dictionary, or by DLPack."""

    def prepare(self):
        self.value = self.source([7, 8, 9])

    def run(self):
        m = self.moment
        members = {"__dlpack__": lambda x, **kw: (m(), self.value.__dlpack__(**kw), m())[1], "__dlpack_device__": lambda x: (m(), self.value.__dlpack_device__())[1]}
        self.a[0] = watched(m, "robust.Giver", members)
        return self.kept


class Fill(Hand):
    def run(self):
        self.a.fill(self.number(7))
        return self.kept


class FillTyped(Hand):
    def run(self):
        self.a.fill(Typed(self.moment, 7))
        return self.kept


class Full(Hand):
    def run(self):
        m = self.moment
        return ub.full(self.list(Integer(m, 2), Integer(m, 2)), self.number(5), Named(m, "int16"), **self.place)


class Like(Hand):
    def run(self):
        m = self.moment
        return ub.full_like(self.a, self.number(5), dtype=Named(m, "int16"))


class LikeElsewhere(Hand):
    def run(self):
        m = self.moment
        return ub.zeros_like(self.a, dtype=Named(m, "uint8"), device=watched(m, "robust.Q", {"_get_capsule": lambda x: (m(), memory.queue()._get_capsule(), m())[1]}) if memory.sycl() else "host")


class Asarray(Hand):
    argument = True

    def run(self):
        m = self.moment
        return ub.asarray(self.a, dtype=Named(m, "float64"), copy=Truth(m, 1), **self.place)


class Numbers(Hand):
    def run(self):
        m = self.moment
        return ub.asarray(self.list(self.list(Typed(m, 1), self.number(2)), self.list(3.0, Integer(m, 4))), dtype="float32", **self.place)


class Stacked(Hand):
    def run(self):
        return ub.asarray(self.list(self.list(self.source(1.0), self.number(2)), Items(self.moment, self.list(self.number(3), self.source(4.0)))), **self.place)


class Sequence(Hand):
    def run(self):
        return ub.asarray(Items(self.moment, self.list(Items(self.moment, self.list(1, 2)), Items(self.moment, self.list(self.number(3), 4)))), dtype="int32", **self.place)


class ArrayOnly(Hand):
    def run(self):
        m, x = self.moment, np().arange(3.0)
        return ub.asarray(watched(m, "robust.A", {"__array__": lambda s, dtype=None, copy=None: (m(), x)[1]}))


class InterfaceOnly(Hand):
    def run(self):
        m, x = self.moment, np().arange(3.0)
        d = dict(x.__array_interface__, shape=(Integer(m, 3),))
        self.lists.append(d)
        return ub.asarray(watched(m, "robust.I", {"__array_interface__": property(lambda s: (m(), d)[1]), "memory": x}))


class Astype(Hand):
    def run(self):
        m = self.moment
        return self.a.astype(Named(m, "int64"), copy=Truth(m, 1))


class Retype(Hand):
    def run(self):
        return self.a.view(Named(self.moment, "int16"))


class Item(Hand):
    def run(self):
        m = self.moment
        return self.a.item(Integer(m, 1), Integer(m, -1))


class ItemFlat(Hand):
    def run(self):
        return self.a.item(self.list(Integer(self.moment, 1), Integer(self.moment, 0)))


class Shapes(Hand):
    def run(self):
        m = self.moment
        return self.a.reshape(self.list(Integer(m, 3), Integer(m, 2)), copy=Truth(m, 1))


class Transpose(Hand):
    def run(self):
        return self.a.transpose(Integer(self.moment, 1), Integer(self.moment, 0))


class Subscript(Hand):
    def run(self):
        m = self.moment
        return self.a[..., slice(Integer(m, 2), None, Integer(m, -1)), None][Integer(m, 1)]


class Reduce(Hand):
    def run(self):
        f, args = self.a.__reduce_ex__(Integer(self.moment, 4))[:2]
        return f(*args)


class Unpickle(Hand):
    def run(self):
        m = self.moment
        return ub._unpickle(bytearray(6), Named(m, "int8"), self.list(Integer(m, 2), Integer(m, 3)), "C", Truth(m, 0), None, None, Truth(m, 0))


class UnpickleOwn(Hand):
    argument = True

    def prepare(self):
        self.arrays.insert(0, ub.asarray([1, 2, 3, 4, 5, 6], dtype="uint8", device="host"))

    def run(self):
        m = self.moment
        return ub._unpickle(self.a, Named(m, "int16"), self.list(Integer(m, 3)), "C", Truth(m, 0), None, None, Truth(m, 1))


class Ndarray(Hand):
    def run(self):
        m = self.moment
        if self.a.usm_type == "device":
            m()
            return None
        return self.a.__array__(np().dtype("float64"), copy=Truth(m, 1)), self.kept.__array__(watched(m, "robust.D", {"__eq__": lambda x, y: (m(), True)[1], "__hash__": None}))


class Function(Hand):
    argument = True

    def run(self):
        m = self.moment
        if self.a.usm_type == "device":
            m()
            return None
        args, kwargs = Listed([self.a, self.kept]), {"x": Listed([self.kept]), "y": Listed([1])}
        args.moment = kwargs["x"].moment = kwargs["y"].moment = m
        self.lists += [args, kwargs]

        def answer(*args, **kwargs):
            m()
            return [x.tolist() for x in args[0] if hasattr(x, "tolist")]

        return self.a.__array_function__(answer, (ub.Array,), (args,), kwargs)


class ToDevice(Hand):
    def queue(self):
        m = self.moment
        return watched(m, "robust.Q", {"_get_capsule": lambda x: (m(), memory.queue()._get_capsule(), m())[1]}) if memory.sycl() else "host"

    def run(self):
        return self.a.to_device(self.queue(), stream=None).tolist()


class Device(ToDevice):
    def run(self):
        m = self.moment
        return [ub.zeros(self.list(Integer(m, 2)), device=self.queue()), ub.asarray(self.kept, device=self.queue(), copy=Truth(m, 1))]


class DnpDevice(ToDevice):
    """dpnp's Device by its name alone, whose sycl_queue is read."""

    def queue(self):
        m = self.moment
        return watched(m, "dpnp.tensor._device.Device", {"sycl_queue": property(lambda x: (m(), memory.queue())[1])}) if memory.sycl() else "host"


class Export(Hand):
    def run(self):
        m = self.moment
        version = self.list(1, 3)
        return ub.from_dlpack(self.a.__dlpack__(max_version=version, stream=None, copy=Truth(m, 1))).tolist()


class Equal(Hand):
    operator = operator.eq

    def run(self):
        m = self.moment
        other = watched(m, "robust.Other", {"__array__": lambda s, dtype=None, copy=None: (m(), np().zeros(3))[1]})
        try:
            return type(self).operator(self.kept, other)
        except TypeError as e:
            return type(e).__name__


class Less(Equal):
    operator = operator.lt


class Add(Equal):
    operator = operator.add


class Multiply(Equal):
    operator = staticmethod(lambda a, b: b * a)


class Contains(Equal):
    operator = operator.contains


ENTRIES = {c.__name__: c for c in [
    Set, SetArrays, SetObject, Fill, FillTyped, Full, Like, LikeElsewhere, Asarray, Numbers, Stacked, Sequence, ArrayOnly, InterfaceOnly, Astype, Retype, Item, ItemFlat, Shapes, Transpose, Subscript,
    Reduce, Unpickle, UnpickleOwn, Ndarray, Function, Export, Equal, Less, Add, Multiply, Contains, *([ToDevice, Device, DnpDevice] if memory.sycl() else [])]}
PLACES = {"host": {"device": "host"}} | ({"device": {"usm_type": "device"}, "shared": {"usm_type": "shared"}} if memory.sycl() else {})


@functools.cache
def undisturbed(name, place):
    """Returns the result without changes, and the number of calls of foreign code."""
    with producers.unraisable():
        hand = ENTRIES[name](-1, "collect", PLACES[place])
        answer = facts(hand.run())
    return answer, hand.moment.calls


def go(name, k, what, place):
    want, _ = undisturbed(name, place)
    with producers.unraisable():
        hand = ENTRIES[name](k, what, PLACES[place])
        before, answer, happened = hand.before, None, False
        try:
            answer = facts(hand.run())
        except ERRORS as e:
            if what in STEADY and not (what == "release" and hand.argument and "released" in str(e)):
                raise AssertionError(f"{name} at {place}, {what} at call {k}: {type(e).__name__}: {e}") from e
        else:
            happened = True
        if happened and what in STEADY:
            changing.oracles.equal(answer, want, "the answer", (name, place, what, k))
        hand.moment.busy = True
        hand.__dict__.clear()
    del hand
    ended(before, (name, place, what, k))


def ended(before, about):
    for generation in (0, 1, 2):
        if owners() <= before:
            break
        gc.collect(generation)
    else:
        memory.settled()
    if owners() > before:
        raise AssertionError(f"{owners() - before} owners are left of {about!r}")


def example(r):
    return {"entry": r.choice(sorted(ENTRIES)), "place": r.choice(sorted(PLACES)), "k": r.randrange(30), "what": r.choice(CHANGES)}


@target(example, 200)
def test_meanwhile(e):
    go(e["entry"], e["k"], e["what"], e["place"])


# ---- by another thread -------------------------------------------------------------------------------------


def example_beside(r):
    return {"entry": r.choice(sorted(ENTRIES)), "place": r.choice(sorted(PLACES)), "changes": [r.choice(CHANGES) for _ in range(r.randint(1, 3))], "rounds": r.choice([3, 10])}


@target(example_beside, 60)
def test_meanwhile_beside(e):
    """The same by a thread that makes changes whenever it gets the GIL."""
    want, _ = undisturbed(e["entry"], e["place"])
    steady = STEADY.issuperset(e["changes"])
    stop, box, broken, before, interval = threading.Event(), [], [], owners(), sys.getswitchinterval()

    def other():
        while not stop.is_set():
            for what in e["changes"]:
                try:
                    hand = box[0]
                    hand.what = what
                    hand.change()
                except ERRORS:
                    pass
                except BaseException as error:
                    broken.append(error)
                hand = None

    with producers.unraisable():
        thread = threading.Thread(target=other)
        sys.setswitchinterval(1e-6)
        thread.start()
        try:
            for _ in range(e["rounds"]):
                hand = ENTRIES[e["entry"]](-1, "collect", PLACES[e["place"]])
                box[:] = [hand]
                try:
                    answer = facts(hand.run())
                except ERRORS as error:
                    if steady and not ("released" in str(error) or isinstance(error, IndexError)):
                        raise
                    continue
                finally:
                    box.clear()
                if steady:
                    changing.oracles.equal(answer, want, "the answer", e)
        finally:
            stop.set()
            thread.join()
            sys.setswitchinterval(interval)
            hand = answer = None
    if broken:
        raise broken[0]
    ended(before, e)


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_every_call(name):
    """Makes every change at every call, in every place; foreign code runs in each operation."""
    for place in PLACES:
        calls = undisturbed(name, place)[1]
        assert calls > 0, f"no foreign code ran at {place}"
        for what in CHANGES:
            for k in range(calls):
                go(name, k, what, place)
