"""Indexing, reshape, transpose, compared with NumPy: the same values, views and errors."""

import importlib

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target


def position(r):
    return r.choice([*strategies.WILD, 1 << 64, -(1 << 70), 1 << 200]) if strategies.rarely(r, 12) else r.randint(-7, 7)


def bound(r):
    kind = r.randrange(8)
    if kind < 3:
        return None
    return ("index", position(r), r.choice([None, None, "collect", "raise", "text"])) if kind == 7 else position(r)


def cut(r):
    return "slice", bound(r), bound(r), bound(r)


def part(r):
    kind = r.randrange(20)
    if kind < 7:
        return position(r)
    if kind < 14:
        return cut(r)
    if kind < 18:
        return r.choice(["...", "new"])
    if kind < 19:
        return "index", position(r), r.choice([None, "collect", "raise", "text"])
    return "object", r.choice([True, 1.5, "name", b"x", 2j, []])


def operation(r):
    kind = r.randrange(20)
    if kind < 5:
        return "index", strategies.times(r, r.randint(0, 5), part)
    if kind < 9:
        return "index", strategies.times(r, r.randint(0, 3), lambda r: "new" if strategies.rarely(r, 5) else cut(r))
    if kind < 12:
        return "reshape", strategies.times(r, r.randint(0, 5), lambda r: strategies.small_or_wild(r, -1, 6, 30)), r.choice([None, None, True, False])
    if kind < 15:
        return "factors", r.randrange(1 << 30), r.choice([None, False])
    if kind < 17:
        return "transpose", strategies.times(r, r.randint(0, 5), lambda r: strategies.small_or_wild(r, -4, 4, 30))
    if kind < 18:
        return "permute", r.randrange(720)
    return (r.choice(["T", "iter"]),)


def example(r):
    return {
        "shape": strategies.times(r, r.randint(0, 4), lambda r: r.randint(0, 6)),
        "dtype": r.choice(["?", "b", "H", "i", "q", "e", "f", "d", "F", "D"]), "order": r.choice("CF"),
        "place": r.choice(("host", "host", "host") + (("shared", "device") if memory.sycl() else ())),
        "operations": strategies.times(r, r.randint(1, 4), operation),
    }


def built(p):
    """Returns the object that an example's literal stands for."""
    if p == "...":
        return ...
    if p == "new":
        return None
    if isinstance(p, tuple):
        if p[0] == "slice":
            return slice(*map(built, p[1:]))
        if p[0] == "index":
            return strategies.Number(*p[1:])
        if p[0] == "object":
            return p[1]
    return p


def apply(x, op):
    if op[0] == "index":
        key = tuple(map(built, op[1]))
        return x[key[0] if len(key) == 1 else key]
    if op[0] in ("reshape", "factors"):
        shape = op[1]
        if op[0] == "factors":
            shape, left, r = [], x.size, op[1]
            while r and len(shape) < 8:
                f = [f for f in range(1, left + 1) if left % f == 0] or [0, 1, 3]
                shape.append(f[r % len(f)])
                left, r = left // max(1, shape[-1]) if shape[-1] else 0, r // 7
            shape = (*shape, left)
        return x.reshape(tuple(shape)) if op[2] is None else x.reshape(tuple(shape), copy=op[2])
    if op[0] == "transpose":
        return x.transpose(op[1]) if op[1] else x.transpose()
    if op[0] == "permute":
        axes, r = list(range(x.ndim)), op[1]
        for i in range(x.ndim - 1, 0, -1):
            axes[i], axes[r % (i + 1)] = axes[r % (i + 1)], axes[i]
            r //= i + 1
        return x.transpose(*axes)
    if op[0] == "T":
        return x.T
    return [*x][-1] if x.ndim and 0 < len(x) < 64 else x


def fancy(op):
    """Reports keys that are masks or lists, whose results are copies."""
    return op[0] == "index" and any(p in (("object", True), ("object", [])) for p in op[1])


def attempt(f):
    try:
        return f(), None
    except (IndexError, ValueError, TypeError, OverflowError, LookupError, MemoryError) as e:
        return None, e


KINDS = {
    IndexError: (IndexError,), ValueError: (ValueError,), TypeError: (TypeError, IndexError), LookupError: (LookupError,),
    OverflowError: (OverflowError, ValueError, IndexError), MemoryError: (ValueError, MemoryError, OverflowError),
}


def compare_errors(ours, theirs, op, about):
    if theirs is None:
        # NumPy accepts other negative numbers than -1 for it, and truncates axes to 32 bits.
        if op[0] in ("reshape", "transpose") and any(not -64 <= n < 1 << 31 or n < -1 and op[0] == "reshape" for n in op[1]):
            return
        raise AssertionError(f"refused with {type(ours).__name__}: {ours}; NumPy does {op!r} of {about!r}")
    if ours is None:
        raise AssertionError(f"taken, and NumPy refuses {op!r} with {type(theirs).__name__}: {theirs} of {about!r}")
    if type(ours) is LookupError and "raise" in repr(op):
        return  # an index's own error, which NumPy replaces
    right = next((kinds for kind, kinds in KINDS.items() if type(theirs) is kind), (type(theirs),))
    if op[0] != "index" or len(op[1]) > 1 or "text" in repr(op):  # several reasons, in any order
        right = IndexError, ValueError, TypeError, OverflowError
    if not isinstance(ours, right):
        raise AssertionError(f"raised {type(ours).__name__}: {ours}, NumPy {type(theirs).__name__}: {theirs}; {op!r} of {about!r}")


def compare(a, x, start, about):
    oracles.equal((a.shape, a.size, a.ndim, a.itemsize), (x.shape, x.size, x.ndim, x.itemsize), "facts", about)
    if x.size == 0:
        return
    steps = lambda v, unit: [s // unit for s, n in zip(v, x.shape) if n > 1]  # noqa: E731
    oracles.equal(steps(a.strides, 1), steps(x.strides, x.itemsize), "strides", about)
    if start is not None:
        oracles.equal(a._pointer - start[0], x.ctypes.data - start[1], "first element", about)
    oracles.equal(a.asnumpy().tolist(), x.tolist(), "elements", about)


@target(example)
def test_views(e):
    np = importlib.import_module("numpy")
    count = 1
    for extent in e["shape"]:
        count *= extent
    x = np.arange(count).astype(e["dtype"]).reshape(e["shape"])
    x = np.asarray(x, order=e["order"])
    a = ub.from_dlpack(x)
    if e["place"] != "host":
        a = ub.asarray(x, usm_type=e["place"])
        if a.strides != tuple(s // x.itemsize for s in x.strides):
            x = np.ascontiguousarray(x).reshape(x.shape)
    start = a._pointer, x.ctypes.data  # first elements of memory that both still use, or None
    for op in e["operations"]:
        b, ours = attempt(lambda: apply(a, op))
        if fancy(op):
            if ours is not None and not isinstance(ours, (IndexError, LookupError, TypeError, ValueError)):
                raise AssertionError(f"{type(ours).__name__} of {op!r} of {e!r}") from ours
            continue
        if op[0] in ("reshape", "factors") and op[2] is True or start is None:
            start = None
        y, theirs = attempt(lambda: apply(x, op))
        if ours or theirs:
            compare_errors(ours, theirs, op, e)
            continue
        if isinstance(y, np.generic):
            y = np.asarray(y)
            start = None if op[0] == "iter" else start
            y = x[tuple(map(built, op[1])) + (...,)] if op[0] == "index" else y
        if not np.shares_memory(x, y) and y.size:
            start = None
        compare(b, y, start, e)
        a, x = b, y
