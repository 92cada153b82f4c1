"""Changes by callbacks: at the k-th call of foreign code one field of the producer changes."""

import ctypes as ct
import gc

import pytest

import capi
import usmbridge as ub
from robust import changing, memory, producers
from robust.changing import ERRORS, FIELDS, Integer, Key, Struct, Truth, check_array, check_cute, watched
from robust.engine import target
from robust.test_buffers import Exporter, current


class Path:
    """One way to import or export, with everything in it that can change."""

    changes = FIELDS
    fields = {}

    def __init__(self, k, what):
        self.what = what
        self.hook = changing.CallHook(k, self.change)
        self.capsules = []
        self.build()

    def build(self):
        self.struct = Struct(**self.fields)

    def change(self):
        name = self.what
        if name == "rename":
            for c in self.capsules:
                capi.py.PyCapsule_SetName(c, capi.NAMES[2])
        elif name == "rename to nothing":
            for c in self.capsules:
                capi.py.PyCapsule_SetName(c, None)
        elif name == "take":
            for c in self.capsules:
                try:
                    self.taken = ub.from_dlpack(c)
                except ERRORS:
                    pass
        elif name == "collect":
            gc.collect()
        elif name == "raise":
            raise LookupError("mine")
        else:
            self.struct.change(name)

    def capsule(self, **keywords):
        self.hook()
        c = self.struct.tensor.capsule()
        self.exports += 1
        self.capsules.append(c)
        self.hook()
        return c

    def device(self, *ignored):
        self.hook()
        return Integer(self.hook, self.struct.t.device_type), 0

    def run(self):
        raise NotImplementedError

    def check(self, result):
        (check_cute if hasattr(result, "layout") else check_array)(result, (type(self).__name__, self.what, self.hook.k))

    taken = None
    exports = 0  # from_dlpack asks again for memory of the host if it cannot import the first tensor

    def end(self, succeeded):
        self.capsules.clear()
        self.taken = None
        memory.settled()
        if self.what.startswith("rename"):
            return  # the renamed capsule belongs to the callback
        n = self.struct.deleted
        if n > max(1, self.exports) or (succeeded and n < 1):
            raise AssertionError(f"the deleter ran {n} times for {type(self).__name__}, {self.what}, {self.hook.k}")


MORE = ["rename", "rename to nothing", "take", "collect", "raise"]


class FromDlpack(Path):
    changes = FIELDS + MORE
    name = "robust.Giver"

    def members(self):
        return {"__dlpack__": lambda x, **k: self.capsule(**k), "__dlpack_device__": self.device}

    def run(self):
        return self.take(watched(self.hook, self.name, self.members()))

    def take(self, x):
        return ub.from_dlpack(x)


class FromDlpackFar(FromDlpack):
    fields = {"device": (2, 0)}

    def capsule(self, **keywords):
        if "dl_device" in keywords:
            self.struct.t.device_type = 1
        return super().capsule(**keywords)

    def take(self, x):
        return ub.from_dlpack(x, device="host")


class FromDlpackLikeDpnp(FromDlpack):
    name = "dpnp.tensor.usm_ndarray"
    fields = {"place": "shared", "at": 1024} if memory.sycl() else {}

    def members(self):
        return {**super().members(), "sycl_queue": property(lambda x: (self.hook(), memory.queue() if memory.sycl() else None)[1])}

    def check(self, result):
        if self.struct.tensor.e["place"] == "shared" and self.what != "data":
            check_array(result, (type(self).__name__, self.what, self.hook.k), *memory.base("shared"))


class FromDlpackEmpty(FromDlpack):
    """Without data, on a SYCL device: memory is allocated for it with the GIL released."""

    fields = {"device": (14, 0), "data": 0, "shape": (0, 3), "strides": (3, 1)} if memory.sycl() else {}

    def check(self, result):
        if result.size == 0:
            super().check(result)


class Exchange(Path):
    changes = FIELDS + ["collect", "replace the table"]
    function = staticmethod(ub.from_dlpack)

    def build(self):
        super().build()
        self.table, self.table2 = capi.ExchangeAPI(1, 3), capi.ExchangeAPI(2, 0)
        self.from_py, self.stream = capi.FROM_PY(self.give), capi.STREAM(self.work)
        self.table.from_py, self.table.stream = ct.cast(self.from_py, ct.c_void_p), ct.cast(self.stream, ct.c_void_p)

    def change(self):
        if self.what == "replace the table":
            self.table.stream = None
            self.table.major = 2
        else:
            super().change()

    def give(self, x, out):
        self.hook()
        out[0] = ct.addressof(self.struct.m)
        self.hook()
        return 0

    def work(self, kind, index, out):
        self.hook()
        return 0

    def run(self):
        flags = {k: v for k, v in vars(capi.TorchFlags).items() if not k.startswith("_")}
        x = watched(self.hook, "torch.Tensor", {"__dlpack_c_exchange_api__": capi.table(self.table), **flags})
        with capi.as_torch(type(x)):
            return self.function(x)


