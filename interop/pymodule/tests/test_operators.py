"""Operators and indexing by arrays: computed by dpnp or NumPy, on the memory that the Array has. Arrays in plain memory and in
USM together, the default place of array_api, and NumPy's universal functions."""

import array
import collections
import collections.abc
import copy
import functools
import operator
import pickle
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


def test_matrix_products_in_place_are_whole(np, place):
    """A result with fewer axes is refused before anything is written."""
    m, v, stack = np.arange(9.0).reshape(3, 3), np.arange(3.0), np.arange(18.0).reshape(2, 3, 3)
    masked = np.ma.masked_array(v, [True, False, False])
    for left, right in ((m, v), (v, v), (stack, v), (m, 2.0), (m, masked), (v, m), (m, m), (stack, m), (m, stack), (m, m[:, :1]), (v, stack)):
        a, n = ub.asarray(left, **place, copy=True), left.copy()
        b = ub.asarray(right, **place, copy=True) if type(right) is np.ndarray else right
        try:
            n @= right
        except (ValueError, TypeError):
            n = None
        if n is None or np.ndim(right) < 2:
            with pytest.raises((ValueError, TypeError)):
                a @= b
            assert a.tolist() == left.tolist()
        else:
            a @= b
            assert a.tolist() == n.tolist()


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


def test_arrays_are_not_hashable(np, place):
    """Equal objects must have equal hashes, and a[0] == 1 is true: sets and dictionaries would miss it silently."""
    a = ub.asarray([1, 2], **place)
    assert not isinstance(a, collections.abc.Hashable) and ub.Array.__hash__ is None
    for f in (hash, lambda x: x in {1, 2}, lambda x: {x: 1}, lambda x: collections.Counter([x]), lambda x: {1: 2}.get(x), weakref.WeakSet().add,
              lambda x: weakref.WeakKeyDictionary({x: 1}), functools.lru_cache(lambda x: x)):
        for x in (a, a[0], a[:0]):
            with pytest.raises(TypeError, match="unhashable"):
                f(x)
    gone = []
    r, end = weakref.ref(a), weakref.finalize(a, gone.append, 1)
    assert r() is a and end.alive and a[0].item() in {1, 2}
    for same in (copy.deepcopy(a), pickle.loads(pickle.dumps(a)), copy.deepcopy({"x": [a, a]})["x"][1]):
        assert same.tolist() == [1, 2]
    del a, x
    assert r() is None and gone == [1]


def test_unrelated_objects_and_identity(np):
    a, b = ub.asarray([1, 2], device="host"), ub.asarray([1, 2], device="host")
    for other in (None, object(), "text", b"bytes", ..., {}, {1: 2}, {1}, int, len):
        assert (a == other) is False and (a != other) is True and (other == a) is False and (other != a) is True
        assert other not in a
        for op in (operator.lt, operator.add, operator.matmul, operator.iadd):
            with pytest.raises(TypeError):
                op(a, other)
    assert [b, a].index(b) == 0
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


# ---- plain memory and USM together, and universal functions -----------------------------------------------

KINDS = ["device", "shared", "host"]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lt, operator.le,
             operator.eq, operator.ne, operator.gt, operator.ge, divmod]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_without_axes(np, device, kind):
    """One in plain memory combines with Arrays in USM, and promotes as an array of its type."""
    n = np.asarray([[1, 2, 3], [4, 5, 6]], "float32")
    u, place = ub.asarray(n, usm_type=kind, copy=True), dict(device="host")
    for dtype in ("float32", "float64", "int16"):
        m = np.asarray(2, dtype)
        z = ub.asarray(m, **place, copy=True)
        for f in OPERATORS:
            for got, want in ((f(u, z), f(n, np.full((1, 1), m))), (f(z, u), f(np.full((1, 1), m), n))):
                got, want = (got, want) if type(got) is tuple else ((got,), (want,))
                for g, w in zip(got, want):
                    assert g.usm_type == kind and g.tolist() == w.tolist() and (dtype != "float64" or g.dtype == w.dtype), f
        assert (np.add(u, z) == u + z).asnumpy().all() and z in u and (z + z).usm_type is None
    xp, z = ub.array_api, ub.asarray(2.0, **place, dtype="float32")
    assert xp.where(u > z, u, z).tolist() == np.maximum(n, 2).tolist() and xp.clip(u, z, ub.asarray(4, **place, dtype="float32")).tolist() == n.clip(2, 4).tolist()
    assert xp.stack([z, u[0, 0]]).usm_type == kind and xp.add(u, np.float32(1)).usm_type == kind
    u += z
    assert u.tolist() == (n + 2).tolist() and u.usm_type == kind


