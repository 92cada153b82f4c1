"""Changes by threads: another thread writes into the producer during the import, with the GIL and without. test_changes.py has
changes of lists and arguments by another thread."""

import ctypes as ct

import capi
import usmbridge as ub
from robust import changing, memory, producers
from robust.changing import ERRORS, FIELDS, Struct, check_array, check_cute, write
from robust.engine import target
from robust.test_dictionaries import Holder, Known

# "data odd" is missing: unaligned elements of a window are refused, not read.
CHANGES = [f for f in FIELDS if f not in ("deleter", "version")]
PATHS = ["versioned", "legacy", "object", "cute", "exchange", "usm", "empty", "host", "dictionary", "known", "one capsule"]


def example(r):
    paths = [p for p in PATHS if memory.sycl() or p not in ("usm", "empty", "dictionary", "known")]
    return {"path": r.choice(paths), "change": r.choice(CHANGES), "how": r.choice(["fields", "whole"]), "rounds": r.choice([3, 10, 30])}


def struct_path(e):
    """Returns (take, step, ended): one import, one change by the other thread, and the final check."""
    path = e["path"]
    fields = {"destructor": False}
    if path == "legacy":
        fields["versioned"] = False
    if path == "usm":
        fields.update(place="shared", at=1024)
    if path == "empty":
        fields.update(device=(14, 0), data=0, shape=(0, 3))
    s = Struct(**fields)
    address, size = ct.addressof(s.m), ct.sizeof(s.m)
    extents = bytes(s.tensor.shape)
    s.change(e["change"])
    changed, changed_extents = bytes(s.m), bytes(s.tensor.shape)
    s.back()
    write(s.tensor.shape, extents, 512)
    x, exchanging = s.tensor, capi.exchanging(s.tensor)

    def by_table():
        with capi.as_torch(exchanging):
            return ub.from_dlpack(exchanging())

    take = {
        "object": lambda: ub.from_dlpack(x), "cute": lambda: ub.cute.from_dlpack(x), "host": lambda: ub.from_dlpack(x, device="host"),
        "exchange": by_table,
    }.get(path, lambda: ub.from_dlpack(x.__dlpack__()))
    turn = [0]

    def step():
        turn[0] ^= 1
        if e["how"] == "whole":  # ctypes releases the GIL for it
            write(address, changed if turn[0] else s.before, size)
            write(s.tensor.shape, changed_extents if turn[0] else extents, 512)
        elif turn[0]:
            s.change(e["change"])
        else:
            s.back()
            write(s.tensor.shape, extents, 512)

    base, room = memory.base("shared" if path == "usm" else "window")

    def check(a):
        if path == "cute":
            check_cute(a, e)
        elif path == "empty":
            changing.oracles.equal(0 in a.shape or a.usm_type is None, True, "an empty tensor", e)
        elif not (path == "usm" and e["change"] == "data"):
            check_array(a, e, base, room)

    def ended(taken):
        s.back()
        memory.settled()
        if path == "exchange":  # each call exports a tensor that ends
            taken = s.deleted
        changing.oracles.equal(s.deleted, taken, "deletions", e)

    return take, step, check, ended


def dictionary_path(e):
    h = Known() if e["path"] == "known" else Holder()
    m = h.memory = memory.usm("shared", 1024)
    h._pointer, h.nbytes = m._pointer, m.nbytes
    shape, strides = [2, 3], [3, 1]
    good = {"version": 1, "data": [m._pointer + 512, False], "shape": shape, "strides": strides, "offset": 0, "typestr": "<f4", "syclobj": memory.queue()}
    h.__sycl_usm_array_interface__ = d = dict(good)
    others = [
        lambda: d.clear(), lambda: d.update(good), lambda: shape.clear(), lambda: shape.extend([2, 3]), lambda: d.update(shape=(4, 2), strides=(1, 4)),
        lambda: d.update(typestr="|u1"), lambda: d.update(shape=tuple([1] * 64), strides=None), lambda: d.update(data=(m._pointer, True)),
        lambda: d.update(shape=(1 << 40, 1 << 40)), lambda: d.pop("data", None), lambda: strides.__setitem__(slice(None), [1 << 62, 1]),
        lambda: strides.__setitem__(slice(None), [3, 1]), lambda: d.update(offset="".join(["1", "2"])), lambda: setattr(h, "nbytes", 8), lambda: setattr(h, "nbytes", m.nbytes),
    ]
    turn = [0]

    def step():
        others[turn[0] % len(others)]()
        turn[0] += 1

    def check(a):
        check_array(a, e, m._pointer, m.nbytes)

    return (lambda: ub.from_usm_array_interface(h)), step, check, lambda taken: memory.settled()


def capsule_path(e):
    """Both threads consume the same capsules: one of them gets each."""
    s = Struct(destructor=False)
    box = [s.tensor.capsule()]
    got = []

    def step():
        try:
            got.append(ub.from_dlpack(box[0]))
        except ERRORS:
            pass
        got.clear()

    made = [1]

    def take():
        box[0] = s.tensor.capsule()
        made[0] += 1
        return ub.from_dlpack(box[0])

    def ended(taken):
        got.clear()
        memory.settled()
        n = s.deleted
        if not taken <= n <= made[0]:
            raise AssertionError(f"{n} deletions of {made[0]} tensors, {taken} taken here: {e!r}")

    return take, step, lambda a: check_array(a, e), ended


@target(example, 60)
def test_threads(e):
    path = {"dictionary": dictionary_path, "known": dictionary_path, "one capsule": capsule_path}.get(e["path"], struct_path)
    take, step, check, ended = path(e)
    taken, a = 0, None
    with producers.unraisable():
        with changing.another_thread(step):
            for _ in range(e["rounds"]):
                a = None
                try:
                    a = take()
                except ERRORS:
                    continue
                taken += 1
                check(a)
        a = None
        ended(taken)
