"""The C exchange API: arbitrary tables of other types. test_exchange.py has the functions of Array's."""

import ctypes as ct

import capi
import usmbridge as ub
from robust import memory, oracles, producers, strategies
from robust.engine import target
from robust.test_dlpack import check_elements, in_usm, readable

# C functions of Python that return 0 and leave an error set.
FAILING = {"PyErr_NoMemory": MemoryError, "PyErr_BadArgument": TypeError}


def table(r):
    rarely = strategies.rarely
    return {
        "tensor": dict(strategies.tensor_fields(r, memory.places()), versioned=True),
        "majors": strategies.times(r, r.randint(1, 3), lambda r: r.choice([1, 1, 1, 2, 0, 0xFFFFFFFF])),
        "from_py": r.choice(["give", "give", "give", "give", "give", "give", "fail", "nothing", "raise", "NULL", *FAILING]),
        "rc": r.choice([0, 0, 0, 0, 0, 0, -1, 1]),
        "stream": r.choice(["NULL", "none", "queue", "fail", "raise", "collect", *FAILING]),
        "name": "other" if rarely(r, 15) else "dlpack_exchange_api", "fallback": r.choice(["none", "raise", "numpy"]),
        "type": r.choice(["torch"] * 6 + ["subclass", "other"]), "flag": r.choice(["none"] * 8 + ["requires_grad", "is_conj", "is_neg"]),
        "end": r.choice(["del", "export"]), "take": r.choice(["from_dlpack", "from_dlpack", "asarray", "cute"]),
    }


class Api:
    """A type with a table made of an example."""

    def __init__(self, e, tensor):
        self.e, self.tensor, self.given = e, tensor, 0
        self.tables = [capi.ExchangeAPI(major, 3) for major in e["majors"]]
        for newer, older in zip(self.tables, self.tables[1:]):
            newer.prev = ct.addressof(older)
        self.from_py, self.stream = capi.FROM_PY(self.give), capi.STREAM(self.work)
        for t in self.tables:
            t.from_py = self.address(e["from_py"], self.from_py)
            t.stream = self.address(e["stream"], self.stream)
        self.name = e["name"].encode()
        members = {"__dlpack_c_exchange_api__": capi.py.PyCapsule_New(ct.addressof(self.tables[0]), self.name, None), "keep": self}
        if e["fallback"] == "raise":
            members["__dlpack__"] = self.fall_back
        elif e["fallback"] == "numpy":
            members["__dlpack__"] = lambda x, **keywords: tensor.capsule()
        if e["flag"] != "none":
            members[e["flag"]] = True if e["flag"] == "requires_grad" else lambda x: True
        cls = type("Api", (capi.TorchFlags,), members)
        self.torch = type("Tensor", (), {}) if e["type"] == "other" else cls
        self.object = type("Sub", (cls,), {})() if e["type"] == "subclass" else cls()

    @staticmethod
    def address(what, callback):
        if what == "NULL":
            return None
        return ct.cast(getattr(ct.pythonapi, what) if what in FAILING else callback, ct.c_void_p).value

    def fall_back(self, **keywords):
        raise LookupError("mine")

    def give(self, x, out):
        what = self.e["from_py"]
        if what == "raise":
            raise KeyError("lost")
        if what == "give":
            self.given += 1
            out[0] = ct.addressof(self.tensor.m)
        return -1 if what == "fail" else self.e["rc"]

    def work(self, kind, index, out):
        what = self.e["stream"]
        if what == "collect":
            ub.from_dlpack(capi.Producer(memory.window().address))
        if what == "raise":
            raise KeyError("lost")
        if what == "queue" and kind == 14:
            out[0] = memory.queue().addressof_ref()
        return -1 if what == "fail" else 0


def model(api):
    """Returns the result of from_dlpack by the rules for tables: Facts, Refused, or None if both are right."""
    e, tensor = api.e, api.tensor
    usable = e["name"] == "dlpack_exchange_api" and 1 in e["majors"] and e["from_py"] != "NULL"
    if e["type"] != "other" and e["flag"] == "is_neg":
        return oracles.Refused(BufferError)
    by_table = usable and e["type"] == "torch" and e["flag"] == "none" and e["from_py"] == "give" and e["rc"] == 0
    if not by_table and e["fallback"] != "numpy":
        return oracles.Refused(LookupError if e["fallback"] == "raise" else TypeError)
    want = oracles.attempt(oracles.tensor, tensor.fields(), 1 if memory.sycl() else 0)
    if isinstance(want, oracles.Refused) or tensor.device[0] != 14:
        return want
    known = in_usm(want, tensor)
    if known and usable and e["stream"] in FAILING:
        return oracles.Refused(FAILING[e["stream"]])
    return want if known else oracles.Refused(BufferError) if known is False else None


@target(table)
def test_exchange(e):
    tensor = producers.Tensor(e["tensor"])
    api = Api(e, tensor)
    want = model(api)
    with producers.unraisable(), capi.as_torch(api.torch):
        if e["take"] == "cute" and e["fallback"] != "numpy" and isinstance(want, oracles.Facts) and want.address is not None:
            try:  # a tensor of CuTe refuses more layouts, strides and element types
                oracles.equal(ub.cute.from_dlpack(api.object).data_ptr, want.address, "the pointer of a tensor of CuTe", e)
            except (ValueError, TypeError):
                pass
        elif e["take"] == "cute" and isinstance(want, oracles.Refused) and want.kinds == (LookupError,):
            oracles.outcome(lambda: ub.cute.from_dlpack(api.object), want.kinds, e)
        take = ub.asarray if e["take"] == "asarray" and e["fallback"] != "none" else ub.from_dlpack  # asarray asks for __dlpack__ first
        if want is None:
            a = oracles.outcome(lambda: take(api.object), (BufferError, MemoryError, TypeError), e)
        else:
            a = oracles.expect(lambda: take(api.object), want, e)
        if a is not None and want is not None and readable(want, tensor):
            check_elements(a, want, e)
        if a is not None and e["end"] == "export":
            try:
                c = a.__dlpack__(max_version=(1, 0))
                a = ub.from_dlpack(c)
                del c
            except BufferError:
                pass
        taken = a is not None
        del a
        memory.settled()
        # A table that returned a tensor and failed still owns it; one that succeeded does not.
        asked = api.given and e["rc"] == 0
        if asked:
            oracles.equal(tensor.deleted, api.given if tensor.m.deleter else 0, "deletions", e)
        elif not taken and e["fallback"] != "numpy":
            oracles.equal(tensor.deleted, 0, "deletions", e)