@pytest.mark.parametrize("kind", KINDS)
def test_other_shapes_do_not_mix(np, device, kind):
    u, p, z = ub.ones(3, usm_type=kind), ub.ones(3, device="host"), ub.asarray(1.0, device="host")
    xp = ub.array_api
    for f in (lambda: u + p, lambda: p == u, lambda: xp.concat([u, p]), lambda: xp.where(u > z, u, p), lambda: operator.iadd(p, u), lambda: operator.iadd(u, p),
              lambda: operator.iadd(z, u[0]), lambda: p + u[0], lambda: xp.where(p > 0, u, z)):
        with pytest.raises(ValueError, match="in plain memory and in USM"):
            f()
    assert p.tolist() == [1, 1, 1] and u.tolist() == [1, 1, 1] and z.item() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_plain_indices(np, device, kind):
    n = np.arange(12.0).reshape(3, 4)
    masks = [n > 4, n[:, 0] > 3, np.zeros((3, 4), bool)]
    keys = [np.asarray([2, 0, -1]), np.asarray([[0, 1], [1, 2]]), (slice(None), np.asarray([3, 0])), (np.asarray([0, 1]), np.asarray([1, 2])), np.asarray(1)]
    for key in masks + keys:
        u, m = ub.asarray(n, usm_type=kind, copy=True), n.copy()
        k = tuple(ub.asarray(x, device="host") if isinstance(x, np.ndarray) else x for x in key) if type(key) is tuple else ub.asarray(key, device="host")
        assert u[k].usm_type == kind and u[k].tolist() == m[key].tolist()
        u[k] = -1
        m[key] = -1
        assert u.tolist() == m.tolist()
        u[k] = ub.asarray(n[key] * 2, device="host", copy=True)
        m[key] = n[key] * 2
        assert u.tolist() == m.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_plain_indices_of_functions(np, device, kind):
    n, xp = np.asarray([[3.0, 1, 2], [4, 6, 5]]), ub.array_api
    u = ub.asarray(n, usm_type=kind, copy=True)

    def plain(x):
        return ub.asarray(np.asarray(x), device="host")

    order = n[0].argsort()
    for got, want in (
        (xp.take(u, plain([2, 0]), axis=1), n.take([2, 0], axis=1)),
        (xp.take_along_axis(u, plain(n.argsort(axis=1)), axis=1), np.sort(n, axis=1)),
        (xp.repeat(u[0], plain([1, 0, 2])), n[0].repeat([1, 0, 2])),
        (xp.searchsorted(u[0], u[1], sorter=plain(order)), n[0].searchsorted(n[1], sorter=order)),
        (u[0].repeat(plain([1, 0, 2])), n[0].repeat([1, 0, 2])),
        (u[0].searchsorted(u[1], sorter=plain(order)), n[0].searchsorted(n[1], sorter=order)),
    ):
        assert got.usm_type == kind and got.tolist() == want.tolist()
    for f in (lambda: xp.searchsorted(xp.sort(u[0]), plain(n[0])), lambda: xp.searchsorted(u[0], plain(n[0]), sorter=plain(order))):
        with pytest.raises(ValueError, match="in plain memory and in USM"):
            f()


