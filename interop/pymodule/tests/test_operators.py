"""Operators and indexing by arrays: computed by dpnp or NumPy, on the memory that the Array has."""

import array
import collections
import operator
import weakref

import pytest
from conftest import peer, places

import usmbridge as ub

BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, divmod, pow, operator.lt, operator.le, operator.eq,
          operator.ne, operator.gt, operator.ge, *BITS]
IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.ipow, operator.iand, operator.ior, operator.ixor,
            operator.ilshift, operator.irshift]


@pytest.fixture(params=["host", "device", "shared", "host USM"])
def place(request, device, dpnp):
    if request.param == "host":
        return dict(device="host")
    return dict(device=device, usm_type=request.param.split()[0])


def check(got, want, np, place):
    """Compares results with NumPy's: Arrays at the place, with the values and the element type."""
    if isinstance(want, tuple):
        assert len(got) == len(want)
        return [check(g, w, np, place) for g, w in zip(got, want)]
    assert type(got) is ub.Array and got.device.filter_string == ub.empty(0, **place).device.filter_string
    assert (got.usm_type is None) == (place["device"] == "host") and got.usm_type == place.get("usm_type")
    assert got.dtype == want.dtype and got.tolist() == want.tolist()


@pytest.mark.parametrize("op", BINARY)
def test_binary(np, op, place):
    n, m = np.array([[4, 5, 6], [7, 8, 9]]), np.array([[2, 1, 3]])
    a, b = ub.asarray(n, **place, copy=True), ub.asarray(m, **place, copy=True)
    for x, y, nx, ny in ((a, b, n, m), (a, 3, n, 3), (3, b, 3, m), (a, m, n, m), (a[:, ::-1], b[::-1, ::-1], n[:, ::-1], m[:, ::-1]), (a, [[1, 2, 3]], n, np.array([[1, 2, 3]]))):
        check(op(x, y), op(nx, ny), np, place)
    if op not in (pow, *BITS):  # of integers
        check(op(a, 2.5), op(n, 2.5), np, place)
        for other in (m, m.astype("float32"), np.float32(2)):
            check(op(a, other), op(n, other), np, place)
            check(op(other, a), op(other, n), np, place)


def test_unary_and_matrices(np, place):
    n = np.array([[-1, 2], [3, -4]])
    a = ub.asarray(n, **place, copy=True)
    for op in (operator.neg, operator.pos, abs, operator.invert):
        check(op(a), op(n), np, place)
    check(a @ a.T, n @ n.T, np, place)
    check(n @ a, n @ n, np, place)


@pytest.mark.parametrize("op", IN_PLACE)
def test_in_place_operators_write_to_the_memory(np, op, place):
    n, m = np.array([12, 10, 3]), np.array([2, 1, 2])
    a, b = ub.asarray(n, **place, copy=True), ub.asarray(m, **place, copy=True)
    for other, mine in ((b, m), (2, 2), (m, m)):
        view, address = a[:], a._pointer
        r = op(a, other)
        n = op(n, mine)
        assert r is a and a._pointer == address and view.tolist() == n.tolist()
    backwards = a[::-1]
    backwards += 1
    assert a.tolist() == (n + 1).tolist()
    for bad in (1.5, ub.ones((2, 3), "int64", **place)):
        before = a.tolist()
        with pytest.raises((TypeError, ValueError)):
            a *= bad
        assert a.tolist() == before
    frozen = a.as_readonly()
    with pytest.raises(ValueError, match="read-only"):
        frozen += 1


def test_numpys_array_in_place(np):
    x = np.zeros(3)
    x += ub.ones(3, device="host")
    assert x.tolist() == [1, 1, 1] and type(x) is np.ndarray


def test_unrelated_objects_and_identity(np):
    a, b = ub.asarray([1, 2], device="host"), ub.asarray([1, 2], device="host")
    for other in (None, object(), "text", b"bytes", ..., {}, {1: 2}, {1}, int, len):
        assert (a == other) is False and (a != other) is True and (other == a) is False and (other != a) is True
        assert other not in a
        for op in (operator.lt, operator.add, operator.matmul, operator.iadd):
            with pytest.raises(TypeError):
                op(a, other)
    assert hash(a) == hash(a) and hash(a) != hash(b)
    assert {a: 1, b: 2}[b] == 2 and len({a, b, a}) == 2 and a in {a} and [b, a].index(b) == 0
    assert 2 in a and 3 not in a and np.int64(1) in a

    class Reflected:
        def __radd__(self, other):
            return other

        def __eq__(self, other):
            return "mine"

    assert a + Reflected() is a and (a == Reflected()) == "mine"
    with pytest.raises(TypeError):
        pow(a, 2, 3)


