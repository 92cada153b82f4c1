"""Names of element types, devices and kinds of memory, as text and as objects."""

import importlib

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target

ALIASES = {
    "float": "float64", "int": "int64", "complex": "complex128", "bool_": "bool", "byte": "int8", "ubyte": "uint8", "short": "int16", "ushort": "uint16", "intc": "int32",
    "uintc": "uint32", "long": "int64", "ulong": "uint64", "longlong": "int64", "ulonglong": "uint64", "intp": "int64", "uintp": "uint64", "int_": "int64", "uint": "uint64",
    "half": "float16", "single": "float32", "double": "float64", "csingle": "complex64", "cdouble": "complex128", "?": "bool", "b": "int8", "B": "uint8", "h": "int16",
    "H": "uint16", "i": "int32", "I": "uint32", "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "p": "int64", "P": "uint64", "e": "float16", "f": "float32",
    "d": "float64", "F": "complex64", "D": "complex128",
}
LETTERS = list("<=|>!@biufcVSUOMm0123456789 +-.eE_\0") + ["é", "\ud800", "float", "int", "bool", "16", "32", "64", "８"]
FILTERS = ["cpu", "opencl", "gpu", "level_zero", "cuda", "host", "accelerator", "0", "1", ":", ":", ",", "*", "-", " ", "", "\0", "CPU", "é", "\ud800", "99999999999999999999", "custom", "hip"]


def example(r):
    what = r.choice(["dtype", "dtype", "device", "device", "usm_type", "order", "object"])
    if what == "dtype":
        base = r.choice([*oracles.BITS, *ALIASES, *("<" + t for t in oracles.TYPESTRS), *oracles.TYPESTRS])
        kind = r.randrange(4)
        text = base if kind == 0 else "".join(strategies.times(r, r.randint(0, 4), lambda r: r.choice(LETTERS)))
        if kind == 1:
            text = base + text
        if kind == 2:
            i = r.randint(0, len(base))
            text = base[:i] + r.choice(LETTERS) + base[i + r.randrange(2) :]
        return {"what": what, "text": text}
    if what == "device":
        return {"what": what, "text": r.choice(["opencl:cpu:0", "host"]) if strategies.rarely(r, 5) else "".join(strategies.times(r, r.randint(0, 5), lambda r: r.choice(FILTERS)))}
    if what == "object":
        return {"what": what, "text": r.choice(["number", "raises", "list", "named", "numpy", "type", "bytes", "surrogate"])}
    words = {"usm_type": ["device", "shared", "host"], "order": ["C", "F"]}[what]
    word = r.choice(words)
    return {"what": what, "text": r.choice([word, word + "\0", word + "\0x", word.swapcase(), word[:-1], word + "x", "", "é", "\ud800", "K", "A"])}


def dtype_of(text):
    """Returns the name that a text stands for; None for no type, ... if both are right."""
    if text in oracles.BITS:
        return text
    if text in ALIASES:
        return ALIASES[text]
    t = text[1:] if text[:1] in ("<", "=", "|", ">", "!") else text
    if text[:1] in (">", "!") and t[1:].lstrip("0") != "1":
        return None  # another byte order than the machine's, which single bytes do not have
    if len(t) < 2 or not t[1:].isascii() or not t[1:].isdigit():
        return None
    name = oracles.TYPESTRS.get(t[0] + str(int(t[1:])))
    return ... if name and t[1] == "0" else name


class Named:
    def __init__(self, name):
        self.name = name


def dtype_object(what):
    np = importlib.import_module("numpy")

    class Raises:
        @property
        def name(self):
            raise LookupError("mine")

        __name__ = name

    return {
        "number": (5, None), "raises": (Raises(), None), "list": (["f4"], None), "named": (Named("int16"), "int16"), "numpy": (np.dtype("u2"), "uint16"),
        "type": (np.float32, "float32"), "bytes": (b"f4", None), "surrogate": (Named("\ud800"), None),
    }[what]


def refused(call, kinds, e):
    try:
        a = call()
    except kinds:
        return
    except BaseException as error:
        raise AssertionError(f"raised {type(error).__name__}: {error}; right are {kinds} for {e!r}") from error
    raise AssertionError(f"taken as {a.dtype} on {a.device}: {e!r}")


def same_as_dpctl(text):
    """Reports whether dpctl finds a device by the filter."""
    try:
        memory.dpctl().SyclDevice(text)
    except (memory.dpctl().SyclDeviceCreationError, ValueError, UnicodeError):
        return False
    return True


@target(example, 300)
def test_texts(e):
    what, text = e["what"], e["text"]
    if what in ("dtype", "object"):
        value, want = (text, dtype_of(text)) if what == "dtype" else dtype_object(text)
        call = lambda: ub.empty(0, dtype=value, device="host")  # noqa: E731
        if (what, text) == ("object", "raises"):
            refused(call, (LookupError,), e)  # the object's own error, unchanged
        elif want is None:
            refused(call, (TypeError, ValueError), e)
        elif want is ...:
            oracles.outcome(call, (TypeError,), e)
        else:
            a = oracles.outcome(call, (), e)
            oracles.equal(str(a.dtype), want, "dtype", e)
        return
    if what == "device":
        call = lambda: ub.empty(0, device=text)  # noqa: E731
        if text == "host":
            oracles.equal(str(call().device), "host", "device", e)
        elif memory.sycl() is None or not all(plain(part) for part in text.lower().split(",")):
            if "host" in text.lower():
                oracles.outcome(call, (ValueError,), e)
            else:
                refused(call, (ValueError,), e)
        elif same_as_dpctl(",".join(part.strip() for part in text.lower().split(","))):
            oracles.equal(str(call().device), memory.sycl().filter_string, "device", e)
        else:
            refused(call, (ValueError,), e)
        return
    good = {"usm_type": ("device", "shared", "host"), "order": ("C", "F")}[what]
    call = lambda: ub.empty((2, 3), device=None if what == "usm_type" else "host", **{what: text})  # noqa: E731
    if text in good:
        a = oracles.outcome(call, () if memory.sycl() else (ValueError,), e)
        if what == "usm_type" and memory.sycl():
            oracles.equal(a.usm_type, text, "usm_type", e)
        elif what == "order":
            oracles.equal(a.strides, (3, 1) if text == "C" else (1, 2), "strides", e)
    else:
        refused(call, (ValueError, TypeError), e)


def plain(text):
    """Reports whether a text has the form [backend:][type:][number], each at most once."""
    text = text.strip()
    parts = text.split(":")
    sorts = [("cuda", "hip", "level_zero", "opencl"), ("accelerator", "cpu", "gpu")]
    if not text or len(parts) > 3:
        return False
    for sort in sorts:
        if parts and parts[0] in sort:
            parts = parts[1:]
    if parts and parts[0].isascii() and parts[0].isdigit() and int(parts[0]) < 1 << 31:
        parts = parts[1:]
    return not parts
