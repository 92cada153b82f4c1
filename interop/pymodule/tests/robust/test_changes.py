"""Changes during operations on elements. Each operation calls foreign code, such as __float__ of its arguments. At the
k-th call a change is made: the arrays of the operation are released or dropped, its lists are emptied or extended, freed
memory is overwritten, or an exception is raised. Releasing, dropping and garbage collection must not affect the result.
The other changes may make the operation fail. Afterwards no owner may be left."""

import functools
import gc
import importlib
import operator
import sys
import threading
import time

import pytest

import usmbridge as ub
from robust import changing, memory, producers
from robust.changing import ERRORS, CallHook, Integer, Truth, watched
from robust.engine import target

CHANGES = ["release", "drop", "churn", "collect", "raise", "clear", "grow", "release sources"]
HARMLESS = {"release", "churn", "collect", "drop"}  # changes that do not affect the result


def np():
    return importlib.import_module("numpy")


class Number(Integer):
    def __float__(self):
        self.hook()
        return float(self.value)

    def __complex__(self):
        self.hook()
        return complex(self.value)


class Named:
    """An element type by its name."""

    def __init__(self, hook, name):
        self.hook, self.text = hook, name

    @property
    def name(self):
        self.hook()
        return self.text


class Typed(Number):
    """A number that names its type."""

    @property
    def dtype(self):
        self.hook()
        return Named(self.hook, "float32")


class Items:
    """A sequence by __len__ and __getitem__ alone."""

    def __init__(self, hook, items):
        self.hook, self.items = hook, items

    def __len__(self):
        self.hook()
        return len(self.items)

    def __getitem__(self, i):
        self.hook()
        return self.items[i]


class Listed(list):
    """A list with an iteration of its own."""

    hook = None

    def __iter__(self):
        self.hook()
        for x in list.__iter__(self):
            self.hook()
            yield x


class Operation:
    """An operation with its arrays, and the lists and sources that a change can affect. run returns a value to compare."""

    argument = False  # whether the array is an argument, which a change may release before it is read

    def __init__(self, k, what, place):
        self.what, self.place = what, place
        self.before = owners()
        self.hook = CallHook(k, self.change)
        self.arrays = [ub.asarray([[1, 2, 3], [4, 5, 6]], dtype="float32", **place)]
        self.kept = self.arrays[0][...]  # shows what was written
        self.sources, self.lists = [], []
        self.prepare()
        self.hook.calls = 0

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
        return Number(self.hook, n)

    def list(self, *items):
        self.lists.append(list(items))
        return self.lists[-1]

    def source(self, values, dtype="float32", **place):
        self.sources.append(ub.asarray(values, dtype=dtype, **(place or self.place)))
        return self.sources[-1]


def owners():
    return ub.stats()["live_buffers.all.current"]


def values_of(x):
    if isinstance(x, ub.Array):
        return x.shape, str(x.dtype), x.usm_type, x.readonly, x.tolist()
    if isinstance(x, (list, tuple)):
        return [values_of(y) for y in x]
    return x.tolist() if hasattr(x, "tolist") else x


# ---- the operations --------------------------------------------------------------------------------------


class Set(Operation):
    def run(self):
        hook = self.hook
        self.a[Integer(hook, 0), slice(Integer(hook, 0), Integer(hook, 3), Integer(hook, 1))] = self.list(self.number(7), Truth(hook, 8), 9.0)
        return self.kept


class SetArrays(Operation):
    def prepare(self):
        self.parts = self.list(self.source(7.0), self.number(8), self.source(9, "int16"))

    def run(self):
        self.a[Integer(self.hook, 1)] = self.parts
        return self.kept


class SetObject(Operation):
    """The value is memory by a dictionary, or by DLPack."""

    def prepare(self):
        self.value = self.source([7, 8, 9])

    def run(self):
        hook = self.hook
        members = {"__dlpack__": lambda x, **kw: (hook(), self.value.__dlpack__(**kw), hook())[1], "__dlpack_device__": lambda x: (hook(), self.value.__dlpack_device__())[1]}
        self.a[0] = watched(hook, "robust.Giver", members)
        return self.kept


class Fill(Operation):
    def run(self):
        self.a.fill(self.number(7))
        return self.kept


class FillTyped(Operation):
    def run(self):
        self.a.fill(Typed(self.hook, 7))
        return self.kept


class Full(Operation):
    def run(self):
        hook = self.hook
        return ub.full(self.list(Integer(hook, 2), Integer(hook, 2)), self.number(5), Named(hook, "int16"), **self.place)


class Like(Operation):
    def run(self):
        hook = self.hook
        return ub.full_like(self.a, self.number(5), dtype=Named(hook, "int16"))


class LikeElsewhere(Operation):
    def run(self):
        hook = self.hook
        return ub.zeros_like(self.a, dtype=Named(hook, "uint8"), device=watched(hook, "robust.Q", {"_get_capsule": lambda x: (hook(), memory.queue()._get_capsule(), hook())[1]}) if memory.sycl() else "host")


