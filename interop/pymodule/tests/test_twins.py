"""Random operations on Arrays, many of which share memory, beside the same operations on ndarrays."""

import contextlib
import operator
import os
import random
import warnings

import pytest
from conftest import places

import usmbridge as ub

STEPS = int(os.environ.get("USMBRIDGE_TWINS", 200))
DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128"]
BINARY = [operator.add, operator.sub, operator.mul, operator.lt, operator.eq, operator.ne, operator.ge, operator.and_, operator.or_, operator.xor,
          operator.truediv]
IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.iand, operator.ior, operator.ixor]
UNARY = [operator.neg, operator.pos, abs, operator.invert]
MOST = 16  # arrays at once


def np_scalar(key):
    return getattr(key, "ndim", None) == 0 and getattr(key, "dtype", None) != bool


class Twins:
    """Pairs of an Array and an ndarray. The ndarrays share memory as the Arrays do."""

    def __init__(self, np, seed):
        self.np, self.r, self.pairs, self.places = np, random.Random(seed), [], list(places())

    def keep(self, x, n, place):
        self.check(x, n)
        if len(self.pairs) >= MOST:
            self.pairs.pop(self.r.randrange(MOST))
        self.pairs.append((x, n, place))

    def check(self, x, n):
        np = self.np
        assert type(x) is ub.Array and x.shape == n.shape and x.dtype == n.dtype, (x.shape, n.shape, x.dtype, n.dtype)
        got = x.asnumpy()
        if not np.array_equal(got, n):
            np.testing.assert_allclose(got, n, rtol=1e-5, atol=1e-5, equal_nan=True)

    def both(self, ours, numpys, lenient=False):
        """Calls both and returns both results, or None if NumPy raises. Ours must raise then too, unless lenient."""
        try:
            with warnings.catch_warnings(), self.np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                want, failed = numpys(), None
        except Exception as e:
            failed = e
        try:
            got = ours()
        except Exception as e:
            if failed is None:
                raise
            assert not isinstance(e, (SystemError, AssertionError))
            return None
        assert failed is None or lenient, f"NumPy raised {failed!r}"
        return None if failed else (got, want)

    # ---- what the steps take ----

    def values(self, shape, dtype):
        lo = 0 if dtype.startswith(("u", "b")) else -4
        n = self.np.array([self.r.randint(lo, 4) for _ in range(int(self.np.prod(shape)))], "float64")
        return n.reshape(shape).astype(dtype)

    def differs(self, n, dtype):
        """Reports whether our conversion, as documented, differs from NumPy's: imaginary parts, and values that integers lack."""
        if n.dtype.kind == "c" and dtype.kind not in "cb":
            return True
        return n.dtype.kind == "f" and dtype.kind in "iu" and not ((n > -5 * (dtype.kind == "i") - 0.1) & (n < 127)).all()

    def any(self):
        return self.r.choice(self.pairs)

    def basic(self, n):
        r, key = self.r, []
        for extent in n.shape:
            kind = r.randrange(8)
            if kind == 0 and extent:
                key.append(r.randint(-extent, extent - 1))
            elif kind == 1:
                key += [None, slice(None)]
            elif kind == 2:
                key.append(...)
                break
            else:
                at = [r.choice([None, *range(-extent - 1, extent + 2)]) for _ in range(2)]
                key.append(slice(*at, r.choice([None, 1, 2, -1, -2])))
            if r.randrange(5) == 0:
                break
        return tuple(key)

    def chosen(self, n):
        """Returns a key of a list, an index array or a mask, with slices and integers around it."""
        r, np = self.r, self.np
        if r.randrange(6) == 0:
            d = n.shape[0] if n.ndim else 1
            return r.choice([True, False, np.array(True), np.bool_(False), np.int8(r.choice([-d - 1, -1, 0, d])), np.array(r.choice([-d, d]), "int16"), [], [d + 5], [0, -d - 1], (..., [0])])
        if n.ndim == 0 or r.randrange(4) == 0:
            depth = r.randint(0, n.ndim)
            return np.array([r.random() < 0.5 for _ in range(int(np.prod(n.shape[:depth])))], bool).reshape(n.shape[:depth])
        key = list(self.basic(n)) if r.randrange(2) else [slice(None)] * n.ndim
        spots = [i for i, k in enumerate(key) if isinstance(k, slice)]
        for i in r.sample(spots, min(len(spots), r.randint(1, 2))):
            extent = max(n.shape[min(i, n.ndim - 1)], 1)
            index = [r.randint(-extent, extent - 1) for _ in range(r.choice([0, 1, 2, 2, 2]))]
            key[i] = index if r.randrange(2) else np.array(index, r.choice(["int8", "int64", "uint8"]) if min(index, default=0) >= 0 else "int32")
        return tuple(key)

    def operand(self, place, shape):
        """Returns a second operand for an Array and its twin: another pair, the elements of one, or a number."""
        r = self.r
        near = [p for p in self.pairs if p[2] is place]
        kind = r.randrange(4)
        if kind < 2:
            x, n, _ = r.choice(near)
            return (x, n) if kind == 0 else (n.copy(),) * 2
        if kind == 2:
            return (r.choice([0, 1, -1, 3, True, 2.0, 1.5, 2 + 1j]),) * 2
        n = self.values(shape[r.randint(0, len(shape)):] if shape else (), r.choice(DTYPES))
        return (n.tolist(),) * 2 if r.randrange(2) else (ub.asarray(n, **place, copy=True), n)

    # ---- the steps ----

    def make(self):
        shape, dtype, place = tuple(self.r.choice([0, 1, 2, 3, 3, 4]) for _ in range(self.r.randint(0, 3))), self.r.choice(DTYPES), self.r.choice(self.places)
        n = self.values(shape, dtype)
        self.keep(ub.asarray(n, **place, copy=True), n, place)

    def view(self):
        x, n, place = self.any()
        key = self.basic(n)
        if isinstance(n[key], self.np.generic):  # which shares nothing
            self.check(x[key], self.np.asarray(n[key]))
        else:
            self.keep(x[key], n[key], place)

    def turn(self):
        x, n, place = self.any()
        axes = self.r.sample(range(n.ndim), n.ndim)
        self.keep(x.transpose(*axes), n.transpose(*axes), place)

    def get(self):
        x, n, place = self.any()
        key = self.chosen(n)
        got = self.both(lambda: x[key], lambda: n[key])
        if got and (isinstance(got[1], self.np.generic) or not isinstance(key, tuple) and np_scalar(key)):  # the result is a view or not by the type of the key
            self.check(got[0], self.np.asarray(got[1]))
        elif got:
            self.keep(*got, place)

    def set(self):
        x, n, place = self.any()
        key = self.basic(n) if self.r.randrange(2) else self.chosen(n)
        mine, numpys = self.operand(place, n.shape)
        if self.differs(self.np.asarray(numpys), n.dtype):
            return
        try:
            selected = n[key]
        except IndexError:
            with pytest.raises((IndexError, OverflowError, ValueError)):  # the others for the value
                x[key] = mine
            return
        if self.np.ndim(numpys) > selected.ndim:
            return  # NumPy drops leading axes of one element for some keys and refuses them for others
        if selected.size:
            before = n.copy()
            if self.both(lambda: x.__setitem__(key, mine), lambda: n.__setitem__(key, numpys)) is None:
                n[...] = before  # NumPy has written the first elements of a list before it raises
        else:  # the rules for values where nothing is selected differ in NumPy from key to key
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                x[key] = mine

    def compute(self):
        x, n, place = self.any()
        op = self.r.choice(BINARY)
        mine, numpys = self.operand(place, n.shape)
        turned = self.r.randrange(2)
        got = self.both(lambda: op(mine, x) if turned else op(x, mine), lambda: op(numpys, n) if turned else op(n, numpys), place["device"] != "host")
        if got:
            self.keep(got[0], self.np.asarray(got[1]), place)

    def change(self):
        x, n, place = self.any()
        op = self.r.choice(IN_PLACE)
        mine, numpys = self.operand(place, n.shape)
        got = self.both(lambda: op(x, mine), lambda: op(n, numpys))
        assert got is None or got[0] is x

    def single(self):
        x, n, place = self.any()
        op = self.r.choice(UNARY)
        got = self.both(lambda: op(x), lambda: op(n), place["device"] != "host")  # dpnp computes +True
        if got:
            self.keep(got[0], self.np.asarray(got[1]), place)

    def convert(self):
        x, n, place = self.any()
        dtype = self.r.choice(DTYPES)
        if self.differs(n, self.np.dtype(dtype)):
            return
        got = self.both(lambda: x.astype(dtype), lambda: n.astype(dtype))
        if got:
            self.keep(*got, place)

    def move(self):
        x, n, _ = self.any()
        place = self.r.choice(self.places)
        self.keep(ub.asarray(x, **place, copy=True), n.copy(), place)

    def share(self):
        """The memory itself by another way."""
        x, n, place = self.any()
        ways = [ub.from_dlpack] + [lambda x: ub.asarray(memoryview(x)), lambda x: ub.asarray(self.np.asarray(x))] * (place["device"] == "host")
        if place["device"] != "host":
            ways.append(ub.from_usm_array_interface)
        self.keep(self.r.choice(ways)(x), n, place)

    def fill(self):
        x, n, _ = self.any()
        value = self.r.choice([0, 1, 2, True])
        x.fill(value)
        n.fill(value)

    STEPS = {make: 2, view: 5, turn: 1, get: 4, set: 6, compute: 4, change: 4, single: 1, convert: 1, move: 1, share: 2, fill: 1}

    def run(self, steps):
        kinds, weights = list(self.STEPS), list(self.STEPS.values())
        for self.step in range(steps):
            self.kind = kinds[0] if not self.pairs else self.r.choices(kinds, weights)[0]
            self.kind(self)
            every = self.step % 20 == 0 or self.step == steps - 1
            for x, n, _ in self.pairs if every else self.r.choices(self.pairs, k=3):
                self.check(x, n)


@pytest.mark.parametrize("seed", range(4))
def test_twins(np, device, dpnp, seed):
    twins = Twins(np, seed)
    try:
        twins.run(STEPS // 2)
    except BaseException as e:
        e.add_note(f"seed {seed}, step {twins.step}, {twins.kind.__name__}")
        raise
