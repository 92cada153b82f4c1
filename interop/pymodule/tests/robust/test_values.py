"""Elements: writing, reading, converting, copying, pickling, new arrays with values, compared with NumPy on memory of the
same contents. An example is one array and a series of operations on it and on its NumPy twin."""

import copy
import importlib
import operator
import pickle
import random
import warnings

import usmbridge as ub
from robust import memory, oracles, strategies
from robust.engine import target
from robust.test_views import apply as view_of, built, cut, position

NUMPYS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
ML = ["bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
      "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int2", "int4", "uint2", "uint4", "uint1"]  # int1 has no value 1
NARROW = ML[9:]
ERRORS = (TypeError, ValueError, OverflowError, LookupError, MemoryError)  # LookupError: also raised by an index of the example


def np():
    return importlib.import_module("numpy")


def numpys(name):
    """Returns NumPy's dtype of a name, including those of ml_dtypes."""
    return np().dtype(getattr(importlib.import_module("ml_dtypes"), name) if name in ML else name)


def kind(name):
    return "f" if "float" in name else "b" if name == "bool" else name[0]  # b i u f c


# ---- examples ------------------------------------------------------------------------------------------


def dtype(r):
    return r.choice(ML) if strategies.rarely(r, 5) else r.choice(NUMPYS)


def number(r):
    return r.choice([
        lambda: r.randint(0, 1), lambda: r.randint(-3, 130), lambda: r.randint(-(1 << 70), 1 << 70) >> r.choice([0, 7, 40, 62]), lambda: r.choice([True, False]),
        lambda: r.randint(-9, 9) / 4, lambda: r.choice([0.0, -0.0, 1e300, 65520.0, 1e-8, float("inf"), float("nan"), -1e40]), lambda: complex(r.randint(-2, 2), r.randint(-1, 2)),
    ])()


def extents(r, most=3):
    return strategies.times(r, r.randint(0, most), lambda r: r.choice([1, 1, 2, 3, 4, 0]))


def nested(r, depth=0):
    if depth == 3 or strategies.rarely(r, 2):
        return ("scalar", dtype(r), r.randint(0, 1)) if strategies.rarely(r, 6) else number(r)
    n = r.randint(0, 3)
    if strategies.rarely(r, 6):
        return [nested(r, depth + 1) for _ in range(n)]
    one = nested(r, depth + 1)
    return [one] * n


def value(r):
    sort = r.randrange(8)
    if sort < 3:
        return number(r)
    if sort < 5:
        return nested(r)
    if sort < 6:
        return "scalar", dtype(r), r.randint(0, 3)
    if sort < 7:
        return "array", dtype(r), extents(r), r.randrange(1 << 30), r.choice(places())
    return "part", key(r)


def key(r):
    return strategies.times(r, r.randint(0, 3), lambda r: r.choice(["...", "new", position(r), cut(r), cut(r), r.randint(-3, 3)]))


def places():
    return ("host", "host", "host") + (("shared", "device", "usm host") if memory.sycl() else ())


def operation(r):
    return r.choice([
        lambda: ("set", key(r), value(r)), lambda: ("set", key(r), value(r)), lambda: ("fill", value(r)), lambda: ("item", strategies.times(r, r.randint(0, 3), position)),
        lambda: ("tolist",), lambda: ("number", r.choice(["int", "float", "complex", "bool", "index", "len"])), lambda: ("view", dtype(r)), lambda: ("astype", dtype(r), r.choice([True, False])),
        lambda: ("mT",), lambda: ("copy", r.choice(["copy", "copy.copy", "deepcopy"])), lambda: ("array", r.choice([None, dtype(r)]), r.choice([None, True, False])),
        lambda: ("pickle", r.randint(0, 5), r.choice([True, False])), lambda: ("like", r.choice(["zeros", "ones", "full", "empty"]), r.choice([None, dtype(r)]), r.choice("CFAK"), number(r)),
        lambda: ("new", r.choice(["zeros", "ones", "full"]), extents(r, 4), r.choice([None, dtype(r)]), r.choice("CF"), number(r)),
        lambda: ("asarray", r.choice([None, dtype(r)]), r.choice(places()), r.choice([None, True])), lambda: ("index", key(r)), lambda: ("index", key(r)), lambda: ("T",), lambda: ("list", nested(r), r.choice([None, dtype(r)])),
        lambda: ("readonly",),
    ])()


