"""__dlpack__ of every kind of array with every mix of arguments: it exports the array or raises the right error."""

import capi
import usmbridge as ub
from robust import memory, oracles, producers, strategies
from robust.engine import target

SORTS = ["host", "packed", "padded", "readonly", "empty", "0-d", "reversed", "bfloat16"]


def integer(r):
    if strategies.rarely(r, 8):
        return r.choice([1 << 31, 1 << 32, 1 << 63, 1 << 64, 1 << 200, -(1 << 200), -1, 1.0, "1", None])
    if strategies.rarely(r, 8):
        return "make", "number", r.choice([0, 1, 14, 1 << 40]), r.choice([None, "collect", "raise"])
    return r.choice([0, 1, 1, 1, 3, 14, 2])


def pair(r):
    """Returns an object like (major, minor) or (type, id)."""
    if strategies.rarely(r, 8):
        return r.choice([(), (1,), (1, 0, 0), 5, "ab", b"ab", {}, {1, 0}, (1, (1, 0))])
    both = r.choice([(1, 0), (1, 3), (14, 0), (integer(r), integer(r))])
    return list(both) if strategies.rarely(r, 5) else both


def example(r):
    e = {"sort": r.choice(SORTS), "place": r.choice([p for p in memory.places() if p != "foreign"]), "keywords": {}}
    for key in r.sample(["stream", "max_version", "dl_device", "copy"], r.choice([0, 1, 1, 2, 2, 3, 4])):
        e["keywords"][key] = {
            "stream": lambda: r.choice([None, None, -1, -1, ("make", "queue", None, None), ("make", "capsule", None, None), ("make", "object", None, None),
                                        0, 1, -2, 1 << 70, 1.0, "cpu", "", b"x"]),
            "max_version": lambda: r.choice([None, (1, 0), (1, 3), (2, 0), (0, 8), pair(r), pair(r)]),
            "dl_device": lambda: r.choice([None, (1, 0), (14, 0), pair(r), (2, 0), (3, 0), (13, 0), (14, 99), (1, 5), (14, -1), (1, -1)]),
            "copy": lambda: r.choice([None, True, False, False, 1, 0, "", ("make", "truth", r.randrange(2), r.choice([None, "collect", "raise"]))]),
        }[key]()
    return e


def made(x):
    if isinstance(x, tuple) and len(x) == 4 and x[0] == "make":
        return {"number": lambda: strategies.Number(x[2], x[3]), "truth": lambda: strategies.Truth(x[2], x[3]), "queue": memory.queue, "object": object,
                "capsule": lambda: memory.queue()._get_capsule()}[x[1]]()
    return type(x)(map(made, x)) if isinstance(x, (tuple, list)) else x


def source(e):
    """Returns the array and the tensor that it was made of."""
    sort, place = e["sort"], e["place"]
    name = {"packed": (17, 4, 1), "padded": (17, 4, 1), "bfloat16": (4, 16, 1)}.get(sort, (2, 32, 1))
    shape, strides = {"empty": ((0, 3), None), "0-d": ((), None), "reversed": ((2, 3), (-3, -1))}.get(sort, ((2, 4), None))
    fields = {"place": place, "flags": {"readonly": 1, "padded": 4}.get(sort, 0), "at": 512, "dtype": name, "shape": shape, "strides": strides, "destructor": False}
    tensor = producers.Tensor(strategies.TENSOR | fields)
    return ub.from_dlpack(tensor.capsule()), tensor


def number(x, errors):
    """Returns an integer of a pair, or None and an error."""
    if isinstance(x, tuple) and len(x) == 4:
        if x[3] == "raise":
            errors.add(LookupError)
        return x[2]
    if not isinstance(x, int):
        errors.add(TypeError)
        return None
    if not oracles.fits(x):
        errors.update((OverflowError, ValueError))
    return int(x)


def read_pair(x, errors):
    if isinstance(x, (set, dict, int, str)) or len(x) != 2:
        errors.add(TypeError)
        return None
    if isinstance(x, bytes):
        return tuple(x)
    got = tuple(number(v, errors) for v in x)
    return None if None in got else got


def cuda_stream(stream, device, errors):
    if stream is None:
        return
    if not isinstance(stream, int):
        errors.add(TypeError)
    elif device[0] == 3 or not (stream == -1 or 0 < stream < 1 << 63):
        errors.add(ValueError)


