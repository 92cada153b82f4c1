"""Messages of other processes of a Dask cluster: headers with keys, types and counts of all kinds, frames of other sizes,
numbers and kinds. The result is an Array with exactly these bytes, or a ValueError or TypeError before any memory is
allocated."""

import functools
import importlib
import math
import os

import pytest

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target

DTYPES = ["int8", "uint8", "bool", "int32", "float64", "complex128", "bfloat16", "int4", "uint1", "float6_e2m3fn", "float8_e5m2", "float16", "complex32"]
FIELDS = ["usmbridge", "dtype", "shape", "order", "padded", "usm_type", "device", "readonly", "nbytes"]
# The types that msgpack returns, and a few more.
WILD = [None, True, False, -1, 0, 1, 2, 7, 1 << 63, (1 << 64) - 1, -(1 << 63), 1.0, 0.5, 1e300, "", "C", "x" * 300, "\0", "\udc80", "host", b"", b"C",
        [], (), {}, [[]], {"shape": (1,)}, [None], {b"": {}}]
LIES = {
    "usmbridge": [0, 2, "1", 1 << 64], "dtype": ["int64", "float128", "<f4", "O", "int", "int3", "INT8", "int8\0", "float32 ", *DTYPES],
    "order": ["A", "K", "c", "CF", "F", "C"], "padded": [True, False], "readonly": [True, False], "usm_type": ["device", "shared", "host", "managed", "SHARED", None],
    "device": ["host", "opencl:gpu:77", "level_zero:gpu:0", "", "cpu", None],
}
FRAMES = ["bytes", "bytes", "bytearray", "readonly", "odd", "own", "usm", "floats", "strided", "text", "none", "number", "released", "array"]


@functools.cache
def frames():
    """Returns the module, or skips the test without distributed."""
    if not os.environ.get("USMBRIDGE_REQUIRE_PEERS"):
        pytest.importorskip("distributed")
    return importlib.import_module("usmbridge._dask_frames")


def extent(r):
    return r.choice([0, 1 << 31, 1 << 61, (1 << 63) - 1, 1 << 63, -1, True, 2.0, "3", None]) if strategies.rarely(r, 12) else r.randint(0, 5)


def lie(r):
    """Returns a change of a header: the operation, the key, and the value."""
    key = r.choice(FIELDS)
    how = r.choice(["drop", "set", "set", "set", "set"])
    if key == "shape":
        value = r.choice([strategies.times(r, r.randint(0, 4), extent), list(strategies.times(r, r.randint(0, 4), extent)), (0, 1 << 62, 1 << 62), (1,) * r.choice([63, 64, 65])])
    elif key == "nbytes":
        value = r.choice([0, 1, 7, 8, 64, -8, 1 << 16, 1 << 62, 1 << 64, 8.0])
    else:
        value = r.choice(LIES[key])
    if strategies.rarely(r, 4):
        value = r.choice(WILD)
    return how, key, value


def example(r):
    large = strategies.rarely(r, 25)
    return {
        "dtype": r.choice(DTYPES), "shape": (20_000, r.randint(4, 9)) if large else strategies.times(r, r.randint(0, 3), lambda r: r.randint(0, 5)),
        "place": r.choice(("host",) + (("shared", "host usm", "device") if memory.sycl() else ())), "view": r.choice(["whole", "whole", "transposed", "readonly", "reversed"]),
        "lies": [lie(r) for _ in range(r.choice([0, 0, 1, 1, 1, 2, 3]))], "agree": r.choice([True, False]),
        "header": r.choice([None, [], "", 5, {}, [{}], b"\x80", {"usmbridge": 1}]) if strategies.rarely(r, 40) else "made",
        "cuts": [r.choice([0, 1, 3, 1 << 16, r.randrange(1 << 10)]) for _ in range(r.choice([0, 0, 0, 1, 2]))],
        "frames": [r.choice(FRAMES) if strategies.rarely(r, 3) else "bytes" for _ in range(4)],
        "count": r.choice([None] * 8 + ["one less", "one more", "twice", "mark", "none", "number"]),
        "longer": r.choice([0, 0, 0, 0, 0, -1, 1, 8]), "start": r.randrange(9),
    }


def made(e):
    place = {"device": "host"} if e["place"] == "host" else {"usm_type": e["place"].split()[0]}
    n = math.prod(e["shape"])
    a = ub.asarray([i % 2 for i in range(n)] if n < 1 << 12 else [1, 0, 1, 1], dtype=e["dtype"], **place)
    if n >= 1 << 12:
        a, b = ub.zeros(e["shape"], e["dtype"], **place), a
        a[0, :4] = b
    a = a.reshape(e["shape"])
    if e["view"] == "reversed" and oracles.BITS[e["dtype"]] >= 8:  # packed elements begin at whole bytes
        return a[(slice(None, None, -1),) * a.ndim]
    return {"transposed": lambda: a.T, "readonly": a.as_readonly}.get(e["view"], lambda: a)()


