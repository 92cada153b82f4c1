"""Lifetimes: arrays of every kind of memory, views, buffers, exports, NumPy's views, pickles out of band, weak references
and cycles, made and released in any order. A model knows the holders of each memory: live objects can be read and have
the written values, released ones raise an error, and the counters are exact."""

import contextlib
import copy
import gc
import importlib
import pickle
import weakref

import usmbridge as ub
from robust import engine, memory, strategies
from robust.engine import target

SOURCES = ["host", "device", "shared", "usm host", "numpy", "bytes", "memoryview", "dictionary", "cycle"]
STEPS = ["new", "new", "view", "view", "readonly", "retype", "release", "release", "with", "del", "del", "buffer", "ndarray", "capsule", "take", "dictionary", "weak",
         "copy", "pickle", "out of band", "collect", "write", "like", "list", "numba", "cute", "iterate", "churn"]


def example(r):
    n = r.randint(3, 24)
    return {"steps": strategies.times(r, n, lambda r: (r.choice(STEPS), r.choice(sources()), r.randrange(1 << 16), r.randrange(1 << 16)))}


def sources():
    return SOURCES if memory.sycl() else [s for s in SOURCES if s not in ("device", "shared", "usm host", "dictionary", "cycle")]


class Owner:
    """Memory by the dictionary, of an object that can hold arrays made of itself."""

    def __init__(self):
        self.memory = memory.usm("shared")
        self.__sycl_usm_array_interface__ = {"data": (self.memory._pointer, False), "shape": (8,), "strides": None, "typestr": "<f4", "version": 1, "syclobj": memory.queue()}


class Thing:
    """A holder of memory: block is a number for the memory, whose contents are in the world's values."""

    def __init__(self, sort, x, block, ref=None):
        self.sort, self.x, self.block, self.ref, self.released = sort, x, block, ref, False


class World:
    def __init__(self):
        self.things, self.blocks, self.values, self.next = [], {}, {}, 0
        self.base = ub.stats()["live_buffers.all.current"]

    # -- making

    def new(self, source, i, k):
        value = float(k % 100)
        self.next += 1
        if source in ("dictionary", "cycle"):
            o = Owner()
            a = ub.from_usm_array_interface(o)
            if source == "cycle":
                o.back = a
            del o
            value = None  # contents that other arrays share
        elif source in ("numpy", "bytes", "memoryview"):
            np = importlib.import_module("numpy")
            x = np.full(8, value, "float32")
            a = ub.asarray({"numpy": lambda: x, "memoryview": lambda: memoryview(x), "bytes": lambda: memoryview(bytearray(x.tobytes())).cast("f")}[source]())
        else:
            place = {"device": "host"} if source == "host" else {"usm_type": source.split()[-1]}
            a = ub.full(8, value, "float32", **place)
        self.values[self.next] = value
        self.add("array", a, self.next)

    def add(self, sort, x, block):
        self.things.append(Thing(sort, x, block))

    def arrays(self, alive=True):
        return [t for t in self.things if t.sort == "array" and not (alive and t.released)]

    def pick(self, i, alive=True):
        found = self.arrays(alive)
        return found[i % len(found)] if found else None

    # -- steps on an array

    def step(self, step):
        what, source, i, k = step
        if what == "new":
            return self.new(source, i, k)
        if what == "del":
            if self.things:
                del self.things[i % len(self.things)]
            return None
        if what == "collect":
            return gc.collect(1)
        if what == "churn":
            return [ub.full(8, -1.0, device="host") for _ in range(4)] and None
        t = self.pick(i)
        if t is None:
            return None
        a = t.x
        readable = a.usm_type != "device"
        if what == "view":
            self.add("array", [a[2:], a[::-1], a.reshape(-1, 1)[:, 0], a.T, a[...]][k % 5], t.block)
        elif what == "readonly":
            self.add("array", a.as_readonly(), t.block)
        elif what == "retype":
            self.add("array", a.view("int32").view("float32"), t.block)
        elif what == "iterate" and len(a):
            self.add("array", list(a)[-1].reshape(1), t.block)
        elif what == "release":
            a.release()
            t.released = True
        elif what == "with":
            with contextlib.suppress(LookupError), a:
                if k % 2:
                    raise LookupError
            t.released = True
        elif what == "weak":
            r = weakref.ref(a)
            if r() is not a:
                raise AssertionError("a weak reference")
        elif what == "buffer" and readable:
            self.add("buffer", memoryview(a), t.block)
        elif what == "ndarray" and readable:
            self.add("ndarray", importlib.import_module("numpy").asarray(a), t.block)
        elif what == "capsule":
            self.add("capsule", a.__dlpack__(max_version=(1, 3)), t.block)
        elif what == "take":
            found = [c for c in self.things if c.sort == "capsule"]
            if found:
                c = found[k % len(found)]
                c.sort, c.x = "array", ub.from_dlpack(c.x)
        elif what == "dictionary" and a.usm_type:
            self.add("array", ub.from_usm_array_interface(a), t.block)
        elif what in ("copy", "like", "list", "pickle"):
            self.next += 1
            self.values[self.next] = self.values[t.block]
            b = {"copy": lambda: copy.deepcopy(a), "like": lambda: ub.full_like(a, a[0].item()) if a.size else a.copy(), "list": lambda: ub.asarray([a])[0].copy(),
                 "pickle": lambda: pickle.loads(pickle.dumps(a, k % 6))}[what]()
            if self.values[t.block] is None and what == "like":
                self.values[self.next] = None
            self.add("array", b, self.next)
        elif what == "out of band":
            buffers = []
            data = pickle.dumps(a, 5, buffer_callback=buffers.append)
            b = pickle.loads(data, buffers=buffers)
            shares = readable and b.size and (a.strides == (1,) or a.size < 2)
            if not shares:
                self.next += 1
                self.values[self.next] = self.values[t.block]
            self.add("array", b, t.block if shares else self.next)
            if shares:
                self.add("pickle buffers", buffers, t.block)
        elif what == "write" and not a.readonly and self.values[t.block] is not None:
            v = float(k % 100)
            if a.size == 8:
                a.fill(v)
                self.values[t.block] = v
        elif what == "cute":
            self.add("cute", ub.cute.from_dlpack(a), t.block)
        elif what == "numba" and readable and a.size:
            self.add("ndarray", tail()(a), t.block)
        return None

    # -- looking

    def check(self, about):
        for t in self.things:
            if t.sort == "array" and t.released:
                try:
                    t.x.shape
                except ValueError as e:
                    if "released" in str(e):
                        continue
                raise AssertionError(f"a released array has a shape: {about!r}")
            value = self.values[t.block]
            got = {"array": lambda: t.x.tolist(), "buffer": lambda: t.x.tolist(), "ndarray": lambda: t.x.tolist()}.get(t.sort, lambda: [])()
            if value is not None and any(v != value for v in got):
                raise AssertionError(f"{t.sort}: {got}, written was {value}: {about!r}")

    def end(self, about):
        self.things.clear()
        n = engine.live(self.base, 60)
        if n > self.base:
            raise AssertionError(f"{n - self.base} owners are alive in the end of {about!r}")


class Tail:
    function = None


def tail():
    """A compiled function that returns a view."""
    if Tail.function is None:
        Tail.function = importlib.import_module("numba").njit(lambda a: a[1:])
    return Tail.function


@target(example, 60)
def test_lives(e):
    world = World()
    for step in e["steps"]:
        world.step(step)
        world.check(e)
    world.end(e)
