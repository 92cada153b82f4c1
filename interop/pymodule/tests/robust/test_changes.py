"""Changes during operations on elements. Each operation calls foreign code, such as __float__ of its arguments. At the
k-th call a change is made: the arrays of the operation are released or dropped, its lists are emptied or extended, freed
memory is overwritten, or an exception is raised. Releasing, dropping and garbage collection must not affect the result.
The other changes may make the operation fail. Afterwards no owner may be left."""

import functools
import gc
import importlib
import itertools
import operator

import pytest

import usmbridge as ub
from robust import changing, engine, memory, producers
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

    def __init__(self, name, k, what, place):
        self.name, self.what, self.place = name, what, place
        self.before = owners()
        self.hook = CallHook(k, self.change)
        self.arrays = [ub.asarray([[1, 2, 3], [4, 5, 6]], dtype="float32", **place)]
        self.kept = self.arrays[0][...]  # shows what was written
        self.sources, self.lists = [], []
        PREPARED.get(name, lambda o: None)(self)
        self.hook.calls = 0

    def run(self):
        return OPERATIONS[self.name](self)

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

    def index(self, n):
        return Integer(self.hook, n)

    def truth(self, n):
        return Truth(self.hook, n)

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


def giver(o):
    """Memory by DLPack."""
    hook, memory = o.hook, o.value
    return watched(hook, "robust.Giver", {"__dlpack__": lambda x, **kw: (hook(), memory.__dlpack__(**kw), hook())[1], "__dlpack_device__": lambda x: (hook(), memory.__dlpack_device__())[1]})


def set_elements(o):
    o.a[o.index(0), slice(o.index(0), o.index(3), o.index(1))] = o.list(o.number(7), Truth(o.hook, 8), 9.0)
    return o.kept


def array_interface(o):
    hook, x = o.hook, np().arange(3.0)
    d = dict(x.__array_interface__, shape=(o.index(3),))
    o.lists.append(d)
    return ub.asarray(watched(hook, "robust.I", {"__array_interface__": property(lambda s: (hook(), d)[1]), "memory": x}))


def array_method(o):
    hook, x = o.hook, np().arange(3.0)
    return ub.asarray(watched(hook, "robust.A", {"__array__": lambda s, dtype=None, copy=None: (hook(), x)[1]}))


def reduced(o):
    f, args = o.a.__reduce_ex__(o.index(4))[:2]
    return f(*args)


def to_ndarray(o):
    hook = o.hook
    if o.a.usm_type == "device":
        return hook()
    return o.a.__array__(np().dtype("float64"), copy=o.truth(1)), o.kept.__array__(watched(hook, "robust.D", {"__eq__": lambda x, y: (hook(), True)[1], "__hash__": None}))


def array_function(o):
    hook = o.hook
    if o.a.usm_type == "device":
        return hook()
    args, kwargs = Listed([o.a, o.kept]), {"x": Listed([o.kept]), "y": Listed([1])}
    args.hook = kwargs["x"].hook = kwargs["y"].hook = hook
    o.lists += [args, kwargs]

    def answer(*args, **kwargs):
        hook()
        return [x.tolist() for x in args[0] if hasattr(x, "tolist")]

    return o.a.__array_function__(answer, (ub.Array,), (args,), kwargs)


def queue(o):
    hook = o.hook
    return watched(hook, "robust.Q", {"_get_capsule": lambda x: (hook(), memory.queue()._get_capsule(), hook())[1]}) if memory.sycl() else "host"


def dpnp_device(o):
    """dpnp's Device by its name alone, whose sycl_queue is read."""
    return watched(o.hook, "dpnp.tensor._device.Device", {"sycl_queue": property(lambda x: (o.hook(), memory.queue())[1])})


def partner(o, f):
    other = watched(o.hook, "robust.Other", {"__array__": lambda s, dtype=None, copy=None: (o.hook(), np().zeros(3))[1]})
    try:
        return f(o.kept, other)
    except TypeError as e:
        return type(e).__name__


def unpickled(o, data, dtype, shape, readonly, padded):
    return ub._unpickle(data, Named(o.hook, dtype), o.list(*map(o.index, shape)), "C", o.truth(readonly), None, None, o.truth(padded))


