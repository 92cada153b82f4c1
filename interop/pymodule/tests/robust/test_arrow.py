"""Import by Arrow's C data interface: structs in which some fields are arbitrary. The import succeeds or raises the right kind
of error, and releases each struct once; test_arrow_in.py has the rules."""

import json
import struct

import usmbridge as ub
from arrow_abi import Producer
from robust import memory, oracles, strategies
from robust.engine import target

FORMATS = [bytes([c]) for c in b"cCsSiIlLefgb"]
WRONG = [b"", b"u", b"z", b"n", b"ii", b"d:5,0", b"tss:", b"+s", b"+l", b"+w:", b"+w:-1", b"+w:007", b"+w:2147483648", b"+w:3 ", b"\xff", b"i" * 5000]
NAMES = [b"arrow.fixed_shape_tensor", b"", b"arrow.bool8", b"arrow.uuid", b"arrow.fixed_shape_tensor" + b"x" * 60, b"arrow.fixed_shape_tensor\0", b"\xff"]


def text(r):
    """Returns parameters of a tensor, some of them right for rows of three."""
    number = lambda: r.choice([0, 1, 2, 3, -1, True, None, "3", 1.0, 1.5, [], strategies.wild(r), 1 << 64])  # noqa: E731
    d = {"shape": r.choice([[3], [3, 1], [1, 3] + [1] * r.choice([1, 60, 61, 62]), [number() for _ in range(r.randint(0, 4))]])}
    if r.randrange(2):
        d["permutation"] = [number() for _ in range(r.randint(0, 3))] if r.randrange(2) else sorted(range(len(d["shape"])), key=lambda _: r.random())
    whole = json.dumps(d).encode()
    return r.choice([whole, whole, whole[: r.randrange(40)] + r.choice([b"", b"\0", b"\xff"]), b" " * r.choice([1, 3000, 4096, 100000]) + whole,
                     b"[" * 4000, b'{"shape":[3],"shape":[3]}', b'{"shape":["\xed\xa0\x80"]}', b'{"shape":[%s]}' % (b"9" * 3900)])


def metadata(r):
    length = lambda n: struct.pack("i", r.choice([-1, -(1 << 31), (1 << 24) + 1, (1 << 31) - 1]) if strategies.rarely(r, 8) else n)  # noqa: E731
    words = [b"ARROW:extension:name", r.choice(NAMES), b"ARROW:extension:metadata", text(r)][: r.choice([2, 4, 4])]
    return length(len(words) // 2) + b"".join(length(len(word)) + word for word in words) + bytes(8)


def changes(r):
    """Yields names of fields and values for them, as Producer takes them."""
    for what in ("array", "leaf"):
        yield f"{what}_length", r.choice([0, 1, 3, 4, 5, 11, 12, 13, strategies.wild(r)])
        yield f"{what}_offset", r.choice([0, 1, 3, strategies.wild(r)])
        yield f"{what}_null_count", r.choice([-2, -1, 1, 2, 99, strategies.wild(r)])
        yield f"{what}_n_buffers", r.choice([-1, 0, 1, 2, 3, 1 << 40])
        yield f"{what}_n_children", r.choice([-1, 0, 1, 2, 1 << 62])
        yield f"{what}_dictionary", 64
        yield f"{what}_nothing", r.choice(["release", "buffers", "children"])
    for what in ("schema", "leafschema"):
        yield f"{what}_format", r.choice(FORMATS + WRONG)
        yield f"{what}_n_children", r.choice([-1, 0, 1, 2, 1 << 62])
        yield f"{what}_dictionary", 64
        yield f"{what}_metadata", metadata(r)
        yield f"{what}_nothing", r.choice(["release", "format", "children"])
    yield "leaf_buffers", r.choice([(None, None), (None, 1), (None, (1 << 64) - 8), (None, 1 << 63)])
    yield "device_device_type", r.choice([-1, 0, 2, 14])
    yield "device_sync_event", 64
    yield "names", r.choice([(b"arrow_schema", b"arrow_schema"), (b"arrow_array", b"arrow_schema")])
    yield "name", r.choice(NAMES)
    yield "text", text(r)


def example(r):
    kind = r.choice(["values", "lists", "tensors"])
    say = r.sample([(k, v) for k, v in changes(r) if kind == "tensors" or k not in ("name", "text")], r.choice([0, 1, 1, 1, 2, 3]))
    return {"kind": kind, "device": bool(r.randrange(2)), "say": say, "copy": r.choice([None, None, True, False])}


def bounded(say):
    """Reports whether the structs describe only memory that exists. The import cannot check that, and reads it for a copy."""
    numbers = [v for k, v in say.items() if k.endswith(("_length", "_offset"))]
    return all(abs(n) < 16 for n in numbers) and "leaf_buffers" not in say


@target(example, 300)
def test_arrow(e):
    say = dict(e["say"])
    inside = bounded(say)
    if not inside:
        say = {k: b"c" if v == b"b" else v for k, v in say.items()}  # bits are copied
    p = Producer(e["kind"], device=e["device"], **say)
    a = oracles.outcome(lambda: ub.asarray(p, copy=e["copy"] if inside else None), (TypeError, BufferError, ValueError), e)
    top = "leaf" if e["kind"] == "values" else "top"
    if a is not None:
        oracles.equal(a.size == 0 or a.readonly or a.dtype == "bool" or bool(e["copy"]), True, "read-only unless it is a copy", e)
        if inside and a.size <= 64:
            oracles.equal(a.copy().tolist(), a.tolist(), "elements", e)
        view = a[:1]
        del a, view
    memory.settled()
    for what, thing, names in (("schema", p.schema, ("schema_nothing", "leafschema_nothing")), ("array", p.memory.array, ("array_nothing", "leaf_nothing"))):
        absent = "release" in [say.get(name) for name in names[: 2 if e["kind"] == "values" else 1]]
        taken = "names" not in say and not absent
        oracles.equal((p.released.get(f"{top} {what}", 0), bool(thing.release)), (int(taken), not taken and not absent), f"releases of the {what}", e)