def creations(np, xp):
    n, z = np.arange(3.0), ub.asarray(2.0, device="host")
    return {
        "array": lambda **kw: xp.asarray(n, **kw), "scalar": lambda **kw: xp.asarray(np.float32(2), **kw), "number": lambda **kw: xp.asarray(2, **kw),
        "list": lambda **kw: xp.asarray([1, 2.5], **kw), "buffer": lambda **kw: xp.asarray(memoryview(n), **kw), "copy": lambda **kw: xp.asarray(n, copy=True, **kw),
        "swapped": lambda **kw: xp.asarray(n.astype(">f8"), **kw), "type": lambda **kw: xp.asarray(n, dtype="int32", **kw),
        "rows": lambda **kw: xp.asarray([n, n], **kw), "zeros": lambda **kw: xp.zeros(3, **kw), "full": lambda **kw: xp.full(3, np.float64(2), **kw),
        "full of": lambda **kw: xp.full(3, z, **kw), "arange": lambda **kw: xp.arange(3, **kw), "arange of": lambda **kw: xp.arange(z, stop=4, **kw),
        "eye": lambda **kw: xp.eye(2, **kw), "linspace": lambda **kw: xp.linspace(0, z, 3, **kw), "fftfreq": lambda **kw: xp.fft.fftfreq(4, **kw),
        "empty": lambda **kw: xp.empty(3, **kw), "ones": lambda **kw: xp.ones((), **kw),
    }


@pytest.mark.parametrize("default", [{}, dict(device="host"), dict(usm_type="device"), dict(usm_type="host")], ids=str)
def test_one_default_place(np, device, default):
    xp = ub.array_api
    with ub.set_default(**default):
        kind = ub.empty(0).usm_type
        for name, make in creations(np, xp).items():
            assert make().usm_type == kind, name
            assert make(device="host").usm_type is None and make(usm_type="shared").usm_type == "shared", name
        n = np.arange(3.0)
        if kind is None:
            assert xp.asarray(n, copy=False).__array_interface__["data"] == n.__array_interface__["data"]
        else:
            with pytest.raises(ValueError, match="copy=False"):
                xp.asarray(n, copy=False)
        for shared in (xp.from_dlpack(n), ub.asarray(n)):
            assert shared.usm_type is None and shared.__array_interface__["data"] == n.__array_interface__["data"]


def test_places_are_kept(np, device):
    xp = ub.array_api
    for place in places():
        a = ub.ones(2, **place)
        assert xp.asarray(a) is a and xp.asarray(a, copy=False) is a and xp.asarray([a, a]).usm_type == a.usm_type and xp.asarray([a[0], 2.0]).usm_type == a.usm_type
        copy = xp.asarray(a, copy=True)
        copy[0] = 5
        assert copy.usm_type == a.usm_type and a.tolist() == [1, 1] and xp.asarray(a, dtype="int8").usm_type == a.usm_type
        assert xp.zeros_like(a).usm_type == a.usm_type


def test_usm_of_dpnp_keeps_its_place(dpnp):
    d = dpnp.arange(3.0, usm_type="device")
    a = ub.array_api.asarray(d)
    assert a.usm_type == "device" and a._pointer == ub.asarray(d)._pointer and ub.array_api.asarray(d, copy=False)._pointer == a._pointer
    assert ub.array_api.asarray(d, copy=True)._pointer != a._pointer
    memory = d.get_array().usm_data
    assert ub.array_api.asarray(memory)._pointer == memory._pointer != ub.array_api.asarray(memory, copy=True)._pointer


def test_operators_of_dpnp(dpnp):
    """An Array on the left combines with an array of dpnp; on its own left, dpnp.ndarray refuses other types first."""
    u, d = ub.ones((2, 2)), dpnp.ones((2, 2))
    for x in (d, d.get_array()):
        for f in (*OPERATORS, operator.matmul):
            for r in f(u, x) if f is divmod else (f(u, x),):
                assert type(r) is ub.Array and r.usm_type == d.usm_type
        assert operator.iadd(u, x) is u
    for f in (operator.add, operator.eq):
        with pytest.raises(TypeError, match="supported type"):
            f(d, u)
        assert type(f(ub.asarray(d), u)) is ub.Array and type(f(d.get_array(), u)) is type(d.get_array())


UNARY_FUNCTIONS = ["sqrt", "exp", "sin", "isnan", "negative", "absolute", "modf", "frexp", "square", "spacing", "conjugate", "logical_not"]
BINARY_FUNCTIONS = ["add", "hypot", "maximum", "logaddexp", "divmod", "greater", "logical_and", "copysign", "heaviside", "fmin"]
BY_ARRAY_API = {"sqrt", "exp", "sin", "isnan", "negative", "absolute", "square", "conjugate", "logical_not", "add", "hypot", "maximum", "logaddexp", "greater",
                "logical_and", "copysign", "divmod"}


