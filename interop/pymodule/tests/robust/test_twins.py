"""Index arrays, masks, operators, and writes that other Arrays see: random steps on Arrays, many of which share memory,
compared with the same steps on ndarrays. test_values.py has the operations on one Array."""

import contextlib
import operator
import random

import usmbridge as ub
from robust.engine import target
from robust.test_values import contents, np, outcome, ours, places

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128"]
BINARY = [operator.add, operator.sub, operator.mul, operator.lt, operator.eq, operator.ne, operator.ge, operator.and_, operator.or_, operator.xor,
          operator.truediv]
IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.iand, operator.ior, operator.ixor]
MOST = 16  # arrays at once


def differs(n, dtype):
    """Reports whether our conversion, as documented, differs from NumPy's: imaginary parts, and values that integers lack."""
    if n.dtype.kind == "c" and dtype.kind not in "cb":
        return True
    return n.dtype.kind == "f" and dtype.kind in "iu" and not ((n > -5 * (dtype.kind == "i") - 0.1) & (n < 127)).all()


def both(mine, numpys_, lenient=False):
    """Calls both and returns both results, or None if NumPy raises. Ours must raise then too, unless lenient."""
    want, failed = outcome(numpys_, Exception)
    got, error = outcome(mine, Exception)
    if error and (failed is None or isinstance(error, (SystemError, AssertionError))):
        raise error
    assert error or failed is None or lenient, f"NumPy raised {failed!r}"
    return None if error or failed else (got, want)


def check(a, x):
    assert type(a) is ub.Array and a.shape == x.shape and a.dtype == x.dtype, (a.shape, x.shape, a.dtype, x.dtype)
    np().testing.assert_allclose(a.asnumpy(), x, rtol=1e-5, atol=1e-5, equal_nan=True)