def model(e):
    """Returns (errors, doubtful, versioned, device, copied). doubtful: an error for the stream can be missing, because
    the stream is not read if nothing is pending."""
    k, errors = e["keywords"], set()
    version, device, copy = k.get("max_version"), k.get("dl_device"), k.get("copy")
    here = memory.dl_device(e["place"])
    if version is not None:
        version = read_pair(version, errors)
        if version and not all(0 <= v < 1 << 32 for v in version):
            errors.update((ValueError, OverflowError))
    if device is not None:
        device = read_pair(device, errors)
    if isinstance(copy, tuple):
        if copy[3] == "raise":
            errors.add(LookupError)
        copy = bool(copy[2])
    copy = None if copy is None else bool(copy)
    stream = k.get("stream")
    queue = isinstance(stream, tuple)
    doubtful = False
    cuda = device in memory.cuda_devices(e["place"])
    if cuda:
        cuda_stream(stream, device, errors)
    elif queue and stream[1] == "object":
        errors.add(TypeError)
    elif stream not in (None, -1) and not queue:
        errors.update((TypeError, ValueError) if isinstance(stream, str) else (TypeError,))
        doubtful = True
    usable = e["place"] in ("window", "shared", "host")
    to = here
    if device is not None:
        to = device
        if to != here and not cuda:
            if to not in ((1, 0), (14, 0)):
                errors.add(BufferError)
            elif not (to == (1, 0) and usable):
                if copy is False:
                    errors.add(BufferError)
                copy = True
    versioned = version is not None and version[0] >= 1
    readonly = e["sort"] == "readonly" and not copy
    if not versioned and (readonly or e["sort"] == "padded"):
        errors.add(BufferError)
    return errors, doubtful, versioned, to, bool(copy)


@target(example)
def test_exports(e):
    a, tensor = source(e)
    errors, doubtful, versioned, to, copied = model(e)
    keywords = {k: made(v) for k, v in e["keywords"].items()}
    try:
        c = a.__dlpack__(**keywords)
    except (TypeError, ValueError, OverflowError, BufferError, LookupError) as error:
        if not isinstance(error, tuple(errors)):
            raise AssertionError(f"raised {type(error).__name__}: {error}; right are {errors} for {e!r}") from error
        del error, a
        memory.settled()
        oracles.equal(tensor.deleted, 1, "deletions", e)
        return
    if errors - ({TypeError, ValueError} if doubtful else set()):
        raise AssertionError(f"exported, though {errors} is right for {e!r}")
    oracles.equal(capi.name(c), capi.VERSIONED if versioned else capi.LEGACY, "the capsule", e)
    m = capi.tensor(c)
    t = m.t
    flags = (2 if copied else 0) | (1 if e["sort"] == "readonly" and not copied else 0) | (4 if e["sort"] == "padded" else 0)
    if versioned:
        oracles.equal((m.major, m.flags), (1, flags), "version and flags", e)
    oracles.equal((t.device_type, t.device_id), to, "device", e)
    oracles.equal((t.ndim, (t.code, t.bits, t.lanes)), (a.ndim, tensor.e["dtype"]), "tensor", e)
    if a.ndim:
        oracles.equal(tuple(t.shape[: a.ndim]), a.shape, "shape", e)
        strides = tuple(t.strides[: a.ndim])
        if a.size:
            oracles.equal(strides, oracles.c_order(a.shape) if copied else a.strides, "strides", e)
    else:
        oracles.equal((bool(t.shape), bool(t.strides)), (False, False), "0-d", e)
    first = (t.data or 0) + t.byte_offset
    if a.size:
        oracles.equal(first == a._pointer, not copied, "the same memory", e)
    else:
        oracles.equal(bool(t.data), to[0] == 14, "data of an empty tensor", e)
    if to[0] == 3:
        return
    b = ub.from_dlpack(c)
    oracles.equal((b.shape, str(b.dtype)), (a.shape, str(a.dtype)), "back", e)
    if a.size and e["sort"] not in ("packed", "padded", "bfloat16"):
        oracles.equal(b.asnumpy().tolist(), a.asnumpy().tolist(), "elements", e)
    del a, c
    oracles.equal(b.ndim, t.ndim, "still there", e)
    del b, m, t
    memory.settled()
    oracles.equal(tensor.deleted, 1, "deletions", e)
