"""The methods, attributes and functions that NumPy, dpnp, CuPy and PyTorch share: against NumPy, on each memory."""

import inspect
import itertools
import pickle
import warnings

import pytest
from conftest import places, run
from hypothesis import given, settings
from hypothesis import strategies as st

import usmbridge as ub

REAL = ("bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64")
NUMBERS = (*REAL, "complex64", "complex128")


# Views of an array in each layout.
LAYOUTS = (lambda a: a, lambda a: a.T, lambda a: a[::-1], lambda a: a[..., ::2], lambda a: a[:1], lambda a: a[..., None][:, 0])


def operand(np, draw, dtypes):
    """Draws an ndarray of few small values, so that sums are exact and values repeat."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dtype = draw(st.sampled_from(dtypes))
    values = draw(st.lists(st.integers(0, 6), min_size=1, max_size=8))
    n = np.resize(np.array(values), shape).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        n = n / 4
    if np.dtype(dtype).kind == "c":
        n = n * (1 + 2j)
    return n.astype(dtype)


def reduction(*names, many=True):
    def arguments(draw, n):
        axes = [None, *range(-n.ndim, n.ndim)]
        if many and n.ndim > 1:
            axes.append((0, -1))
        kw = {"axis": draw(st.sampled_from(axes))}
        if draw(st.booleans()):
            kw["keepdims"] = True
        for name in names:
            if draw(st.booleans()):
                kw[name] = draw(st.sampled_from(["complex128"] if n.dtype.kind == "c" else ["float64", "complex128"])) if name == "dtype" else 1
        return (), kw

    return arguments


def by_axis(names, none=False):
    def arguments(draw, n):
        kw = {"axis": draw(st.sampled_from([*([None] if none else []), *range(-n.ndim, n.ndim)]))}
        if "dtype" in names:
            kw["dtype"] = draw(st.sampled_from((None, "complex128")))
        if "kind" in names:
            kw["kind"] = "stable"
        return (), kw

    return arguments


def taken(draw, n):
    axis = draw(st.sampled_from([None, *range(-n.ndim, n.ndim)]))
    mode = draw(st.sampled_from(("raise", "wrap", "clip")))
    size = n.size if axis is None else n.shape[axis]
    bound = size if mode == "raise" else 3 * size
    index = st.integers(-bound if mode != "clip" else 0, bound - 1)
    return (draw(index | st.lists(index, max_size=3) | st.lists(st.lists(index, min_size=2, max_size=2), min_size=1, max_size=2)),), {"axis": axis, "mode": mode}


def repeated(draw, n):
    axis = draw(st.sampled_from([None, *range(-n.ndim, n.ndim)]))
    size = n.size if axis is None else n.shape[axis]
    return (draw(st.integers(0, 3) | st.lists(st.integers(0, 2), min_size=size, max_size=size)),), {"axis": axis}


def two_axes(draw, n):
    return (draw(st.integers(-n.ndim, n.ndim - 1)), draw(st.integers(-n.ndim, n.ndim - 1))), {}


def diagonal(draw, n):
    axes = draw(st.permutations(range(n.ndim)))[:2]
    return (draw(st.integers(-2, 2)), *axes), {}


def ordered(draw, n):
    return (), {"order": draw(st.sampled_from("CFAK"))}


def squeezed(draw, n):
    ones = [i for i, m in enumerate(n.shape) if m == 1]
    return (draw(st.sampled_from([None, tuple(ones), *ones])),), {}


def nothing(draw, n):
    return (), {}


METHODS = {
    "all": (REAL, reduction()),
    "any": (REAL, reduction()),
    "argmax": (REAL, reduction(many=False)),
    "argmin": (REAL, reduction(many=False)),
    "argsort": (REAL, by_axis(("kind",), none=True)),
    "clip": (REAL, lambda draw, n: ((), draw(st.sampled_from([{"min": 1}, {"max": 1.5}, {"min": 1, "max": 2}, {"min": [1.5]}])))),
    "conj": (NUMBERS, nothing),
    "conjugate": (NUMBERS, nothing),
    "cumprod": (NUMBERS, by_axis(("dtype",), none=True)),
    "cumsum": (NUMBERS, by_axis(("dtype",), none=True)),
    "diagonal": (NUMBERS, diagonal),
    "flatten": (NUMBERS, ordered),
    "max": (REAL, reduction()),
    "mean": (NUMBERS, reduction("dtype")),
    "min": (REAL, reduction()),
    "nonzero": (NUMBERS, nothing),
    "prod": (NUMBERS, reduction("dtype")),
    "ravel": (NUMBERS, ordered),
    "repeat": (NUMBERS, repeated),
    "round": (NUMBERS[1:], lambda draw, n: ((draw(st.integers(-1, 2)),), {})),
    "squeeze": (NUMBERS, squeezed),
    "std": (NUMBERS, reduction("dtype", "ddof")),
    "sum": (NUMBERS, reduction("dtype")),
    "swapaxes": (NUMBERS, two_axes),
    "take": (NUMBERS, taken),
    "trace": (NUMBERS, diagonal),
    "var": (NUMBERS, reduction("dtype", "ddof")),
    "real": (NUMBERS, None),
    "imag": (NUMBERS, None),
}
VIEWS = {"diagonal", "ravel", "squeeze", "swapaxes", "real", "imag", "conj", "conjugate"}


def same(np, r, expected):
    """Compares values, types and shapes."""
    if isinstance(expected, tuple):
        assert type(r) is tuple and len(r) == len(expected)
        for x, y in zip(r, expected):
            same(np, x, y)
        return
    assert type(r) is ub.Array and r.dtype == expected.dtype and r.shape == expected.shape, (r, expected)
    np.testing.assert_allclose(r.asnumpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=15)
@given(st.data())
def test_like_numpy(np, dpnp, name, data):
    dtypes, arguments = METHODS[name]
    whole = operand(np, data.draw, dtypes)
    layout = data.draw(st.sampled_from(LAYOUTS))
    n = layout(whole)
    if name in ("diagonal", "trace") and n.ndim < 2:
        return
    args, kw = arguments(data.draw, n) if arguments else (None, None)

    def use(a):
        return getattr(a, name) if args is None else getattr(a, name)(*args, **kw)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ddof=1 of one element; a complex number to a real type
        expected = use(n)
        shared = isinstance(expected, np.ndarray) and np.shares_memory(expected, whole)
        assert not shared or name in VIEWS
        for place in places():
            a = ub.asarray(whole, copy=True, **place)
            r = use(layout(a))
            same(np, r, expected if isinstance(expected, tuple) else np.asarray(expected))
            if isinstance(expected, np.ndarray) and expected.size:
                assert (a._pointer <= r._pointer < a._pointer + a.nbytes) == shared


def test_names_and_signatures():
    """The package has placeholders for exactly the names of the table, and a program that uses none loads nothing."""
    out = run("""
