"""from_dlpack: managed tensors byte by byte, from capsules and from objects."""

import ctypes as ct
import math

import capi
import usmbridge as ub
from robust import memory, oracles, producers, strategies
from robust.engine import target


def example(r):
    return {"tensor": strategies.tensor_fields(r, memory.places()), "via": r.choice(["capsule", "object"]),
            "end": r.choice(["del", "view", "export", "thread", "everything"])}


def in_usm(facts, tensor):
    """Reports whether the kDLOneAPI span is in memory that such a tensor can name; None if that is unknown."""
    e = tensor.e
    if facts.address is None:
        if tensor.data == 0:
            return True
        lo = hi = tensor.data
    else:
        lo, hi = facts.span()
    base, size = memory.base(e["place"]) if e["place"] != "window" else (0, 0)
    if e["place"] != "foreign" and base <= lo and hi <= base + size and lo < base + size:
        return True
    first, last = memory.pointer_type(lo), memory.pointer_type(max(lo, hi - 1))
    if facts.address is None or (first and first == last):
        return None
    return False


def model(tensor):
    want = oracles.attempt(oracles.tensor, tensor.fields(), 1 if memory.sycl() else 0)
    if isinstance(want, oracles.Refused) or tensor.device[0] != 14:
        return want
    known = in_usm(want, tensor)
    return want if known else oracles.Refused(BufferError) if known is False else None


def readable(facts, tensor):
    if facts is None or facts.address is None or tensor.e["place"] in ("device", "foreign"):
        return False
    base, size = memory.base(tensor.e["place"])
    lo, hi = facts.span()
    return base <= lo and hi <= base + size and len(facts.shape) < 9 and hi - lo <= 512 and math.prod(facts.shape) <= 512


def whole(facts):
    """Reports whether the first element is a whole number of elements from the lowest byte, which Go requires. With elements
    of six bits before it, it need not be."""
    return (facts.address - facts.span()[0]) * 8 % facts.bits == 0


def check_elements(a, facts, about):
    if not whole(facts):
        oracles.outcome(a.copy, (ValueError,), about)
        return
    c = a.copy()
    got = int.from_bytes(ct.string_at(c._pointer, c.nbytes), "little") & ((1 << c.size * facts.bits) - 1)
    oracles.equal(got, facts.elements(ct.string_at), "elements", about)


def everything(a):
    """Reads everything that depends on the description of an array, or its elements."""
    for f in (lambda: a.__sycl_usm_array_interface__, lambda: ub.from_dlpack(a), lambda: a.__dlpack__(max_version=(1, 0)), a.__dlpack__,
              lambda: a.__array_interface__, lambda: a.__dlpack_device__(), lambda: a[..., :1], lambda: a[::-1].T, lambda: a.reshape(-1) if a.size < 500 else None,
              lambda: memoryview(a), lambda: ub.cute.from_dlpack(a).mark_layout_dynamic(), lambda: ub.asarray(a, dtype="float32") if a.size < 500 else None):
        try:
            f()
        except (TypeError, ValueError, OverflowError, BufferError, LookupError, AttributeError):
            pass


def end(a, how, inside):
    if how == "everything":
        everything(a) if inside else a.__dlpack_device__()
        if inside and a.size < 500:
            oracles.equal("Array" in repr(a), True, "repr")
    if how == "view":
        v = a[...]
        del a
        oracles.equal(v.ndim, len(v.shape), "a view")
    elif how in ("export", "thread"):
        try:
            c = a.__dlpack__(max_version=(1, 3))
        except BufferError:
            return
        del a
        m = capi.tensor(c)
        capi.py.PyCapsule_SetName(c, capi.NAMES[2])
        if how == "export":
            capi.delete(ct.addressof(m))
        else:  # on a thread that is unknown to Python
            memory.on_thread(m.deleter, ct.addressof(m))


@target(example, 1500)
def test_dlpack(e):
    tensor = producers.Tensor(e["tensor"])
    want = model(tensor)
    capsules = []

    def call():
        if e["via"] == "object":
            return ub.from_dlpack(tensor)
        capsules.append(tensor.capsule())
        return ub.from_dlpack(capsules[0])

    with producers.unraisable() as raised:
        if want is None:
            a = oracles.outcome(call, (BufferError,), e)
        else:
            a = oracles.expect(call, want, e)
        taken = a is not None
        if capsules:
            oracles.equal(capi.name(capsules[0]), (b"used_" if taken else b"") + tensor.name, "the capsule's name", e)
        if taken:
            facts = oracles.attempt(oracles.tensor, tensor.fields(), 1)
            if tensor.m.deleter and tensor.deleted and not (tensor.device[0] == 14 and a.size == 0):
                raise AssertionError(f"deleted while in use: {e!r}")
            inside = readable(facts, tensor)
            if inside:
                check_elements(a, facts, e)
            end(a, e["end"], inside and whole(facts))
            del a
        capsules.clear()
        memory.settled()
        tensor.check_ended(taken, 1)
    oracles.equal(set(raised) <= {LookupError}, True, f"raised aside: {raised}", e)