def test_places_do_not_mix(device, dpctl, dpnp):
    shared = ub.ones(3, usm_type="shared")
    own = ub.ones(3, usm_type="shared", sycl_queue=dpctl.SyclQueue(property="in_order"))
    with pytest.raises(ValueError, match="different queues.*to_device"):
        own + shared
    r = own + 1
    assert r.sycl_queue == own.sycl_queue
    # The kind is dpnp's decision.
    assert (shared + ub.ones(3, usm_type="device")).usm_type == "device" and (shared + ub.ones(3, usm_type="host")).usm_type == "shared"


def test_operands_are_not_kept(np):
    for place in places():
        a = ub.ones(3, **place)
        r, gone = a + 1, weakref.ref(a)
        del a
        assert gone() is None and r.tolist() == [2, 2, 2]
    a.release() if (a := ub.ones(1)) is not None else None
    with pytest.raises(ValueError, match="released"):
        a + 1


def quantity(np):
    """Returns a class with the protocol of astropy's Quantity: values with a unit that a ufunc keeps."""

    class Quantity(np.ndarray):
        __array_priority__ = 10000

        def __array_ufunc__(self, ufunc, method, *inputs, out=(), **kwargs):
            if out and not all(type(o) is Quantity for o in out):
                raise TypeError("cannot store a quantity in an array without a unit")
            plain = [x.view(np.ndarray) if type(x) is Quantity else x for x in inputs]
            out = {"out": tuple(o.view(np.ndarray) for o in out)} if out else {}
            r = np.ndarray.__array_ufunc__(self.view(np.ndarray), ufunc, method, *plain, **out, **kwargs)
            if r is NotImplemented:
                return r
            return tuple(np.asarray(x).view(Quantity) for x in r) if type(r) is tuple else np.asarray(r).view(Quantity)

    return Quantity


def sparse(np):
    """Returns a class with the protocol of SciPy's sparse arrays: it has a priority, takes ndarrays only and refuses others."""

    class Sparse:
        __array_priority__ = 10.1
        __hash__ = None

        def __init__(self, dense):
            self.dense = dense

        def answer(op, turned):
            def method(self, other):
                if type(other) is not np.ndarray:
                    return NotImplemented
                return Sparse(op(other, self.dense) if turned else op(self.dense, other))

            return method

        for name in ("add", "mul", "matmul"):
            locals()[f"__{name}__"] = answer(getattr(operator, name), False)
            locals()[f"__r{name}__"] = answer(getattr(operator, name), True)
        for name in ("eq", "ne", "lt", "gt"):
            locals()[f"__{name}__"] = answer(getattr(operator, name), False)

    return Sparse


PARTNERS = {
    "list": lambda np: [1, 2, 3],
    "tuple": lambda np: (1, 2, 3),
    "range": lambda np: range(3),
    "deque": lambda np: collections.deque([1, 2, 3]),
    "array.array": lambda np: array.array("i", [1, 2, 3]),
    "ndarray": lambda np: np.array([1, 0, 3]),
    "subclass": lambda np: np.array([1, 0, 3]).view(type("Subclass", (np.ndarray,), {})),
    "scalar": lambda np: np.float32(2),
    "masked": lambda np: np.ma.array([1, 2, 3], mask=[0, 1, 0]),
    "matrix": lambda np: np.matrix([1, 2, 3]),
    "Quantity": lambda np: np.array([1, 2, 3]).view(quantity(np)),
    "sparse": lambda np: sparse(np)(np.array([1, 2, 3])),
    "dask": lambda np: peer("dask.array").from_array(np.array([1, 2, 3]), chunks=2),
}