names = [n for n in dir(ub.Array) if type(vars(ub.Array).get(n)).__name__ == '_Lazy']
assert {'numpy', 'usmbridge._methods', 'usmbridge.array_api', 'usmbridge._operators'}.isdisjoint(sys.modules)
assert {'dask', 'numba', 'share', 'array_api', 'arange'} <= set(dir(ub)) and 'dask' not in sys.modules and 'numba' not in sys.modules
assert 'Limit the memory' in __import__('pydoc').render_doc(ub.dask) and 'distributed' not in sys.modules
assert not hasattr(ub, 'no_such_name')
ub.zeros(3, device='host').sum
methods = sys.modules['usmbridge._methods']
assert sorted(names) == sorted(methods.METHODS) and sorted(methods.FUNCTIONS) == sorted(ub._FUNCTIONS)
assert not any(type(v).__name__ == '_Lazy' for v in vars(ub.Array).values())
print('numpy' in sys.modules)
""", first="")
    assert out == "False\n"
    assert str(inspect.signature(ub.Array.sum)) == "(self, axis=None, dtype=None, out=None, keepdims=False)"
    assert ub.Array.sum.__qualname__ == "Array.sum" and ub.Array.sum.__module__ == "usmbridge"


def test_first_use_writes_an_attribute(np):
    run("a = ub.asarray([1j]); a.real = 3; assert a.tolist() == [3 + 1j]\ntry: a.sum = 1\nexcept AttributeError: pass\nelse: raise SystemExit(1)")


def test_out(np, dpnp):
    for place in places():
        a = ub.asarray(np.arange(6, dtype="int8").reshape(2, 3), **place)
        for name, like in (("sum", (3, "int64")), ("max", (3, "int8")), ("cumsum", ((2, 3), "int64")), ("mean", (3, "float32")), ("std", (3, "float64")), ("argmax", (3, "int64"))):
            out = ub.zeros(*like, **place)
            r = getattr(a, name)(0, out=out)
            assert r is out
            np.testing.assert_allclose(out.asnumpy(), getattr(np.arange(6, dtype="int8").reshape(2, 3), name)(0))
        with pytest.raises(TypeError, match="not cast to out"):
            a.mean(0, None, ub.zeros(3, "float64", **place)[:]).mean(0, out=ub.zeros((), "int8", **place))
        with pytest.raises(ValueError, match="shape"):
            a.sum(0, out=ub.zeros(2, "int64", **place))
        with pytest.raises(ValueError, match="read-only"):
            a.sum(0, out=ub.zeros(3, "int64", **place).as_readonly())
        with pytest.raises(TypeError, match="must be an Array"):
            a.sum(0, out=np.zeros(3))


def test_sort_is_in_place(np, dpnp):
    n = np.array([[3, 1, 2], [6, 5, 4]])
    for place in places():
        a = ub.asarray(n, copy=True, **place)
        v = a[:, ::-1]
        assert v.sort(0) is None and a.tolist() == np.sort(n, 0).tolist()
        v.sort()
        assert v.tolist() == [[1, 2, 3], [4, 5, 6]]
        for bad, error in ((lambda: a.as_readonly().sort(), ValueError), (lambda: a.sort(None), TypeError), (lambda: a.sort(2), ValueError)):
            with pytest.raises(error):
                bad()


def test_partitions(np, dpnp):
    n = np.array([[3, 1, 2, 9], [6, 5, 4, 0]])
    for place in places():
        for kth, axis in ((1, -1), ([0, 2], 1), (-1, 0)):
            a = ub.asarray(n, copy=True, **place)
            indices = a.argpartition(kth, axis)
            assert a.tolist() == n.tolist() and indices.usm_type == a.usm_type
            assert a.partition(kth, axis) is None
            for m in (a.asnumpy(), np.take_along_axis(n, indices.asnumpy(), axis)):
                want = np.sort(n, axis)
                assert (np.take(m, kth, axis) == np.take(want, kth, axis)).all() and (np.sort(m, axis) == want).all()
        assert n.reshape(-1)[a.argpartition(3, None).asnumpy()].size == 8
        for bad in (lambda: a.partition(4), lambda: a.argpartition(-5), lambda: a.partition([0, 7], 1), lambda: a.as_readonly().partition(0)):
            with pytest.raises(ValueError):
                bad()


def test_files(np, dpnp, tmp_path):
    n = np.arange(6, dtype="int16").reshape(2, 3)
    for place in places():
        a = ub.asarray(n, copy=True, **place)
        for x, y in ((a, n), (a.T, n.T), (a[:, ::2], n[:, ::2])):
            x.tofile(tmp_path / "bytes")
            assert (tmp_path / "bytes").read_bytes() == y.tobytes()
            with open(tmp_path / "text", "w") as f:
                x.tofile(f, sep=",")
            assert (tmp_path / "text").read_text() == ",".join(map(str, y.ravel().tolist()))
            for file in (tmp_path / "pickle", str(tmp_path / "pickle")):
                x.dump(file)
                b = pickle.loads((tmp_path / "pickle").read_bytes())
                assert b.tolist() == y.tolist() and b.usm_type == x.usm_type


def test_flat(np, dpnp):
    for place in places():
        a = ub.asarray([[1, 2], [3, 4]], **place)
        a.flat[1] = 7
        assert a.tolist() == [[1, 7], [3, 4]] and [x.item() for x in a.T.flat] == [1, 3, 7, 4]
        with pytest.raises(ValueError, match="read-only"):
            a.T.flat[0] = 1


def test_dot_and_searchsorted(np, dpnp):
    shapes = [((), (2, 3)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((2, 1, 3), (4, 3, 2)), ((3,), (4, 3, 2))]
    for place in places():
        for (s, t), dtype in itertools.product(shapes, ("int32", "float64", "complex64")):
            x, y = (np.arange(1, 1 + np.prod(k, dtype=int)).reshape(k).astype(dtype) for k in (s, t))
            a, b = (ub.asarray(k, **place) for k in (x, y))
            for other in (b, y, y.tolist()) if dtype == "complex64" and t else (b,):
                r = a.dot(other)
                assert r.usm_type == a.usm_type and r.shape == np.dot(x, y).shape and np.allclose(r.asnumpy(), np.dot(x, y))
        a = ub.asarray([1.0, 2.0, 4.0], **place)
        assert a.dot(2).tolist() == [2, 4, 8] and a.searchsorted(2).item() == 1 and a.searchsorted([2, 3.0], side="right").tolist() == [2, 2]
        assert ub.asarray([4.0, 1.0], **place).searchsorted(2.0, sorter=[1, 0]).item() == 1


def test_base_and_flags(np):
    for place in places():
        a = ub.zeros((2, 3), **place)
        views = [a[1:], a[0, 0], a.T, a.reshape(3, 2), a.view("int8"), a.as_readonly(), next(iter(a)), a.squeeze(), a[1:].swapaxes(0, 1)]
        assert all(v.base is a for v in views) and a.base is None and a.copy().base is None
        f, t = a.flags, a.T.as_readonly().flags
        assert f.c_contiguous and f["C_CONTIGUOUS"] and f["C"] and f.writeable and f["WRITEABLE"] and f.owndata and f.aligned and f.forc and not f.fnc
        assert t.f_contiguous and t["F"] and not t.contiguous and not t.writable and not t["W"] and not t["OWNDATA"] and t.fnc
        assert "C_CONTIGUOUS : True" in repr(f)
        for bad in ("X", "NOTHING", "c_contiguous", 3):
            with pytest.raises(KeyError):
                f[bad]
        rest = ub.ones(3, **place)[1:]
        assert rest.tolist() == [1, 1] and rest.base.tolist() == [1, 1, 1]
        base = rest.base
        base.release()
        assert rest.tolist() == [1, 1] and repr(rest.base) == "<Array, released>"
    n = np.zeros(3)
    a = ub.asarray(n)
    assert a.base is None and a[1:].base is a and a[1:][1:].base is a


def test_parts_are_writable_views(np):
    for place in places():
        a = ub.asarray([1 + 2j, 3 + 4j], **place)
        a.real[0], a.imag = 5, 6
        assert a.tolist() == [5 + 6j, 3 + 6j] and a[:, None].T.imag.tolist() == [[6, 6]]
        r = a.real.copy()
        assert r.real is r and r.imag.tolist() == [0, 0]
        with pytest.raises(ValueError, match="read-only"):
            r.imag = 1


def test_functions(np, dpnp):
    for place in places():
        a = ub.asarray([[1.0, 2.0]], **place)
        assert ub.arange(3, **place).tolist() == [0, 1, 2] and ub.arange(1, 7, 2, "int8", **place).dtype == "int8"
        assert ub.linspace(0, 1, 3, **place).tolist() == [0, 0.5, 1] and len(ub.linspace(0, 1, **place)) == 50
        assert ub.eye(2, 3, 1, "int32", **place).tolist() == [[0, 1, 0], [0, 0, 1]]
        assert ub.array(a)._pointer != a._pointer and ub.array([1, 2], "float32", **place).dtype == "float32"
        for r in (ub.stack([a, a]), ub.concat((a, a)), ub.concat([a, np.ones((1, 2))]), ub.arange(2, **place), ub.eye(2, **place)):
            assert type(r) is ub.Array and r.usm_type == place.get("usm_type")
        assert ub.stack([a, a], 2).shape == (1, 2, 2) and ub.concat([a, a], None).shape == (4,)
    assert ub.concat([[1], [2]]).tolist() == [1, 2]


def test_foreign_operands(np):
    a = ub.asarray([[3.0, 1.0], [2.0, 4.0]])
    assert a.std(dtype="int64").dtype == "int64" and (a[0] * 3).std(dtype="int64").item() == 3
    with pytest.raises(TypeError, match="MaskedArray"):
        a.dot(np.ma.masked_array([1.0, 2.0]))
    for bad, error in ((lambda: a.ravel("X"), ValueError), (lambda: a.squeeze(0), ValueError), (lambda: a[:1, None].squeeze((0, -3)), ValueError), (lambda: a.swapaxes(0, 2), ValueError), (lambda: a.take([0.5]), TypeError),
                       (lambda: a.take([9]), IndexError), (lambda: a.take(0, mode="other"), ValueError), (lambda: a.diagonal(0, 1, 1), ValueError), (lambda: round(a), TypeError)):
        with pytest.raises(error):
            bad()


def test_without_numpy():
    """Operators and methods report what to install."""
    out = run("""
sys.modules["numpy"] = None
a = ub.ones(3, device="host")
for use in (lambda: a * 2, lambda: a.sum(), lambda: a[[0]], lambda: a.asnumpy(), lambda: ub.arange(3), lambda: __import__("usmbridge.array_api")):
    try:
        use()
    except ImportError as e:
        print("usmbridge[numpy]" in str(e) and "usmbridge[sycl]" in str(e) and e.name)
assert a.squeeze().ravel().swapaxes(0, 0).real.tolist() == [1, 1, 1] and a.flags.c_contiguous
try:
    ub.array_api
except AttributeError as e:
    print("usmbridge[numpy]" in str(e))
""", first="")
    assert out == "numpy\n" * 6 + "True\n"