@pytest.mark.parametrize("name", UNARY_FUNCTIONS + BINARY_FUNCTIONS)
def test_universal_functions_return_arrays(np, device, name):
    f, n = getattr(np, name), np.asarray([[1.0, 4.0], [9.0, 16.0]])
    more = ((2,), (n,)) if name in BINARY_FUNCTIONS else ((),)
    for place in places():
        a = ub.asarray(n, **place, copy=True)
        for rest in more:
            calls = [(lambda: f(a, *rest), f(n, *rest)), (lambda: f(*rest, a), f(*rest, n)), (lambda: f(a, *(a if x is n else x for x in rest)), f(n, *rest))]
            for call, want in calls:
                if a.usm_type == "device" and name not in BY_ARRAY_API:
                    with pytest.raises(TypeError, match="asnumpy"):
                        call()
                    continue
                got = call()
                assert type(got) is type(want) or type(got) is ub.Array
                for g, w in zip(got, want) if type(want) is tuple else [(got, want)]:
                    assert type(g) is ub.Array and g.usm_type == a.usm_type and g.dtype == w.dtype and np.allclose(g.asnumpy(), w)


def test_methods_and_outputs_of_universal_functions(np, device):
    n = np.asarray([[1.0, 4.0], [9.0, 16.0]])
    for place in places(["shared", "host"]):
        a = ub.asarray(n, **place, copy=True)
        for got, want in ((np.add.reduce(a), np.add.reduce(n)), (np.add.reduce(a, axis=None), np.float64(30)), (np.add.accumulate(a, axis=1), np.add.accumulate(n, axis=1)),
                          (np.multiply.outer(a, a), np.multiply.outer(n, n)), (np.add.reduceat(a, [0, 1]), np.add.reduceat(n, [0, 1])),
                          (np.add(a, a, dtype="float32"), np.add(n, n, dtype="float32")), (np.sqrt(a[0, 1]), np.float64(2))):
            assert type(got) is ub.Array and got.usm_type == a.usm_type and got.dtype == want.dtype and got.tolist() == want.tolist()
        out, ours = np.zeros((2, 2)), ub.zeros((2, 2), **place)
        assert np.sqrt(a, out=out) is out and out.tolist() == [[1, 2], [3, 4]]
        assert np.sqrt(a, out=ours) is ours and ours.tolist() == [[1, 2], [3, 4]]
        assert np.sqrt(n, out=ours) is ours and np.modf(a, out=(None, ours))[1] is ours
        first, second = np.modf(a + 0.5, out=(None, out))
        assert type(first) is ub.Array and first.usm_type == a.usm_type and first.tolist() == [[0.5] * 2] * 2 and second is out and out.tolist() == n.tolist()
        np.add.at(a, ([0, 0], [1, 1]), 1)
        assert a.tolist() == [[1, 6], [9, 16]]
        assert np.frompyfunc(str, 1, 1)(a[0]).tolist() == ["1.0", "6.0"]  # objects, which an Array cannot hold
        assert type(np.add(np.ma.ones((2, 2)), a)) is np.ma.MaskedArray
        out = n.copy()
        np.multiply(a, 2, out=out, where=a > ub.asarray(6, **place))
        assert out.tolist() == [[1, 4], [18, 32]]
        with pytest.raises(ValueError, match="read-only"):
            np.add(n, 1, out=a.as_readonly())


def test_other_types_with_universal_functions(np):
    other = type("Other", (), {"__array_ufunc__": lambda self, *inputs, **keywords: "other"})()
    assert np.add(ub.zeros(2), other) == "other"


def test_like(np, device):
    for place in places(["shared"]):
        assert type(np.asarray([1, 2], like=ub.ones(2, **place))) is np.ndarray and np.arange(3, like=ub.ones(2, **place)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("op", IN_PLACE)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32"])
def test_numbers_that_numpy_does_not_cast_in_place(np, place, op, dtype):
    """TypeError where NumPy has it, and the array is unchanged."""
    for number in (True, 2, 1.5, 1j):
        n = np.array([1, 0, 1]).astype(dtype)
        a = ub.asarray(n, **place, copy=True)
        try:
            m = op(n.copy(), number)
        except TypeError:
            with pytest.raises(TypeError):
                op(a, number)
            assert a.tolist() == n.tolist()
        else:
            assert op(a, number) is a and a.tolist() == m.tolist()
