"""Import by Arrow's C data interface: both structs field by field, their children, metadata and capsules. A valid column
becomes an array on its memory; others are refused; each struct is released once."""

import ctypes as ct
import itertools
import json
import math
import re
import struct

import usmbridge as ub
from arrow_abi import DeviceMemory, Memory, Schema, capsule
from robust import memory, oracles, strategies
from robust.engine import target

FORMATS = {b"c": "int8", b"C": "uint8", b"s": "int16", b"S": "uint16", b"i": "int32", b"I": "uint32", b"l": "int64", b"L": "uint64",
           b"e": "float16", b"f": "float32", b"g": "float64", b"b": "bool"}
TENSOR = b"arrow.fixed_shape_tensor"
NAMES = [TENSOR, TENSOR, TENSOR, b"", b"arrow.bool8", b"arrow.uuid", TENSOR + b"x" * 60, TENSOR + b"\0", b"\xff"]
MOST = 4096  # bytes that can be read although only the struct says that they exist


# ---- examples ----------------------------------------------------------------------------------------------


def array(r, length):
    rarely = strategies.rarely
    return {
        "length": strategies.wild(r) if rarely(r, 25) else length, "offset": strategies.wild(r) if rarely(r, 25) else r.choice([0, 0, 1, 3]),
        "null_count": r.choice([-2, 1, 2, 99, strategies.wild(r)]) if rarely(r, 8) else r.choice([0, 0, -1]),
        "bitmap": r.choice(["ones", "zeros", "some"]) if not r.randrange(4) else None,
        "buffers": "NULL" if rarely(r, 40) else "few" if rarely(r, 60) else "right", "n_buffers": r.choice([-1, 0, 1, 2, 3, 1 << 40]) if rarely(r, 40) else None,
        "n_children": r.choice([-1, 0, 1, 2, 1 << 62]) if rarely(r, 50) else None, "children": "NULL" if rarely(r, 60) else "NULL child" if rarely(r, 60) else "right",
        "dictionary": rarely(r, 60), "released": rarely(r, 60),
    }


def schema(r, form):
    rarely = strategies.rarely
    return {"format": r.choice([None, b"", b"u", b"z", b"n", b"ii", b"d:5,0", b"tss:", b"+s", b"+l", b"+w:", b"\xff", b"i" * 5000]) if rarely(r, 20) else form,
            "n_children": r.choice([-1, 0, 1, 2, 1 << 62]) if rarely(r, 50) else None, "children": "NULL" if rarely(r, 60) else "NULL child" if rarely(r, 60) else "right",
            "dictionary": rarely(r, 60), "released": rarely(r, 60)}