def frame(what, data, start):
    """Returns a frame of a kind with these bytes, and whether it is valid."""
    n = len(data)
    if what == "bytearray":
        return bytearray(data), True
    if what == "readonly":
        return memoryview(data), True
    if what == "odd":
        whole = bytearray(start + n)
        whole[start:] = data
        return memoryview(whole)[start:], True
    if what in ("own", "usm") and (what == "own" or memory.sycl()):
        place = {"device": "host"} if what == "own" else {"usm_type": "shared"}
        whole = memoryview(ub.empty(start + n, "uint8", **place))
        whole[start:] = data
        return whole[start:], True
    if what == "array":
        whole = ub.empty(n, "uint8", device="host")
        memoryview(whole)[:] = data
        return whole, True
    if what == "floats" and n and n % 4 == 0:
        return memoryview(data).cast("f"), True
    if what == "strided" and n > 1:
        return memoryview(bytearray(2 * n))[::2], False
    if what == "released":
        view = memoryview(data)
        view.release()
        return view, False
    other = {"text": "text", "none": None, "number": 3}
    return (other[what], False) if what in other else (data, True)


def bits_of(dtype, padded):
    name = str(ub.DType(dtype))
    bits = oracles.BITS[name]
    return 8 if padded and bits < 8 else bits


def right(h):
    """Reports whether a header is valid by the rules in the module's text."""
    if type(h) is not dict or any(k not in h for k in FIELDS):
        return False
    version = h["usmbridge"]
    if not isinstance(version, (int, float)) or version != 1:
        return False
    shape = h["shape"]
    if type(shape) not in (tuple, list) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        return False
    if type(h["dtype"]) is not str or h["order"] not in ("C", "F") or type(h["padded"]) is not bool or type(h["readonly"]) is not bool:
        return False
    if h["usm_type"] not in (None, "device", "shared", "host") or type(h["device"]) is not (type(None) if h["usm_type"] is None else str):
        return False
    if h["usm_type"] and h["device"] == "host":  # the host backend has no usm_type
        return False
    try:
        bits = bits_of(h["dtype"], h["padded"])
    except (TypeError, ValueError):
        return False
    if type(h["nbytes"]) is not int or h["nbytes"] != (math.prod(shape) * bits + 7) // 8:
        return False
    return oracles.fits(math.prod(n for n in shape if n), math.prod(n for n in shape if n) * bits)


@target(example, 150)
def test_dask(e):
    m = frames()
    a = made(e)
    good, sent = m.dumps(a)
    header = dict(good)
    for how, key, value in e["lies"]:
        if how == "drop":
            header.pop(key, None)
        else:
            header[key] = value
    if e["lies"] and e["agree"]:  # make the frames the only error
        try:
            header["nbytes"] = (math.prod(header["shape"]) * bits_of(header["dtype"], header["padded"]) + 7) // 8
        except (TypeError, ValueError, KeyError, OverflowError):
            pass
    if e["header"] != "made":
        header = e["header"]
    nbytes = header.get("nbytes") if type(header) is dict else None
    was = data = bytes(memoryview(sent[-1]).cast("B"))
    size = max(0, e["longer"] + (nbytes if type(nbytes) is int and 0 <= nbytes < 1 << 22 else len(data)))
    data = (data + bytes(size))[:size]
    ends = sorted({0, size, *(c for c in e["cuts"] if c < size)})
    parts = [data[i:j] for i, j in zip(ends, ends[1:])] or [b""]
    given = [(part, *frame(e["frames"][i % 4], part, e["start"])) for i, part in enumerate(parts)]
    if (size >= m.LARGE) != (e["count"] == "mark"):
        given.insert(0, (b"\0", b"\0", True))
    if e["count"] == "one less":
        given.pop()
    elif e["count"] == "one more":
        given.append((b"", b"", True))
    elif e["count"] == "twice":
        given = given + given
    held = b"".join(part for part, _, _ in given)
    sizes = [len(part) for part, _, _ in given]
    if type(nbytes) is int and nbytes >= m.LARGE:
        marked, sizes = sizes[:1] == [1], sizes[1:]
    else:
        marked = True
    want = right(header) and marked and sum(sizes) == nbytes and all(ok for _, _, ok in given) and e["count"] not in ("none", "number")
    sending = {"none": None, "number": 7}.get(e["count"], [f for _, f, _ in given])
    before = ub.stats()["allocation.all.allocated"]
    b = oracles.outcome(lambda: m.loads(header, sending), () if want else (ValueError, TypeError), e)
    if b is None:
        oracles.equal(ub.stats()["allocation.all.allocated"], before, "memory taken for what is refused", e)
        return
    oracles.equal(want, True, "taken", e)
    oracles.equal((b.shape, str(b.dtype), b.readonly), (tuple(header["shape"]), str(ub.DType(header["dtype"])), header["readonly"]), "what arrived", e)
    oracles.equal(b.usm_type, header["usm_type"] if memory.sycl() else None, "the kind of its memory", e)
    oracles.equal(b._pointer % max(b.itemsize, 1), 0, "alignment", e)
    if not e["lies"] and held[-len(was) :] == was:
        oracles.equal((b.device, b.usm_type, b.tolist()), (a.device, a.usm_type, a.tolist()), "where and what it is", e)
    again, whole = m.dumps(b)
    if nbytes and again["order"] == header["order"] and bits_of(header["dtype"], header["padded"]) >= 8:
        oracles.equal(bytes(memoryview(whole[-1]).cast("B")) == held[-nbytes:], True, "its bytes, sent again", e)
    if b.nbytes and not b.readonly:
        b.fill(0)