class Asarray(Operation):
    argument = True

    def run(self):
        hook = self.hook
        return ub.asarray(self.a, dtype=Named(hook, "float64"), copy=Truth(hook, 1), **self.place)


class Numbers(Operation):
    def run(self):
        hook = self.hook
        return ub.asarray(self.list(self.list(Typed(hook, 1), self.number(2)), self.list(3.0, Integer(hook, 4))), dtype="float32", **self.place)


class Stacked(Operation):
    def run(self):
        return ub.asarray(self.list(self.list(self.source(1.0), self.number(2)), Items(self.hook, self.list(self.number(3), self.source(4.0)))), **self.place)


class Sequence(Operation):
    def run(self):
        return ub.asarray(Items(self.hook, self.list(Items(self.hook, self.list(1, 2)), Items(self.hook, self.list(self.number(3), 4)))), dtype="int32", **self.place)


class ArrayOnly(Operation):
    def run(self):
        hook, x = self.hook, np().arange(3.0)
        return ub.asarray(watched(hook, "robust.A", {"__array__": lambda s, dtype=None, copy=None: (hook(), x)[1]}))


class InterfaceOnly(Operation):
    def run(self):
        hook, x = self.hook, np().arange(3.0)
        d = dict(x.__array_interface__, shape=(Integer(hook, 3),))
        self.lists.append(d)
        return ub.asarray(watched(hook, "robust.I", {"__array_interface__": property(lambda s: (hook(), d)[1]), "memory": x}))


class Astype(Operation):
    def run(self):
        hook = self.hook
        return self.a.astype(Named(hook, "int64"), copy=Truth(hook, 1))


class Retype(Operation):
    def run(self):
        return self.a.view(Named(self.hook, "int16"))


class Item(Operation):
    def run(self):
        hook = self.hook
        return self.a.item(Integer(hook, 1), Integer(hook, -1))


class ItemFlat(Operation):
    def run(self):
        return self.a.item(self.list(Integer(self.hook, 1), Integer(self.hook, 0)))


class Shapes(Operation):
    def run(self):
        hook = self.hook
        return self.a.reshape(self.list(Integer(hook, 3), Integer(hook, 2)), copy=Truth(hook, 1))


class Transpose(Operation):
    def run(self):
        return self.a.transpose(Integer(self.hook, 1), Integer(self.hook, 0))


class Subscript(Operation):
    def run(self):
        hook = self.hook
        return self.a[..., slice(Integer(hook, 2), None, Integer(hook, -1)), None][Integer(hook, 1)]


class Reduce(Operation):
    def run(self):
        f, args = self.a.__reduce_ex__(Integer(self.hook, 4))[:2]
        return f(*args)


class Unpickle(Operation):
    def run(self):
        hook = self.hook
        return ub._unpickle(bytearray(6), Named(hook, "int8"), self.list(Integer(hook, 2), Integer(hook, 3)), "C", Truth(hook, 0), None, None, Truth(hook, 0))


class UnpickleOwn(Operation):
    argument = True

    def prepare(self):
        self.arrays.insert(0, ub.asarray([1, 2, 3, 4, 5, 6], dtype="uint8", device="host"))

    def run(self):
        hook = self.hook
        return ub._unpickle(self.a, Named(hook, "int16"), self.list(Integer(hook, 3)), "C", Truth(hook, 0), None, None, Truth(hook, 1))


class Ndarray(Operation):
    def run(self):
        hook = self.hook
        if self.a.usm_type == "device":
            hook()
            return None
        return self.a.__array__(np().dtype("float64"), copy=Truth(hook, 1)), self.kept.__array__(watched(hook, "robust.D", {"__eq__": lambda x, y: (hook(), True)[1], "__hash__": None}))


class Function(Operation):
    argument = True

    def run(self):
        hook = self.hook
        if self.a.usm_type == "device":
            hook()
            return None
        args, kwargs = Listed([self.a, self.kept]), {"x": Listed([self.kept]), "y": Listed([1])}
        args.hook = kwargs["x"].hook = kwargs["y"].hook = hook
        self.lists += [args, kwargs]

        def answer(*args, **kwargs):
            hook()
            return [x.tolist() for x in args[0] if hasattr(x, "tolist")]

        return self.a.__array_function__(answer, (ub.Array,), (args,), kwargs)


class ToDevice(Operation):
    def queue(self):
        hook = self.hook
        return watched(hook, "robust.Q", {"_get_capsule": lambda x: (hook(), memory.queue()._get_capsule(), hook())[1]}) if memory.sycl() else "host"

    def run(self):
        return self.a.to_device(self.queue(), stream=None).tolist()


class Device(ToDevice):
    def run(self):
        hook = self.hook
        return [ub.zeros(self.list(Integer(hook, 2)), device=self.queue()), ub.asarray(self.kept, device=self.queue(), copy=Truth(hook, 1))]


class DnpDevice(ToDevice):
    """dpnp's Device by its name alone, whose sycl_queue is read."""

    def queue(self):
        hook = self.hook
        return watched(hook, "dpnp.tensor._device.Device", {"sycl_queue": property(lambda x: (hook(), memory.queue())[1])}) if memory.sycl() else "host"