def text(r, size):
    """Returns parameters of a tensor, mostly of lists of that size."""
    kind = r.randrange(10)
    shape = [size] if kind < 4 or size % 2 else [2, size // 2]
    number = lambda r: r.choice([0, 1, 2, 3, size, -1, True, None, "3", 1.0, 1.5, [], strategies.wild(r), 1 << 64])  # noqa: E731
    if kind == 4:
        shape = [number(r) for _ in range(r.randint(0, 4))]
    elif kind == 5:
        shape = shape + [1] * r.choice([1, 2, 61, 62, 63])
    d = {"shape": shape}
    if r.randrange(2):
        d["permutation"] = [number(r) for _ in range(r.randint(0, 3))] if not r.randrange(3) else sorted(range(len(shape)), key=lambda _: r.random())
    if kind == 6:
        return r.choice(["", "{", "{}", "[3]", "null", "3", '{"shape":3}', '{"shape":{}}', '{"shape":[3}', '{"shape":[NaN]}', "[" * 4000, '{"shape":' + "[" * 3000 + "]" * 3000 + "}",
                         '{"shape":[1e0]}', '{"shape":["\ud800"]}', '{"\\u0000":1,"shape":[3]}', '{"shape":[0],"shape":[3]}', '{"shape":[3],"dim_names":7}', '{"shape":[%s]}' % ("9" * 3900)]).encode("utf-8", "surrogatepass")
    if kind == 7:
        return json.dumps(d).encode()[: r.randrange(40)] + r.choice([b"", b"\0", b"\xff"])
    if kind == 8:
        return b" " * r.choice([1, 3000, 4096, 100000]) + json.dumps(d).encode()
    if kind == 9:
        d["dim_names"] = ["x"] * r.randint(0, 3)
    return json.dumps(d).encode()


def metadata(r, name, parameters):
    pairs = [(b"ARROW:extension:name", name), (b"ARROW:extension:metadata", parameters)]
    if strategies.rarely(r, 8):
        pairs = r.choice([pairs[:1], pairs[1:], pairs[::-1], pairs + pairs[:1], [(b"k" * 40, b"v")] * 3 + pairs, [(b"ARROW:extension:names", b"x")], []])
    return {"pairs": tuple(pairs), "count": r.choice([-1, 1025, -(1 << 31), (1 << 31) - 1]) if strategies.rarely(r, 40) else None,
            "cut": (r.randrange(4), r.choice([-1, -(1 << 31), (1 << 24) + 1, (1 << 31) - 1])) if strategies.rarely(r, 40) else None}


def example(r):
    rarely = strategies.rarely
    kind = r.choice(["values", "values", "lists", "tensors", "tensors"])
    size, rows = r.choice([0, 1, 2, 3, 4, 6]), r.randint(0, 5)
    form = r.choice(list(FORMATS))
    number = str(size) if not rarely(r, 15) else r.choice(["", "-1", "007", "2147483647", "2147483648", "99999999999999999999", "3 ", "+3", str(size + 1)])
    extension = None
    if kind == "tensors":
        extension = metadata(r, r.choice(NAMES) if rarely(r, 6) else TENSOR, text(r, size))
    elif rarely(r, 10):
        extension = metadata(r, r.choice(NAMES), b"")
    bool8 = metadata(r, b"arrow.bool8", b"") if rarely(r, 15) else None
    n = (rows + 3) * size + 3
    return {
        "kind": kind, "top": schema(r, form if kind == "values" else b"+w:" + number.encode()), "leaf": schema(r, form) if kind != "values" else None,
        "array": array(r, rows), "child": array(r, n) if kind != "values" else None,
        "metadata": extension, "leaf metadata": bool8 if kind != "values" else None,
        "data": r.choice([0, 1, (1 << 64) - 8, 1 << 63]) if rarely(r, 30) else None, "at": r.choice([0, 0, 8, 64, 3]),
        "device": r.choice([None, None, (1, -1), (1, 0), (2, 0), (14, 0), (-1, 0), (0, 0)]), "event": rarely(r, 20),
        "gives": r.choice(["one", "list", "three", "raise", "swapped", "names", "nothing"]) if rarely(r, 25) else "pair",
        "copy": r.choice([None, None, None, True, False]), "end": r.choice(["del", "view", "export", "elements"]),
    }


# ---- the structs --------------------------------------------------------------------------------------------


class Column:
    """Both structs, as an example describes them; released counts the releases of each."""

    def __init__(self, e):
        self.e, self.released, self.keep = e, {}, []
        leaf_schema = leaf = None
        if e["leaf"]:
            leaf_schema, leaf = Schema(), Memory()
            self.fill_schema("leaf", leaf_schema, e["leaf"], e["leaf metadata"], None)
            self.fill_array("child", leaf, e["child"], None, self.data())
        self.schema, self.device = Schema(), DeviceMemory()
        self.fill_schema("top", self.schema, e["top"], e["metadata"], leaf_schema)
        self.fill_array("array", self.device.array, e["array"], leaf, None if leaf else self.data())
        if e["device"]:
            self.device.device_type, self.device.device_id = e["device"]
            self.device.sync_event = 64 if e["event"] else None

    def data(self):
        e = self.e
        return memory.window().address + e["at"] if e["data"] is None else e["data"]

    def releaser(self, kind, what):
        def release(p):
            self.released[what] = self.released.get(what, 0) + 1
            ct.memmove(ct.byref(p.contents, kind.release.offset), bytes(8), 8)

        call = dict(kind._fields_)["release"](release)
        self.keep.append(call)
        return call

    def children(self, thing, e, child, kind):
        thing.n_children = (1 if child else 0) if e["n_children"] is None else e["n_children"]
        if child is not None and e["children"] != "NULL":
            pointers = (ct.POINTER(kind) * 2)()
            if e["children"] == "right":
                pointers[0] = pointers[1] = ct.pointer(child)
            self.keep += [child, pointers]
            thing.children = pointers

    def fill_schema(self, what, s, e, extension, child):
        s.format, s.name = e["format"], b""
        if not e["released"]:
            s.release = self.releaser(Schema, what + " schema")
        if e["dictionary"]:
            self.keep.append(Schema())
            s.dictionary = ct.addressof(self.keep[-1])
        if extension:
            self.keep.append(ct.create_string_buffer(packed(extension) + bytes(8)))
            s.metadata = ct.addressof(self.keep[-1])
        self.children(s, e, child, Schema)

    def fill_array(self, what, a, e, child, data):
        a.length, a.offset, a.null_count = e["length"], e["offset"], e["null_count"]
        if not e["released"]:
            a.release = self.releaser(Memory, what + " array")
        if e["dictionary"]:
            self.keep.append(Memory())
            a.dictionary = ct.addressof(self.keep[-1])
        n = 1 if child is not None else 2
        a.n_buffers = n if e["n_buffers"] is None else e["n_buffers"]
        if e["buffers"] != "NULL":
            bits = None
            if e["bitmap"]:
                self.keep.append((ct.c_ubyte * MOST)(*[{"ones": 255, "zeros": 0, "some": 0xB7}[e["bitmap"]]] * MOST))
                bits = ct.addressof(self.keep[-1])
            pointers = (ct.c_void_p * 2)(bits, None if e["buffers"] == "few" else data)
            self.keep.append(pointers)
            a.buffers = pointers
        self.children(a, e, child, Memory)

    def give(self):
        e = self.e
        thing, name = (self.device, b"arrow_device_array") if e["device"] else (self.device.array, b"arrow_array")
        first, second = capsule(self.schema, b"arrow_schema"), capsule(thing, b"arrow_schema" if e["gives"] == "names" else name)
        if e["gives"] == "raise":
            raise LookupError("mine")
        return {"pair": (first, second), "names": (first, second), "one": (first,), "list": [first, second], "three": (first, second, None),
                "swapped": (second, first), "nothing": None}[e["gives"]]

    def object(self):
        members = {"__arrow_c_device_array__" if self.e["device"] else "__arrow_c_array__": lambda _: self.give()}
        return type("Column", (), members)()


def packed(m):
    words = [word for pair in m["pairs"] for word in pair]
    out = struct.pack("i", len(m["pairs"]) if m["count"] is None else m["count"])
    for i, word in enumerate(words):
        n = m["cut"][1] if m["cut"] and m["cut"][0] == i else len(word)
        out += struct.pack("i", n) + word
    return out


# ---- the model ----------------------------------------------------------------------------------------------


def extension(m):
    """Returns (name, parameters) of metadata; a BufferError if its lengths are invalid."""
    keys = b"ARROW:extension:name", b"ARROW:extension:metadata"
    if m is None:
        return b"", b""
    if m["count"] is not None or m["cut"] and m["cut"][0] < 2 * len(m["pairs"]):
        raise oracles.Refused(BufferError)
    if any([key for key, _ in m["pairs"]].count(key) > 1 for key in keys):
        raise oracles.Refused(BufferError)
    found = dict(m["pairs"])
    return tuple(found.get(key, b"") for key in keys)


def whole(n):
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= oracles.MAX64


def tensor(parameters, size):
    """Returns (shape, strides) of a row."""
    no = oracles.Refused(BufferError)
    if len(parameters) > 4095:
        raise no  # exceeds the buffer of the C code
    try:
        pairs = json.loads(parameters.decode(), object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        raise no from None
    if not isinstance(pairs, tuple) or len(dict(pairs)) != len(pairs):
        raise no
    d = dict(pairs)
    shape, order = d.get("shape"), d.get("permutation")
    if not isinstance(shape, list) or len(shape) > 63 or not all(map(whole, shape)):
        raise no
    if not oracles.fits(math.prod(n for n in shape if n)) or math.prod(shape) != size:
        raise no
    strides = oracles.c_order(shape)
    if order is not None:
        if not isinstance(order, list) or not all(map(whole, order)) or sorted(order) != list(range(len(shape))):
            raise no
        shape, strides = [shape[i] for i in order], [strides[i] for i in order]
    return tuple(shape), tuple(strides)


def values(s, m):
    """Returns the element type of values, and whether they are bits."""
    if s["format"] is None:
        raise oracles.Refused(BufferError)
    if s["dictionary"]:
        raise oracles.Refused(TypeError)
    name, _ = extension(m)
    boolean = name == b"arrow.bool8" and s["format"] == b"c"
    if name and not boolean or s["format"] not in FORMATS:
        raise oracles.Refused(TypeError)
    if s["n_children"] not in (None, 0):
        raise oracles.Refused(BufferError)
    return ("bool" if boolean else FORMATS[s["format"]]), s["format"] == b"b"


def counted(a, lists):
    """Checks lengths, and the buffers and children of the type."""
    right = a["length"] >= 0 and a["offset"] >= 0 and -1 <= a["null_count"] <= a["length"] and oracles.fits(a["length"] + a["offset"])
    n = (1, 1) if lists else (2, 0)
    right &= a["n_buffers"] in (None, n[0]) and a["buffers"] != "NULL" and not a["dictionary"]
    right &= a["n_children"] in (None, n[1]) and not (lists and a["children"] != "right")
    if not right:
        raise oracles.Refused(BufferError)


def nulls(a, first, n):
    if a["null_count"] == 0 or n == 0 or not a["bitmap"] and a["null_count"] < 0:
        return
    if not a["bitmap"] or a["bitmap"] == "zeros" or a["bitmap"] == "some" and any(not 0xB7 >> i % 8 & 1 for i in range(first, first + min(n, 8))):
        raise oracles.Refused(BufferError)


def model(e):
    """Returns the Facts of the array, or Refused with the first error in the order of the structs."""
    if e["gives"] == "raise":
        raise oracles.Refused(LookupError)
    if e["gives"] != "pair":
        raise oracles.Refused(TypeError)
    no, top, a = oracles.Refused(BufferError), e["top"], e["array"]
    if top["released"] or a["released"] or e["device"] and (e["device"][0] != 1 or e["event"]):
        raise no
    if top["format"] is None:
        raise no
    shape, strides = (), ()
    lists = top["format"].startswith(b"+w:") and not top["dictionary"]
    if lists:
        m = re.fullmatch(rb"\+w:([0-9]+)", top["format"])
        size = int(m[1]) if m else -1
        if not 0 <= size < 1 << 31 or not e["leaf"] or top["n_children"] not in (None, 1) or top["children"] != "right" or e["leaf"]["released"]:
            raise no
        name, bits = values(e["leaf"], e["leaf metadata"])
        kind, parameters = extension(e["metadata"])
        shape, strides = (size,), (1,)
        if kind == TENSOR:
            shape, strides = tensor(parameters, size)
        elif kind:
            raise oracles.Refused(TypeError)
    else:
        name, bits = values(dict(top, n_children=1 if e["leaf"] and top["n_children"] is None else top["n_children"]), e["metadata"])
        size = 1
    if bits and e["copy"] is False:
        raise oracles.Refused(ValueError)
    if lists:
        if e["child"] is None:
            raise no
        counted(a, True)
        if e["child"]["released"]:
            raise no
        counted(e["child"], False)
        if (a["offset"] + a["length"]) * size > e["child"]["length"]:
            raise no
        nulls(a, a["offset"], a["length"])
        below, first, n = e["child"], e["child"]["offset"] + a["offset"] * size, a["length"] * size
    else:
        # If the format is not a list, the child is one too many, and the buffers are one too few.
        counted(dict(a, n_buffers=1 if e["leaf"] and a["n_buffers"] is None else a["n_buffers"], n_children=1 if e["leaf"] and a["n_children"] is None else a["n_children"]), False)
        below, first, n = a, a["offset"], a["length"]
    data = 0 if below["buffers"] == "few" else memory.window().address + e["at"] if e["data"] is None else e["data"]
    if n > 0 and data == 0:
        raise no
    nulls(below, first, n)
    width = oracles.BITS[name] // 8
    shape, strides = (a["length"], *shape), (size, *strides)
    oracles.layout(shape, strides, 8 * width, BufferError)
    if not bits and (not oracles.fits(first * width) or data + first * width >= 1 << 64):
        raise no
    address = None if bits or n == 0 else data + first * width
    if address is not None and not width <= address < (1 << 63) - n * width:
        raise no
    facts = oracles.Facts(shape, None if e["copy"] else strides, name, None if e["copy"] else address, not (e["copy"] or bits), 8 * width)
    return Want(facts, strides, first, bits)


class Want:
    """The Facts, and the source of the elements: strides and the first, in elements or bits."""

    def __init__(self, facts, strides, first, bits):
        self.facts, self.strides, self.first, self.bits = facts, strides, first, bits


def reads(e):
    """Reports whether the unverifiable part of the structs could lead beyond the memory; the example is changed then."""
    numbers = [abs(a[k]) for a in (e["array"], e["child"]) if a for k in ("length", "offset")]
    return max(numbers) > 300 or e["data"] is not None


def tame(e):
    e = {k: dict(v) if isinstance(v, dict) else v for k, v in e.items()}
    if reads(e):
        for a in (e["array"], e["child"]):
            if a:
                a["bitmap"] = None
        for s in (e["top"], e["leaf"]):
            if s and s["format"] == b"b":
                s["format"] = b"c"
        e["copy"] = None if e["copy"] else e["copy"]
    return e


def elements(a, want, e):
    """Checks that the elements are those of the window."""
    there, copied, n = memory.window().bytes(), a.copy(), a.itemsize
    got = ct.string_at(copied._pointer, copied.nbytes)
    for i, index in enumerate(itertools.product(*map(range, a.shape))):
        at = want.first + sum(k * s for k, s in zip(index, want.strides))
        value = there[e["at"] + at // 8] >> at % 8 & 1 if want.bits else there[e["at"] + at * n : e["at"] + (at + 1) * n]
        oracles.equal(got[i * n : (i + 1) * n], bytes([value]) if want.bits else value, f"element {index}", e)


def end(a, how, e):
    if how == "view":
        v = a[...]
        del a
        oracles.equal(v.ndim, len(v.shape), "a view")
    elif how == "export":
        try:
            oracles.equal(ub.from_dlpack(a)._pointer, a._pointer, "the same memory", e)
        except BufferError:  # an element at an odd address
            pass


@target(example, 300)
def test_arrow(e):
    e = tame(e)
    column = Column(e)
    want = oracles.attempt(model, e)
    a = oracles.expect(lambda: ub.asarray(column.object(), copy=e["copy"]), want if isinstance(want, oracles.Refused) else want.facts, e)
    moved = e["gives"] == "pair"
    top = {f"{what} {kind}": 1 for what, kind, s in (("top", "schema", e["top"]), ("array", "array", e["array"])) if moved and not s["released"]}
    if a is not None:
        if e["data"] is None and 0 < a.size <= 300 and not reads(e):
            elements(a, want, e)
        if a.readonly:
            oracles.equal(column.released, {"top schema": 1}, "releases while the array lives", e)
            end(a, e["end"], e)
    del a
    memory.settled()
    oracles.equal(column.released, top, "releases", e)
