"""Operators of Array raise TypeError, so that none returns another value than an array library would."""

import operator
import weakref

import pytest

import usmbridge as ub

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, divmod, pow, operator.matmul, operator.lshift,
              operator.rshift, operator.and_, operator.or_, operator.xor, operator.iadd, operator.imul, operator.ipow]
COMPARISON = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
WAY = r"numpy\.asarray\(a\).*dpnp\.tensor\.from_dlpack\(a\)"


@pytest.mark.parametrize("op", ARITHMETIC + COMPARISON)
def test_with_numbers_and_arrays(np, op):
    for a in (ub.asarray([1, 2, 3]), ub.zeros(3, "int64")):
        both = [3, 2.5, True, 1j, np.int64(1), np.float32(2), np.zeros(3), np.zeros(3, int), ub.zeros(3)]
        for other in both + [[1, 2, 3], (1, 2, 3), memoryview(b"abc"), bytearray(3), np.ma.zeros(3)]:
            with pytest.raises(TypeError, match=WAY):
                op(a, other)
        for other in both:
            with pytest.raises(TypeError, match=WAY):
                op(other, a)


def test_in_place_operators_do_not_change_numpys_array(np):
    x = np.zeros(3)
    with pytest.raises(TypeError, match=WAY):
        x += ub.zeros(3, device="host")
    assert x.tolist() == [0, 0, 0]


def test_unary_and_membership():
    a = ub.asarray([3.0, 4.0])
    for op in (operator.neg, operator.pos, abs, operator.invert):
        with pytest.raises(TypeError, match=WAY):
            op(a)
    for x in (3.0, 5, None, a, "x"):
        with pytest.raises(TypeError, match=WAY):
            x in a


def test_arrays_of_other_libraries(dpt, dpnp):
    a = ub.asarray([1, 2])
    for other in (dpt.asarray([1, 2]), dpnp.asarray([1, 2])):
        for op in (operator.eq, operator.ne, operator.lt, operator.add):
            with pytest.raises(TypeError, match=WAY):
                op(a, other)


def test_unrelated_objects_and_identity():
    a, b = ub.asarray([1, 2]), ub.asarray([1, 2])
    for other in (None, object(), "text", b"bytes", ..., {}, {1: 2}, {1}, int, len):
        assert not a == other and a != other and not other == a and other != a
        for op in (operator.lt, operator.add, operator.matmul):
            with pytest.raises(TypeError):
                op(a, other)
    assert a == a and not a != a and hash(a) == hash(a) and hash(a) != hash(b)
    assert {a: 1, b: 2}[b] == 2 and len({a, b, a}) == 2 and a in {a} and a in [a] and [b, a].index(b) == 0

    class Reflected:
        def __radd__(self, other):
            return other

        def __eq__(self, other):
            return "mine"

    assert a + Reflected() is a and (a == Reflected()) == "mine"
    with pytest.raises(TypeError):
        pow(a, 2, 3)