class Export(Operation):
    def run(self):
        hook = self.hook
        version = self.list(1, 3)
        return ub.from_dlpack(self.a.__dlpack__(max_version=version, stream=None, copy=Truth(hook, 1))).tolist()


class Equal(Operation):
    operator = operator.eq

    def run(self):
        hook = self.hook
        other = watched(hook, "robust.Other", {"__array__": lambda s, dtype=None, copy=None: (hook(), np().zeros(3))[1]})
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


OPERATIONS = {c.__name__: c for c in [
    Set, SetArrays, SetObject, Fill, FillTyped, Full, Like, LikeElsewhere, Asarray, Numbers, Stacked, Sequence, ArrayOnly, InterfaceOnly, Astype, Retype, Item, ItemFlat, Shapes, Transpose, Subscript,
    Reduce, Unpickle, UnpickleOwn, Ndarray, Function, Export, Equal, Less, Add, Multiply, Contains, *([ToDevice, Device, DnpDevice] if memory.sycl() else [])]}
PLACES = {"host": {"device": "host"}} | ({"device": {"usm_type": "device"}, "shared": {"usm_type": "shared"}} if memory.sycl() else {})


@functools.cache
def undisturbed(name, place):
    """Returns the result without changes, and the number of calls of foreign code."""
    with producers.unraisable():
        operation = OPERATIONS[name](-1, "collect", PLACES[place])
        answer = values_of(operation.run())
    return answer, operation.hook.calls


def run_with_change(name, k, what, place):
    want, _ = undisturbed(name, place)
    with producers.unraisable():
        operation = OPERATIONS[name](k, what, PLACES[place])
        before, answer, completed = operation.before, None, False
        try:
            answer = values_of(operation.run())
        except ERRORS as e:
            if what in HARMLESS and not (what == "release" and operation.argument and "released" in str(e)):
                raise AssertionError(f"{name} at {place}, {what} at call {k}: {type(e).__name__}: {e}") from e
        else:
            completed = True
        if completed and what in HARMLESS:
            changing.oracles.equal(answer, want, "the answer", (name, place, what, k))
        operation.hook.busy = True
        operation.__dict__.clear()
    del operation
    check_owners(before, (name, place, what, k))


def check_owners(before, about):
    for generation in (0, 1, 2):
        if owners() <= before:
            break
        gc.collect(generation)
    else:
        memory.settled()
    end = time.monotonic() + 60
    while owners() > before and time.monotonic() < end:
        time.sleep(0.01)  # host tasks of dpnp hold their arguments until they get the GIL
        gc.collect()
        memory.settled()
    if owners() > before:
        raise AssertionError(f"{owners() - before} owners are left after {about!r}")


def example(r):
    return {"operation": r.choice(sorted(OPERATIONS)), "place": r.choice(sorted(PLACES)), "k": r.randrange(30), "what": r.choice(CHANGES)}


@target(example, 200)
def test_changes_in_operations(e):
    run_with_change(e["operation"], e["k"], e["what"], e["place"])


# ---- changes by another thread ------------------------------------------------------------------------------


def example_of_threads(r):
    return {"operation": r.choice(sorted(OPERATIONS)), "place": r.choice(sorted(PLACES)), "changes": [r.choice(CHANGES) for _ in range(r.randint(1, 3))], "rounds": r.choice([3, 10])}


@target(example_of_threads, 60)
def test_changes_by_a_thread(e):
    """A second thread makes the changes whenever it gets the GIL."""
    want, _ = undisturbed(e["operation"], e["place"])
    harmless = HARMLESS.issuperset(e["changes"])
    stop, box, broken, before, interval = threading.Event(), [], [], owners(), sys.getswitchinterval()

    def other():
        while not stop.is_set():
            for what in e["changes"]:
                try:
                    operation = box[0]
                    operation.what = what
                    operation.change()
                except ERRORS:
                    pass
                except BaseException as error:
                    broken.append(error)
                operation = None

    with producers.unraisable():
        thread = threading.Thread(target=other)
        sys.setswitchinterval(1e-6)
        thread.start()
        try:
            for _ in range(e["rounds"]):
                operation = OPERATIONS[e["operation"]](-1, "collect", PLACES[e["place"]])
                box[:] = [operation]
                try:
                    answer = values_of(operation.run())
                except ERRORS as error:
                    if harmless and not ("released" in str(error) or isinstance(error, IndexError)):
                        raise
                    continue
                finally:
                    box.clear()
                if harmless:
                    changing.oracles.equal(answer, want, "the answer", e)
        finally:
            stop.set()
            thread.join()
            sys.setswitchinterval(interval)
            operation = answer = None
    if broken:
        raise broken[0]
    check_owners(before, e)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_call(name):
    """Makes every change at every call, in every place. Each operation must call foreign code at least once."""
    for place in PLACES:
        calls = undisturbed(name, place)[1]
        assert calls > 0, f"no foreign code ran at {place}"
        for what in CHANGES:
            for k in range(calls):
                run_with_change(name, k, what, place)