def example(r):
    return {"shape": extents(r, 4), "dtype": dtype(r), "order": r.choice("CF"), "place": r.choice(places()), "seed": r.randrange(1 << 30), "wild": not r.randrange(3),
            "operations": strategies.times(r, r.randint(1, 5), operation)}


# ---- both sides ------------------------------------------------------------------------------------------


def contents(name, shape, seed, wild=False):
    """Returns a NumPy array with values of the type: small ones, or any bits."""
    r, n = random.Random(seed), 1
    for extent in shape:
        n *= extent
    d = numpys(name)
    if wild and name != "bool" and name not in NARROW:
        return np().frombuffer(r.randbytes(n * d.itemsize), d).reshape(shape)
    with np().errstate(all="ignore"):
        return np().array([r.choice([0, 1, 1, r.randint(0, 60)]) for _ in range(n)], "int64").astype(d).reshape(shape)


def where(place):
    return {"device": "host"} if place == "host" else {"usm_type": place.split()[-1]}


def ours(x, place):
    """Returns an Array with the contents and order of an ndarray."""
    a = ub.asarray(x, **where(place), copy=True)
    return ub.asarray(x.T, **where(place), copy=True).T if x.flags.f_contiguous and not x.flags.c_contiguous else a


def bits(x):
    """Returns the elements as bytes in C order, with one form of NaN."""
    x = np().ascontiguousarray(x)
    if x.dtype.kind in "fc" or x.dtype.name in ML and kind(x.dtype.name) == "f":
        with np().errstate(all="ignore"):
            w = x.astype("complex128" if x.dtype.kind == "c" else "float64")
        parts = w.reshape(-1).view("float64").copy()
        parts[np().isnan(parts)] = np().nan
        return parts.tobytes()
    return x.tobytes()


def same(a, x, about):
    oracles.equal((a.shape, str(a.dtype), a.size, a.itemsize if a.dtype not in NARROW else 1), (x.shape, x.dtype.name, x.size, x.itemsize), "facts", about)
    n = a.asnumpy()
    oracles.equal((n.shape, n.dtype), (x.shape, x.dtype), "as NumPy's", about)
    if bits(n) != bits(x):
        raise AssertionError(f"elements: got {n.tolist()}, want {x.tolist()} for {about!r}")


def outcome(f, errors=ERRORS):
    try:
        with np().errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts that NumPy drops
            return f(), None
    except errors as e:
        return None, e


def agree(a, ours_, x, theirs, about):
    """Checks that both refuse, or that both results are equal."""
    if (ours_ is None) != (theirs is None):
        raise AssertionError(f"ours {type(ours_).__name__}: {ours_}; NumPy's {type(theirs).__name__}: {theirs}; {about!r}")
    return ours_ is None


def converts(source, to):
    """Reports whether NumPy defines the conversion of a type into another one."""
    s, t = kind(source), kind(to)
    if s == t == "c" or s != "c" and t in "bc" or source == to:
        return True
    if s == "c":
        return t == "b"
    if t in "iu" and s == "f":
        return False
    # Through float32 and rounded twice.
    return not (to in ML and t == "f" and (source in ("float64", "int32", "uint32", "int64", "uint64") or to == "float8_e8m0fnu"))