def outcome(np, op, x, y):
    """Returns the type and the elements of a result, with an ndarray for an Array, or the type of the error."""
    try:
        r = op(x, y)
    except Exception as e:
        return TypeError if isinstance(e, TypeError) else type(e)
    if isinstance(r, np.ma.MaskedArray):
        return type(r), r.mask.tolist(), r.filled(0).tolist()
    plain = isinstance(r, (ub.Array, np.generic)) or type(r).__name__ == "Subclass"
    return np.ndarray if plain else type(r), (r.asnumpy() if type(r) is ub.Array else np.asarray(getattr(r, "dense", r))).tolist()


@pytest.mark.parametrize("name", PARTNERS)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_partners(np, place, name):
    """The result beside an Array is NumPy's beside an ndarray. Operands give an Array, arrays of other libraries one of theirs."""
    operands = ("list", "tuple", "range", "deque", "array.array", "ndarray", "subclass", "scalar")
    partner, n = PARTNERS[name](np), np.array([1, 2, 3])
    a = ub.asarray(n, **place, copy=True)
    for op in (operator.add, operator.mul, operator.eq, operator.ne, operator.lt, operator.matmul):
        for mine, numpys in (((a, partner), (n, partner)), ((partner, a), (partner, n))):
            want, got = outcome(np, op, *numpys), outcome(np, op, *mine)
            if name in operands or place.get("usm_type") != "device":
                assert got == want or isinstance(want, type) and isinstance(got, type), op
                if name not in operands and not isinstance(want, type):
                    assert type(op(*mine)) is type(op(*numpys))
                elif not isinstance(want, type):
                    assert type(op(*mine)) is ub.Array
            else:
                assert isinstance(got, type) and issubclass(got, TypeError) or isinstance(want, type)


@pytest.mark.parametrize("name", PARTNERS)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_partners_in_place(np, place, name):
    """An operator in place changes the Array as NumPy changes an ndarray, or raises and changes nothing."""
    for op in (operator.iadd, operator.imul):
        partner, n = PARTNERS[name](np), np.array([1.0, 2.0, 3.0])
        a = ub.asarray(n, **place, copy=True)
        want = n.copy()
        try:
            written = op(want, partner) is want
        except Exception:
            written = False
        if written and (place.get("usm_type") != "device" or name not in ("masked", "matrix")):
            assert op(a, partner) is a and a.tolist() == want.tolist()
        else:
            with pytest.raises((TypeError, ValueError, NotImplementedError)):
                op(a, partner)
            assert a.tolist() == n.tolist()


def test_a_partner_that_takes_the_operator(np, place):
    """A type without universal functions answers itself, with the Array (NEP 13). In place nothing else is bound to the name."""

    class Own:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "radd", other

        def __add__(self, other):
            return "add", other

        def __eq__(self, other):
            return "eq", other

    a, own = ub.ones(3, **place), Own()
    assert (a + own)[1] is a and (own + a)[1] is a and (a == own)[1] is a and (own == a)[1] is a
    for other in (own, object(), None, "text", {}):
        before = a
        with pytest.raises(TypeError):
            a += other
        assert a is before and a.tolist() == [1, 1, 1]
    with pytest.raises(TypeError):
        a * own


def test_universal_functions_with_partners(np):
    for place in places():
        n = np.array([1.0, 2.0, 3.0])
        a = ub.asarray(n, **place, copy=True)
        masked, q = PARTNERS["masked"](np), PARTNERS["Quantity"](np)
        for f in (np.add, np.hypot):
            for partner in (masked, q):
                for mine, numpys in (((a, partner), (n, partner)), ((partner, a), (partner, n))):
                    if place.get("usm_type") == "device":
                        with pytest.raises(TypeError, match="asnumpy"):
                            f(*mine)
                    else:
                        assert outcome(np, f, *mine) == outcome(np, f, *numpys)
        if place.get("usm_type") != "device":
            assert 2 in a and masked in a


def test_partners_on_usm(np, dpt, dpnp, place):
    """Arrays on USM beside an Array on USM give an Array; beside plain memory the error says what to do."""
    a = ub.asarray([1, 2, 3], **place)
    for other in (dpt.asarray([1, 2, 3]), dpnp.asarray([1, 2, 3])):
        for op in (operator.add, operator.eq, operator.matmul):
            if place["device"] == "host":
                with pytest.raises(ValueError, match="to_device"):
                    op(a, other)
            else:
                assert type(op(a, other)) is ub.Array