class Dictionary(Path):
    """Hostile objects in the dictionary, and keys that call back when they are looked up."""

    changes = ["clear", "swap", "junk", "pop", "lists", "attributes", "collect", "raise", "drop"]
    kind = "shared"

    def build(self):
        m = self.hook
        memory_ = memory.usm(self.kind, 1024)
        self.base, self.size = memory_._pointer, memory_.nbytes
        self.shape, self.strides = [Integer(m, 2), Integer(m, 3)], [Integer(m, 3), Integer(m, 1)]
        self.data = [self.base + 512, Truth(m, 0)]

        class Provider:
            def _get_capsule(self):
                m()
                return memory.queue()._get_capsule()

        values = {"version": 1, "data": self.data, "shape": self.shape, "strides": self.strides, "offset": Integer(m, 2), "typestr": "".join(["<", "f4"]),
                  "typedescr": [("", "".join(["<", "f4"]))], "syclobj": Provider()}
        self.d = {Key(k): v for k, v in values.items()}
        for k in self.d:
            k.hook = m
        # Numbers made here, not the interpreter's small ones: no other reference keeps them.
        self.members = {"__sycl_usm_array_interface__": self.d, "_pointer": self.base, "nbytes": self.size, "memory": memory_, "usm_data": property(lambda x: x)}

    def change(self):
        d, what = self.d, self.what
        if what == "clear":
            d.clear()
        elif what == "swap":
            d.update(shape=(1,), strides=None, offset=0, typestr="|u1", typedescr=[("", "|u1")], data=(self.base, True))
        elif what == "junk":
            for k in list(d):
                d[k] = [object()]
        elif what == "pop":
            for k in list(d)[::2]:
                del d[k]
        elif what == "lists":
            self.shape[:] = [1 << 40] * 64
            self.strides[:] = []
            self.data[:] = [None]
        elif what == "attributes":
            type.__setattr__(type(self.object), "nbytes", 1 << 60)
            type.__setattr__(type(self.object), "_pointer", 0)
        elif what == "drop":
            self.shape.clear()
            self.strides.clear()
            self.data.clear()
            d.clear()
            self.junk = ["".join(["|", "x", chr(65 + i % 26)]) for i in range(200)]
        else:
            super().change()

    name = "dpctl.memory.MemoryUSMShared"
    function = staticmethod(ub.from_usm_array_interface)

    def run(self):
        self.object = watched(self.hook, self.name, self.members)
        return self.function(self.object)

    def check(self, result):
        # A lie about the own allocation cannot be detected; this one stays within the memory.
        check_array(result, (type(self).__name__, self.what, self.hook.k), self.base, self.size)

    def end(self, succeeded):
        memory.settled()


class Buffer(Path):
    changes = ["buffer", "collect"]

    def build(self):
        e = {"format": b"f", "itemsize": 4, "ndim": 2, "len": 24, "readonly": 0, "shape_null": False, "strides": (12, 4), "suboffsets": False}
        self.shape, self.strides = (ct.c_ssize_t * 64)(2, 3), (ct.c_ssize_t * 64)(12, 4)
        current.update(e=e, asked=0, released=0, shape=self.shape, strides=self.strides, buf=memory.window().address + changing.AT)

    def change(self):
        if self.what == "buffer":
            self.shape[0], self.strides[0] = 1 << 40, 1 << 40
        else:
            gc.collect()

    def run(self):
        hook = self.hook

        class Watched(Exporter):
            def __getattribute__(self, key):
                hook()
                return object.__getattribute__(self, key)

        return ub.asarray(Watched())

    def check(self, result):
        if self.what != "buffer":
            check_array(result, (self.what, self.hook.k))

    def end(self, succeeded):
        memory.settled()
        if current["asked"] != current["released"]:
            raise AssertionError("a buffer was not released")


class Sequence(Path):
    changes = ["clear", "grow", "nest", "collect", "raise"]

    def build(self):
        m = self.hook

        class Number(Integer):
            def __float__(self):
                m()
                return 1.5

        self.list = [[Number(m, 1), 2.0], [3.0, Number(m, 4)]]

    def change(self):
        what = self.what
        if what == "clear":
            for inner in self.list:
                inner.clear()
            self.list.clear()
        elif what == "grow":
            self.list.extend([[1, 2]] * 1000)
            self.list[0].extend([1] * 1000)
        elif what == "nest":
            self.list[:] = [self.list]
        else:
            super().change()

    def run(self):
        return ub.asarray(self.list, device="host")

    def check(self, result):
        c = result.copy()
        changing.oracles.equal((c.shape, c.nbytes), (result.shape, result.nbytes), "a copy", self.what)

    def end(self, succeeded):
        memory.settled()