class Twins:
    """Pairs of an Array and an ndarray with their place. The ndarrays share memory as the Arrays do."""

    def __init__(self, seed):
        self.r, self.pairs = random.Random(seed), []

    def keep(self, a, x, place):
        check(a, x)
        if len(self.pairs) >= MOST:
            self.pairs.pop(self.r.randrange(MOST))
        self.pairs.append((a, x, place))

    # ---- operands of the steps ----

    def basic(self, x):
        r, key = self.r, []
        for extent in x.shape:
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

    def chosen(self, x):
        """Returns a key of a list, an index array or a mask, with slices and integers around it."""
        r, array = self.r, np().array
        if r.randrange(6) == 0:
            d = x.shape[0] if x.ndim else 1
            return r.choice([True, False, array(True), np().bool_(False), np().int8(r.choice([-d - 1, -1, 0, d])), array(r.choice([-d, d]), "int16"),
                             [], [d + 5], [0, -d - 1], (..., [0])])
        if x.ndim == 0 or r.randrange(4) == 0:
            depth = r.randint(0, x.ndim)
            return array([r.random() < 0.5 for _ in range(int(np().prod(x.shape[:depth])))], bool).reshape(x.shape[:depth])
        key = list(self.basic(x)) if r.randrange(2) else [slice(None)] * x.ndim
        spots = [i for i, k in enumerate(key) if isinstance(k, slice)]
        for i in r.sample(spots, min(len(spots), r.randint(1, 2))):
            extent = max(x.shape[min(i, x.ndim - 1)], 1)
            # Each element once: of several values for one, dpnp writes any, and NumPy the last.
            index = [position - extent * r.randrange(2) for position in r.sample(range(extent), min(extent, r.choice([0, 1, 2, 2, 2])))]
            key[i] = index if r.randrange(2) else array(index, r.choice(["int8", "int64", "uint8"]) if min(index, default=0) >= 0 else "int32")
        return tuple(key)

    def operand(self, place, shape):
        """Returns a second operand for an Array and its twin: another pair, the elements of one, or a number."""
        r = self.r
        kind = r.randrange(4)
        if kind < 2:
            a, x, _ = r.choice([pair for pair in self.pairs if pair[2] == place])
            return (a, x) if kind == 0 else (x.copy(),) * 2
        if kind == 2:
            return (r.choice([0, 1, -1, 3, True, 2.0, 1.5, 2 + 1j]),) * 2
        x = contents(r.choice(DTYPES), shape[r.randint(0, len(shape)):], r.random())
        return (x.tolist(),) * 2 if r.randrange(2) else (ours(x, place), x)

    # ---- the steps: each has an Array, its twin and their place ----

    def make(self, *unused):
        r = self.r
        shape, dtype, place = tuple(r.choice([0, 1, 2, 3, 3, 4]) for _ in range(r.randint(0, 3))), r.choice(DTYPES), r.choice(places())
        x = contents(dtype, shape, r.random())
        if dtype[0] not in "bu":
            x -= 4
        self.keep(ours(x, place), x, place)

    def view(self, a, x, place):
        key = self.basic(x)
        if isinstance(x[key], np().generic):  # which shares nothing
            check(a[key], np().asarray(x[key]))
        else:
            self.keep(a[key], x[key], place)

    def turn(self, a, x, place):
        axes = self.r.sample(range(x.ndim), x.ndim)
        self.keep(a.transpose(*axes), x.transpose(*axes), place)

    def get(self, a, x, place):
        key = self.chosen(x)
        got = both(lambda: a[key], lambda: x[key])
        number = getattr(key, "ndim", None) == 0 and key.dtype != bool
        if got and (isinstance(got[1], np().generic) or number):  # the result is a view or not by the type of the key
            check(got[0], np().asarray(got[1]))
        elif got:
            self.keep(*got, place)

    def set(self, a, x, place):
        key = self.basic(x) if self.r.randrange(2) else self.chosen(x)
        mine, theirs = self.operand(place, x.shape)
        if differs(np().asarray(theirs), x.dtype):
            return
        selected, failed = outcome(lambda: x[key])
        if failed:
            _, error = outcome(lambda: a.__setitem__(key, mine))
            assert isinstance(error, (IndexError, OverflowError, ValueError)), error  # the others for the value
        elif np().ndim(theirs) > selected.ndim:
            return  # NumPy drops leading axes of one element for some keys and refuses them for others
        elif selected.size:
            before = x.copy()
            if both(lambda: a.__setitem__(key, mine), lambda: x.__setitem__(key, theirs)) is None:
                x[...] = before  # NumPy has written the first elements of a list before it raises
        else:  # the rules for values where nothing is selected differ in NumPy from key to key
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                a[key] = mine

    def compute(self, a, x, place):
        op = self.r.choice(BINARY)
        mine, theirs = self.operand(place, x.shape)
        if self.r.randrange(2):
            got = both(lambda: op(mine, a), lambda: op(theirs, x), place != "host")  # dpnp computes some that NumPy refuses
        else:
            got = both(lambda: op(a, mine), lambda: op(x, theirs), place != "host")
        if got:
            self.keep(got[0], np().asarray(got[1]), place)

    def change(self, a, x, place):
        op = self.r.choice(IN_PLACE)
        mine, theirs = self.operand(place, x.shape)
        got = both(lambda: op(a, mine), lambda: op(x, theirs))
        assert got is None or got[0] is a

    def share(self, a, x, place):
        """The memory itself by another way."""
        if place == "host":
            ways = ub.from_dlpack, lambda a: ub.asarray(memoryview(a)), lambda a: ub.asarray(np().asarray(a))
        else:
            ways = ub.from_dlpack, ub.from_usm_array_interface
        self.keep(self.r.choice(ways)(a), x, place)

    STEPS = {make: 2, view: 5, turn: 1, get: 4, set: 6, compute: 4, change: 4, share: 2}

    def step(self):
        kind = self.r.choices(*zip(*self.STEPS.items()))[0] if self.pairs else Twins.make
        kind(self, *(self.r.choice(self.pairs) if self.pairs else ()))
        return kind.__name__


@target(lambda r: {"seed": r.randrange(1 << 30), "steps": r.randint(10, 50)}, 10)
def test_twins(e):
    twins, steps = Twins(e["seed"]), []
    try:
        for i in range(e["steps"]):
            steps.append(twins.step())
            for a, x, _ in twins.pairs if i % 10 == 9 else twins.r.choices(twins.pairs, k=3):
                check(a, x)
    except BaseException as error:
        error.add_note(f"after {steps}")
        raise