OPERATIONS = {
    "Set": set_elements,
    "SetArrays": lambda o: (operator.setitem(o.a, o.index(1), o.parts), o.kept)[1],
    "SetObject": lambda o: (operator.setitem(o.a, 0, giver(o)), o.kept)[1],
    "Fill": lambda o: (o.a.fill(o.number(7)), o.kept)[1],
    "FillTyped": lambda o: (o.a.fill(Typed(o.hook, 7)), o.kept)[1],
    "Full": lambda o: ub.full(o.list(o.index(2), o.index(2)), o.number(5), Named(o.hook, "int16"), **o.place),
    "Like": lambda o: ub.full_like(o.a, o.number(5), dtype=Named(o.hook, "int16")),
    "LikeElsewhere": lambda o: ub.zeros_like(o.a, dtype=Named(o.hook, "uint8"), device=queue(o)),
    "Asarray": lambda o: ub.asarray(o.a, dtype=Named(o.hook, "float64"), copy=o.truth(1), **o.place),
    "Numbers": lambda o: ub.asarray(o.list(o.list(Typed(o.hook, 1), o.number(2)), o.list(3.0, o.index(4))), dtype="float32", **o.place),
    "Stacked": lambda o: ub.asarray(o.list(o.list(o.source(1.0), o.number(2)), Items(o.hook, o.list(o.number(3), o.source(4.0)))), **o.place),
    "Sequence": lambda o: ub.asarray(Items(o.hook, o.list(Items(o.hook, o.list(1, 2)), Items(o.hook, o.list(o.number(3), 4)))), dtype="int32", **o.place),
    "ArrayOnly": array_method,
    "InterfaceOnly": array_interface,
    "Astype": lambda o: o.a.astype(Named(o.hook, "int64"), copy=o.truth(1)),
    "Retype": lambda o: o.a.view(Named(o.hook, "int16")),
    "Item": lambda o: o.a.item(o.index(1), o.index(-1)),
    "ItemFlat": lambda o: o.a.item(o.list(o.index(1), o.index(0))),
    "Shapes": lambda o: o.a.reshape(o.list(o.index(3), o.index(2)), copy=o.truth(1)),
    "Transpose": lambda o: o.a.transpose(o.index(1), o.index(0)),
    "Subscript": lambda o: o.a[..., slice(o.index(2), None, o.index(-1)), None][o.index(1)],
    "Reduce": reduced,
    "Unpickle": lambda o: unpickled(o, bytearray(6), "int8", (2, 3), 0, 0),
    "UnpickleOwn": lambda o: unpickled(o, o.a, "int16", (3,), 0, 1),
    "Ndarray": to_ndarray,
    "Function": array_function,
    "Export": lambda o: ub.from_dlpack(o.a.__dlpack__(max_version=o.list(1, 3), stream=None, copy=o.truth(1))).tolist(),
    "Equal": lambda o: partner(o, operator.eq),
    "Less": lambda o: partner(o, operator.lt),
    "Add": lambda o: partner(o, operator.add),
    "Multiply": lambda o: partner(o, lambda a, b: b * a),
    "Contains": lambda o: partner(o, operator.contains),
}
if memory.sycl():
    OPERATIONS |= {
        f"{name}{what}": lambda o, device=device, use=use: use(o, device(o))
        for name, device in (("", queue), ("Dnp", dpnp_device))
        for what, use in (("ToDevice", lambda o, d: o.a.to_device(d, stream=None).tolist()),
                          ("Device", lambda o, d: [ub.zeros(o.list(o.index(2)), device=d), ub.asarray(o.kept, device=d, copy=o.truth(1))]))
    }
# What an operation has before it runs.
PREPARED = {
    "SetArrays": lambda o: setattr(o, "parts", o.list(o.source(7.0), o.number(8), o.source(9, "int16"))),
    "SetObject": lambda o: setattr(o, "value", o.source([7, 8, 9])),
    "UnpickleOwn": lambda o: o.arrays.insert(0, ub.asarray([1, 2, 3, 4, 5, 6], dtype="uint8", device="host")),
}
ARGUMENT = ("Asarray", "UnpickleOwn", "Function")  # the array is an argument, which a change may release before it is read
PLACES = {"host": {"device": "host"}} | ({"device": {"usm_type": "device"}, "shared": {"usm_type": "shared"}} if memory.sycl() else {})


@functools.cache
def undisturbed(name, place):
    """Returns the result without changes, and the number of calls of foreign code."""
    with producers.unraisable():
        operation = Operation(name, -1, "collect", PLACES[place])
        answer = values_of(operation.run())
    return answer, operation.hook.calls


def run_with_change(name, k, what, place):
    want, _ = undisturbed(name, place)
    with producers.unraisable():
        operation = Operation(name, k, what, PLACES[place])
        before, answer, completed = operation.before, None, False
        try:
            answer = values_of(operation.run())
        except ERRORS as e:
            if what in HARMLESS and not (what == "release" and name in ARGUMENT and "released" in str(e)):
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
    left = engine.live(before, 60) - before  # host tasks of dpnp hold their arguments until they get the GIL
    if left > 0:
        raise AssertionError(f"{left} owners are left after {about!r}")


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
    box, before, turns = [], owners(), itertools.cycle(e["changes"])

    def change():
        operation = box[0]
        operation.what = next(turns)
        operation.change()

    with producers.unraisable():
        with changing.another_thread(change):
            for _ in range(e["rounds"]):
                operation = Operation(e["operation"], -1, "collect", PLACES[e["place"]])
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
        operation = answer = None
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
