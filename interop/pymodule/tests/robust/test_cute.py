"""usmbridge.cute: conversions and marks on layouts of every kind. The rules of the marks are tested in Go (dlpack/cute)."""

import re

import capi
import usmbridge.cute as cute
from robust import memory, oracles, producers, strategies
from robust.engine import target

# Element types that DLPack has and CuTe lacks.
NAMELESS = {(c, b) for c, b in oracles.NAMES if c in (5, 7, 11, 13) or b < 8 and (c, b) in ((0, 1), (0, 2), (1, 1), (1, 2), (1, 4))}


def operation(r):
    rarely = strategies.rarely
    kind = r.randrange(10)
    number = lambda lo, hi: r.choice([1 << 31, 1 << 62, 1 << 64, -(1 << 63), -(1 << 70), "1", 1.0, True]) if rarely(r, 15) else r.randint(lo, hi)  # noqa: E731
    if kind < 4:
        return "mark_layout_dynamic", {} if r.randrange(2) else {"leading_dim": None if rarely(r, 5) else number(-5, 5)}
    if kind < 8:
        keywords = {"mode": number(-1, 4)}
        if r.randrange(2):
            n = r.randint(0, 5)
            order = list(range(n))
            r.shuffle(order)
            keywords["stride_order"] = None if rarely(r, 6) else tuple(order) if not rarely(r, 5) else strategies.times(r, r.randint(0, 70 if rarely(r, 5) else 4), lambda r: number(-1, 5))
        if r.randrange(2):
            keywords["divisibility"] = r.choice([1, 1, 2, 2, 3, 4, 0, -1, number(-3, 16)])
        return "mark_compact_shape_dynamic", keywords
    return r.choice([("clone", {}), ("clone", {}), ("clone", {}), ("release", {})])


def example(r):
    fields = strategies.tensor_fields(r, ("window",))
    if r.randrange(4):  # compact layouts of few modes, which the marks are for
        shape = strategies.times(r, r.randint(0, 5), lambda r: r.choice([1, 1, 2, 3, 4, 8, 16]))
        axes = list(range(len(shape)))
        r.shuffle(axes)
        strides, n = [0] * len(shape), 1
        for i in axes:
            strides[i] = n if not strategies.rarely(r, 12) else r.choice([0, 1, n, 7])
            n *= shape[i]
        fields.update(shape=shape, strides=tuple(strides), ndim=None, shape_null=False, version=(1, 3), device=None, byte_offset=0, data=None, at=256,
                      dtype=(2, 32, 1), flags=0)
    options = {}
    if strategies.rarely(r, 3):
        options["assumed_align"] = r.choice([None, 1, 2, 4, 8, 16, 256, 4096, 0, 3, -4, 1 << 40, 1 << 64, "4", True])
    if strategies.rarely(r, 3):
        options["use_32bit_stride"] = r.choice([None, True, False, 1, "no"])
    if strategies.rarely(r, 3):
        options["leading"] = r.choice(["unique", "skip_size_one", "first", "", 1, None, "unique\0", "\ud800"])
    if strategies.rarely(r, 4):
        options["unit_strides"] = r.choice([True, False, 1, None])
    return {"tensor": fields, "options": options, "function": r.choice(["from_dlpack"] * 4 + ["from_dlpack_dynamic"]),
            "operations": strategies.times(r, r.randint(0, 4), operation)}


def printed(text):
    """Returns (extents, strides) of a printed layout: each an integer, or a string for a dynamic one."""
    halves = re.fullmatch(r"\(([^()]*)\):\(([^()]*)\)", text)
    assert halves, f"not a layout: {text!r}"
    result = []
    for half in halves.groups():
        modes = half.split(",") if half else []
        for mode in modes:
            assert re.fullmatch(r"-?\d+|\?(\{(i64)?( ?div=\d+)?\})?", mode), f"not a mode: {mode!r} in {text!r}"
        result.append([mode if mode[0] == "?" else int(mode) for mode in modes])
    assert len(result[0]) == len(result[1]), text
    return result


def consistent(t, e):
    """Checks that the attributes of a tensor agree with its text."""
    extents, strides = printed(t.layout)
    oracles.equal(t.dynamic_shapes_mask, tuple(int(isinstance(x, str)) for x in extents), "dynamic shapes", e)
    oracles.equal(t.dynamic_strides_mask, tuple(int(isinstance(x, str)) for x in strides), "dynamic strides", e)
    for said, numbers in ((extents, t.shape), (strides, t.stride)):
        oracles.equal(len(said), len(numbers), "rank", e)
        for s, n in zip(said, numbers):
            if isinstance(s, int):
                oracles.equal(s, n, "static mode", e)
            elif "div=" in s and 0 not in t.shape:  # strides of an empty tensor are never used
                oracles.equal(n % int(re.search(r"div=(\d+)", s)[1]), 0, f"divisibility of {n} in {t.layout}", e)
    assert str(t) == f"Tensor<0x{t.data_ptr:016x}@{t.memspace} o {t.layout}>", (str(t), e)
    assert t.key.startswith(f"{t.element_type}@{t.memspace} align={t.assumed_align}"), (t.key, e)