class Export(Path):
    """__dlpack__ with arguments that change the array's producer and the arguments themselves."""

    changes = FIELDS + ["collect", "raise", "arguments"]

    def build(self):
        super().build()
        self.array = ub.from_dlpack(self.struct.tensor.capsule())
        self.version, self.device_ = [Integer(self.hook, 1), Integer(self.hook, 0)], [Integer(self.hook, 1), Integer(self.hook, 0)]

    def change(self):
        if self.what == "arguments":
            self.version.clear()
            self.device_[:] = [14]
        else:
            super().change()

    def run(self):
        hook = self.hook

        class Stream:
            def _get_capsule(self):
                hook()
                raise AttributeError

        try:
            self.array.__dlpack__(stream=Stream())
        except ERRORS:
            pass
        c = self.array.__dlpack__(max_version=self.version, dl_device=self.device_, copy=Truth(self.hook, 0))
        a = ub.from_dlpack(c)
        changing.oracles.equal((a.shape, a.strides, str(a.dtype)), ((2, 3), (3, 1), "float32"), "an array keeps its layout", self.what)
        return a

    def end(self, succeeded):
        del self.array
        super().end(True)


class Index(Path):
    """Indices and shapes that run code: an array is immutable and stays alive."""

    changes = ["drop", "collect", "raise"]

    def build(self):
        self.box = [ub.asarray([[1, 2, 3], [4, 5, 6]], device="host")]

    def change(self):
        if self.what == "drop":
            self.box.clear()
        else:
            super().change()

    def run(self):
        m = self.hook
        key = slice(Integer(m, 0), Integer(m, 2), Integer(m, 1)), Integer(m, 1)
        a = self.box[0][key]
        b = a.reshape([Integer(m, 1), Integer(m, 2)]).transpose([Integer(m, 1), Integer(m, 0)])
        changing.oracles.equal(b.asnumpy().tolist(), [[2], [5]], "elements", self.what)
        return b

    def check(self, result):
        pass

    def end(self, succeeded):
        self.box.clear()
        memory.settled()


class Mark(Path):
    """Marks whose arguments release the tensor, or mark it."""

    changes = ["release", "mark", "collect", "raise"]

    def build(self):
        super().build()
        self.t = ub.cute.from_dlpack(self.struct.tensor.capsule())

    def change(self):
        if self.what == "release":
            self.t.release()
        elif self.what == "mark":
            self.t.mark_layout_dynamic()
        else:
            super().change()

    def run(self):
        m = self.hook
        self.t.mark_compact_shape_dynamic(Integer(m, 0), [Integer(m, 0), Integer(m, 1)], Integer(m, 2))
        self.t.mark_layout_dynamic(Integer(m, 1))
        return self.t

    def check(self, result):
        if not result.released:
            check_cute(result, self.what)

    def end(self, succeeded):
        self.t = None
        super().end(True)


def variant(base, name, /, **members):
    return type(name, (base,), members)


USM = [Dictionary, variant(Dictionary, "DictionaryUnknown", name="robust.Holder", function=staticmethod(ub.asarray)),
       variant(Dictionary, "DictionaryTensor", name="dpnp.tensor.usm_ndarray"), FromDlpackLikeDpnp, FromDlpackEmpty,
       variant(Exchange, "ExchangeUsm", fields=FromDlpackLikeDpnp.fields, check=FromDlpackLikeDpnp.check)]
PATHS = {p.__name__: p for p in [
    FromDlpack, variant(FromDlpack, "FromDlpackLegacy", fields={"versioned": False}),
    variant(FromDlpack, "FromDlpackDeviceCopy", take=lambda self, x: ub.from_dlpack(x, device="host", copy=Truth(self.hook, 0))), FromDlpackFar,
    variant(FromDlpack, "AsarrayDlpack", take=lambda self, x: ub.asarray(x)), variant(FromDlpack, "Cute", take=lambda self, x: ub.cute.from_dlpack(x)),
    Exchange, variant(Exchange, "CuteExchange", function=staticmethod(ub.cute.from_dlpack)), Buffer, Sequence, Export, Index, Mark] + (USM if memory.sycl() else [])}


def go(name, k, what):
    """Runs a path with one change at the k-th call; returns the number of calls, and whether the path succeeded."""
    with producers.unraisable():
        path = PATHS[name](k, what)
        result = None
        try:
            result = path.run()
        except ERRORS:
            pass
        if result is not None:
            path.check(result)
        succeeded = result is not None
        del result
        path.hook.busy = True
        path.end(succeeded)
    return path.hook.calls, succeeded


def example(r):
    name = r.choice(sorted(PATHS))
    return {"path": name, "k": r.randrange(40), "what": r.choice(PATHS[name].changes)}


@target(example)
def test_switches(e):
    go(e["path"], e["k"], e["what"])


@pytest.mark.parametrize("name", sorted(PATHS))
def test_every_call(name):
    """Makes every change at every call, after each path has run without changes."""
    calls, succeeded = go(name, -1, "collect")
    assert calls > 0 and succeeded, "no foreign code ran"
    for what in PATHS[name].changes:
        for k in range(calls):
            go(name, k, what)