class Pair:
    """An Array and an ndarray that must stay equal."""

    def __init__(self, e):
        self.e = e
        x = contents(e["dtype"], e["shape"], e["seed"], e["wild"])
        self.x = np().array(x, order=e["order"])
        self.wild = e["wild"]
        self.a = ours(self.x, e["place"])
        self.shared = True  # views of both are views

    def run(self):
        for op in self.e["operations"]:
            about = op, self.e
            getattr(self, op[0])(about, *op[1:])
            same(self.a, self.x, about)
            self.same_nans()

    def same_nans(self):
        """Makes NaNs equal until a view shows their bits: NumPy's conversion keeps a signalling one."""
        if self.wild and (kind(str(self.a.dtype)) in "fc") and self.x.flags.writeable and self.x.size:
            if np().isnan(self.x).any():
                self.x[...] = self.a.asnumpy()

    def narrow(self):
        return str(self.a.dtype) in NARROW

    def become(self, a, x):
        self.a, self.x = a, x

    # -- writing

    def values(self, v):
        """Returns (for the Array, for NumPy, its type or None) of a value."""
        if isinstance(v, list):
            both = [self.values(w) for w in v]
            return [b[0] for b in both], [b[1] for b in both], None
        if not isinstance(v, tuple):
            return v, v, None
        if v[0] == "scalar":
            x = contents(v[1], (), v[2])[()]
            return x, x, v[1]
        if v[0] == "array":
            x = contents(v[1], v[2], v[3])
            return ours(x, v[4]), x, v[1]
        key_ = tuple(map(built, v[1]))
        a, no = outcome(lambda: self.a[key_ + (...,)])
        if no:
            return 0, 0, None
        return a, self.x[key_ + (...,)], str(a.dtype)

    def settles(self, v, name):
        """Reports whether NumPy defines the result of writing v."""
        to = str(self.a.dtype)
        if to in ML and not isinstance(v, tuple):
            return False
        if isinstance(v, list) or not isinstance(v, tuple):
            numbers = [n for n in flat(v)]
            for n in numbers:
                if isinstance(n, tuple):
                    return False
                k = kind(to)
                if isinstance(n, complex) and k != "c" or isinstance(n, float) and k in "iu" and not (n == n and 0 <= n < 100):
                    return False
                if isinstance(n, int) and k in "fcb" and abs(n) >= 1 << 53:
                    return False
            return k_of(numbers) != "mixed" and not (to == "bool" and isinstance(v, list))
        if name is None or v[0] == "scalar" and any(narrow in NARROW and kind(narrow) in "iu" for narrow in (name, to)):
            return False  # a scalar of ml_dtypes is a number here, in range or not
        # Small values, so that floats fit integers.
        return converts(name, to) or (kind(name) == "f" and kind(to) in "iu" and v[0] != "part" and numpys(to).itemsize > 1 and name not in ML)

    def set(self, about, key_, v):
        key_ = tuple(map(built, key_))
        if self.a.readonly:
            _, no = outcome(lambda: self.a.__setitem__(key_, 0))
            if not isinstance(no, (ValueError, IndexError)):
                raise AssertionError(f"a read-only array was written to: {about!r}")
            return
        a, x, name = self.values(v)
        before = self.x.copy(order="K")
        settled = self.settles(v, name)
        _, mine = outcome(lambda: self.a.__setitem__(key_, a))
        _, theirs = outcome(lambda: self.x.__setitem__(key_, x))
        # NumPy 2.4 refuses arrays of one element in the place of a number; older releases accept them.
        if not settled or lists(v) and (mine or theirs) or name and theirs and (name in ML or np().size(x) == 1 and np().ndim(x)):
            self.x[...] = self.a.asnumpy()  # no oracle for the result, nor for the part of a list that was written
            if mine and not isinstance(v, list) and bits(self.x) != bits(before):
                raise AssertionError(f"refused and written all the same: {about!r}")
            return
        agree(None, mine, None, theirs, about)

    def fill(self, about, v):
        if self.a.readonly:
            return
        a, x, name = self.values(v)
        settled = self.settles(v, name) and not isinstance(v, list)
        _, mine = outcome(lambda: self.a.fill(a))
        _, theirs = outcome(lambda: self.x.fill(x))
        if not settled or np().ndim(x) or name in ML and theirs:
            self.x[...] = self.a.asnumpy()
            return
        agree(None, mine, None, theirs, about)

    # -- reading

    def item(self, about, args):
        i, mine = outcome(lambda: self.a.item(*args))
        n, theirs = outcome(lambda: self.x.item(*args))
        if agree(None, mine, None, theirs, about) and str(self.a.dtype) not in ML:
            oracles.equal((type(i), repr(i)), (type(n), repr(n)), "item", about)
        elif not mine:
            oracles.equal(repr(float(i)), repr(float(n)), "item", about)

    def tolist(self, about):
        if str(self.a.dtype) in ML:
            x, _ = outcome(lambda: self.x.astype("float64" if kind(str(self.a.dtype)) == "f" else "int64"))
        else:
            x = self.x
        oracles.equal(repr(self.a.tolist()), repr(x.tolist()), "list", about)
        text = repr(self.a)
        if not text.startswith("Array("):
            raise AssertionError(f"a text: {text} for {about!r}")

    def number(self, about, what):
        f = {"int": int, "float": float, "complex": complex, "bool": bool, "index": operator.index, "len": len}[what]
        mine_, mine = outcome(lambda: f(self.a))
        if self.a.size != 1 and what != "len" or what == "index" and (self.a.ndim or kind(str(self.a.dtype)) not in "iu"):
            if not isinstance(mine, ValueError if what == "bool" else TypeError):
                raise AssertionError(f"{what} gave {mine_!r} for {about!r}")
            return
        if what == "len":
            theirs_, theirs = outcome(lambda: len(self.x))
        else:
            item = self.x.reshape(-1)[0]
            theirs_, theirs = outcome(lambda: f(item.item() if str(self.a.dtype) not in ML else float(item) if kind(str(self.a.dtype)) == "f" else int(item)))
        if agree(None, mine, None, theirs, about):
            oracles.equal((type(mine_), repr(mine_)), (type(theirs_), repr(theirs_)), what, about)

    # -- other types

    def view(self, about, name):
        if self.narrow() or name in NARROW:
            outcome(lambda: self.a.view(name).tolist())
            return
        if name == "bool":
            return  # bytes that are neither true nor false
        a, mine = outcome(lambda: self.a.view(name))
        x, theirs = outcome(lambda: self.x.view(numpys(name)))
        if mine and x is not None and (any(s % x.itemsize for s, n in zip(x.strides, x.shape) if n > 1) or not x.size):
            return  # steps that are not whole elements: NumPy counts bytes
        if agree(None, mine, None, theirs, about):
            self.wild = True
            self.become(a, x)

    def astype(self, about, name, copy_):
        a, mine = outcome(lambda: self.a.astype(name, copy=copy_))
        source = str(self.a.dtype)
        if kind(source) == "c" and kind(name) not in "bc":
            if not isinstance(mine, TypeError):
                raise AssertionError(f"complex numbers became real ones: {mine!r} {about!r}")
            return
        if mine:
            raise AssertionError(f"astype: {mine!r} {about!r}")
        oracles.equal(a.usm_type, self.a.usm_type, "place", about)
        if not converts(source, name) or source in NARROW or name in NARROW:
            oracles.equal((a.shape, str(a.dtype)), (self.x.shape, name), "facts", about)
            return
        if not copy_ and source == name:
            if a is not self.a:
                raise AssertionError(f"a copy, though copy=False: {about!r}")
            return
        x, theirs = outcome(lambda: self.x.astype(numpys(name), order="C"))
        if theirs is None:  # ml_dtypes does not support all pairs
            self.become(a, x)

    def mT(self, about):
        a, mine = outcome(lambda: self.a.mT)
        x, theirs = outcome(lambda: self.x.mT)
        if agree(None, mine, None, theirs, about):
            self.become(a, x)

    def T(self, about):
        self.become(self.a.T, self.x.T)

    def index(self, about, key_):
        a, mine = outcome(lambda: view_of(self.a, ("index", key_)))
        x, theirs = outcome(lambda: view_of(self.x, ("index", (*key_, "..."))) if "..." not in key_ else view_of(self.x, ("index", key_)))
        if str(self.a.dtype) in NARROW and isinstance(mine, ValueError) and "whole byte" in str(mine):
            return
        if agree(None, mine, None, theirs, about):
            self.become(a, np().asarray(x))

    def readonly(self, about):
        self.x = self.x.copy(order="K") if self.x.flags.writeable else self.x
        self.a = self.a.as_readonly()
        oracles.equal(self.a.readonly, True, "read-only", about)

    # -- copies

    def copy(self, about, how):
        a = {"copy": self.a.copy, "copy.copy": lambda: copy.copy(self.a), "deepcopy": lambda: copy.deepcopy(self.a)}[how]()
        oracles.equal((a.readonly, a.usm_type), (False, self.a.usm_type), "a copy", about)
        self.become(a, np().array(self.x, order="C"))

    def array(self, about, name, copy_):
        if self.a.usm_type == "device":
            _, no = outcome(lambda: np().asarray(self.a))
            if not isinstance(no, TypeError):
                raise AssertionError(f"an ndarray of device memory: {about!r}")
            return
        d = None if name is None else numpys(name)
        x, mine = outcome(lambda: self.a.__array__(d, copy=copy_))
        y, theirs = outcome(lambda: self.x.__array__(d, copy=copy_))
        if self.narrow() and mine and copy_ is False or kind(str(self.a.dtype)) == "c" and name and kind(name) != "c":
            return
        if name and not converts(str(self.a.dtype), name) or self.narrow() or name in NARROW:
            return
        if agree(None, mine, None, theirs, about):
            oracles.equal((x.dtype, x.shape, bits(x)), (y.dtype, y.shape, bits(y)), "an ndarray", about)
            if copy_ is None and name is None and self.x.size and x.ctypes.data != self.a._pointer:
                raise AssertionError(f"the ndarray is a copy: {about!r}")
            if copy_ is True and x.size and np().shares_memory(x, np().asarray(self.a)):
                raise AssertionError(f"the ndarray is no copy: {about!r}")

    def pickle(self, about, protocol, out):
        buffers = [] if out and protocol == 5 else None
        data = pickle.dumps(self.a, protocol, buffer_callback=None if buffers is None else buffers.append)
        a = pickle.loads(data, buffers=buffers)
        oracles.equal((a.usm_type, a.readonly, a.device), (self.a.usm_type, self.a.readonly, self.a.device), "from a pickle", about)
        if self.x.size and (self.a.flags.c_contiguous or self.a.flags.f_contiguous):
            used = [i for i, extent in enumerate(a.shape) if extent > 1]
            oracles.equal([a.strides[i] for i in used], [self.a.strides[i] for i in used], "strides from a pickle", about)
        same(a, self.x, about)

    def like(self, about, what, name, order, n):
        d = None if name is None else numpys(name)
        to = name or str(self.a.dtype)
        args = (n,) if what == "full" else ()
        a, mine = outcome(lambda: getattr(ub, f"{what}_like")(self.a, *args, dtype=name, order=order))
        x, theirs = outcome(lambda: getattr(np(), f"{what}_like")(self.x, *args, dtype=d, order=order))
        self.made(about, what, to, a, mine, x, theirs, n)
        if a is not None:
            oracles.equal(a.usm_type, self.a.usm_type, "place", about)

    def new(self, about, what, shape, name, order, n):
        args = (n,) if what == "full" else ()
        to = name or ("float64" if what != "full" else None)
        a, mine = outcome(lambda: getattr(ub, what)(shape, *args, dtype=name, order=order, device="host"))
        x, theirs = outcome(lambda: getattr(np(), what)(shape, *args, dtype=None if to is None else numpys(to), order=order))
        if to is None:
            to = x.dtype.name if x is not None and x.dtype.kind != "O" else "object"
        self.made(about, what, to, a, mine, x, theirs, n)

    def made(self, about, what, to, a, mine, x, theirs, n):
        if to == "object":
            return
        k = kind(to)
        if what == "full" and (to in ML or isinstance(n, complex) and k != "c" or isinstance(n, float) and k in "iu" or isinstance(n, int) and abs(n) >= 1 << 53 and k not in "iu"):
            return
        if not agree(None, mine, None, theirs, about):
            return
        steps = [s // x.itemsize for s, extent in zip(x.strides, x.shape) if extent > 1] if x.size else None
        if to not in NARROW and steps is not None and [s for s, extent in zip(a.strides, a.shape) if extent > 1] != steps and not self.loose(x):
            raise AssertionError(f"strides {a.strides}, NumPy's {x.strides}: {about!r}")
        if what != "empty":
            same(a, x, about)

    def loose(self, x):
        """For order="K" of an array that is neither C nor Fortran, NumPy keeps the order of the axes; Array uses C's."""
        return not self.x.flags.c_contiguous and not self.x.flags.f_contiguous

    def asarray(self, about, name, place, copy_):
        source = str(self.a.dtype)
        a, mine = outcome(lambda: ub.asarray(self.a, dtype=name, **where(place), copy=copy_))
        if name and kind(source) == "c" and kind(name) not in "bc":
            if not isinstance(mine, TypeError):
                raise AssertionError(f"complex numbers became real ones: {about!r}")
            return
        if mine:
            raise AssertionError(f"asarray: {mine!r} {about!r}")
        if name and (not converts(source, name) or source in NARROW or name in NARROW):
            return
        x, theirs = outcome(lambda: self.x if name is None else self.x.astype(numpys(name)))
        if theirs is None:
            same(a, x, about)

    def list(self, about, v, name):
        a_, x_, _ = self.values(v)
        a, mine = outcome(lambda: ub.asarray(a_, dtype=name, device="host"))
        if not isinstance(v, list):
            return
        numbers = list(flat(v))
        if any(isinstance(n, tuple) or isinstance(n, int) and abs(n) >= 1 << 63 for n in numbers) or name or "mixed" == k_of(numbers):
            return
        x, theirs = outcome(lambda: np().asarray(x_))
        if agree(None, mine, None, theirs, about):
            same(a, x, about)


def flat(v):
    if isinstance(v, list):
        for w in v:
            yield from flat(w)
    else:
        yield v


def lists(v):
    return isinstance(v, list)


def k_of(numbers):
    """Returns "mixed" if the numbers have no common type that both libraries choose alike."""
    ints = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    return "mixed" if any(not -(1 << 63) <= n < 1 << 63 for n in ints) and len(numbers) > 1 else ""


@target(example)
def test_values(e):
    pair = Pair(e)
    same(pair.a, pair.x, e)
    pair.run()