def convertible(e, tensor, want):
    """Reports whether the options are valid; None if there are several reasons."""
    o = e["options"]
    kinds = set()
    align = o.get("assumed_align")
    if align is not None:
        if not isinstance(align, int):
            kinds.add(TypeError)
        elif not oracles.fits(align):
            kinds.add(OverflowError)
        elif align < 1 or align & (align - 1) or (isinstance(want, oracles.Facts) and want.address is not None and want.address % align):
            kinds.add(ValueError)
    for key in ("use_32bit_stride", "unit_strides"):
        if key in o and not isinstance(o[key], bool) and not (key == "use_32bit_stride" and o[key] is None):
            kinds.add(TypeError)
    if "leading" in o:
        if not isinstance(o["leading"], str):
            kinds.add(TypeError)
        elif o["leading"] not in ("unique", "skip_size_one"):
            kinds.add(ValueError)
    if isinstance(want, oracles.Refused):
        kinds.add(BufferError)
    if tuple(tensor.e["dtype"][:2]) in NAMELESS or tensor.e["dtype"][1] < 8 and tensor.e["versioned"] and tensor.e["flags"] & 4:
        kinds.add(TypeError)
    return kinds


@target(example, 1500)
def test_cute(e):
    tensor = producers.Tensor(e["tensor"])
    fields = tensor.fields()
    device = fields["device"]
    # Any device with addresses is accepted; its memory is not read.
    want = oracles.attempt(oracles.tensor, dict(fields, device=(1, 0)), 0)
    if device[0] < 1 or device[1] < 0:
        want = oracles.Refused(BufferError)
    capsule = tensor.capsule()
    use = lambda: getattr(cute, e["function"])(capsule, **e["options"])  # noqa: E731
    kinds = convertible(e, tensor, want)
    with producers.unraisable():
        try:
            t = use()
        except (TypeError, ValueError, OverflowError, BufferError) as error:
            expected = set(kinds)
            if device[0] in (4, 7, 8, 15):
                expected.update((ValueError, BufferError))  # handles are not addresses
            if device[0] == 14:
                expected.add(BufferError)  # not USM
            if e["function"] == "from_dlpack_dynamic":
                expected.add(ValueError)
            # The model does not cover the pointers and extents that CuTe's 64-bit and 32-bit words hold.
            if not isinstance(error, tuple(expected | ({ValueError} if sparse(want) else set()))):
                raise AssertionError(f"refused with {type(error).__name__}: {error}; right are {expected} for {e!r}") from error
            oracles.equal((capi.name(capsule), tensor.deleted), (tensor.name, 0), "what was refused is left alone", e)
            return
        if kinds:
            raise AssertionError(f"converted {t}, though {kinds} is right for {e!r}")
        oracles.equal(capi.name(capsule), b"used_" + tensor.name, "the capsule", e)
        oracles.equal(t.shape, want.shape, "shape", e)
        if want.address is not None:
            oracles.equal(t.data_ptr, want.address, "address", e)
            if not e["options"].get("unit_strides"):
                oracles.equal(t.stride, want.strides, "strides", e)
        consistent(t, e)
        kept = [t]
        for name, keywords in e["operations"]:
            if t.released:
                break
            if name == "clone":
                c = t.clone()
                oracles.equal((str(c), c.key, c.shape, c.stride), (str(t), t.key, t.shape, t.stride), "clone", e)
                kept.append(t)
                t = c
                del c
            elif name == "release":
                t.release()
                break
            else:
                text, shape, stride = t.layout, t.shape, t.stride
                try:
                    getattr(t, name)(**keywords)
                except (TypeError, ValueError, OverflowError):
                    oracles.equal(t.layout, text, "a failed mark changes nothing", e)
                else:  # a mark of compact modes prints the stride 0 for modes of one element
                    used = lambda strides: [s for n, s in zip(shape, strides) if n != 1]  # noqa: E731
                    oracles.equal((t.shape, used(t.stride)), (shape, used(stride)), "values of dynamic modes", e)
                    mode, div = keywords.get("mode", slice(None)), keywords.get("divisibility", 1)
                    oracles.equal(t.dynamic_shapes_mask[mode] in (1, (1,) * len(shape)), True, "the modes marked", e)
                    oracles.equal(name == "mark_layout_dynamic" or shape[mode] % div == 0, True, "divisibility", e)
            consistent(t, e)
        del t
        kept.clear()
        memory.settled()
        oracles.equal(tensor.deleted, int(bool(tensor.m.deleter)), "deletions", e)


def sparse(want):
    return isinstance(want, oracles.Facts) and (any(abs(n) >= 1 << 31 for n in (*want.shape, *(want.strides or ()))) or want.address is None or want.address >= 1 << 63)
