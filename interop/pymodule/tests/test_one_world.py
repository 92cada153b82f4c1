"""Arrays in plain memory and in USM together, the default place of array_api, and NumPy's universal functions."""

import operator

import pytest
from conftest import places

import usmbridge as ub

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


UNARY = ["sqrt", "exp", "sin", "isnan", "negative", "absolute", "modf", "frexp", "square", "spacing", "conjugate", "logical_not"]
BINARY = ["add", "hypot", "maximum", "logaddexp", "divmod", "greater", "logical_and", "copysign", "heaviside", "fmin"]
BY_ARRAY_API = {"sqrt", "exp", "sin", "isnan", "negative", "absolute", "square", "conjugate", "logical_not", "add", "hypot", "maximum", "logaddexp", "greater",
                "logical_and", "copysign", "divmod"}


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_universal_functions_return_arrays(np, device, name):
    f, n = getattr(np, name), np.asarray([[1.0, 4.0], [9.0, 16.0]])
    more = ((2,), (n,)) if name in BINARY else ((),)
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
