"""Arrays whose elements cannot be shared as they lie: asarray, operators and assignments copy them, as NumPy reads them."""

import ctypes
import operator

import pytest
from conftest import peer, places

import usmbridge as ub

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def unaligned(np, n):
    """Returns n with its first element at an odd address."""
    raw = np.empty(n.nbytes + 1, "u1")
    x = np.ndarray(n.shape, n.dtype, buffer=raw, offset=1)
    x[...] = n
    return x


def halfway(np, n):
    """Returns n with its first element half an element behind a multiple of the item size. NumPy calls complex elements there aligned."""
    raw = np.empty(n.nbytes + 32, "u1")
    x = np.ndarray(n.shape, n.dtype, buffer=raw, offset=-raw.ctypes.data % 16 + max(n.itemsize // 2, 1))
    x[...] = n
    return x


def field(np, n):
    """Returns n as a field of records with an odd size."""
    records = np.zeros(n.shape, [("before", "u1"), ("x", n.dtype), ("after", "u2")])
    records["x"] = n
    return records["x"]


def padded(np, n):
    """Returns n with strides that are not multiples of the item size, the elements aligned where the type permits it."""
    step = n.itemsize + max(n.itemsize // 2, 1)
    x = np.ndarray(n.shape, n.dtype, buffer=np.empty(n.size * step + n.itemsize, "u1"), strides=tuple(s // n.itemsize * step for s in n.strides))
    x[...] = n
    return x


def swapped(np, n):
    return n.astype(n.dtype.newbyteorder(">"))


FORMS = {"unaligned": unaligned, "halfway": halfway, "field": field, "padded": padded, "swapped": swapped, "swapped field": lambda np, n: field(np, swapped(np, n))}


def test_against_numpy(np):
    hypothesis, given = peer("hypothesis"), peer("hypothesis.strategies")

    @hypothesis.settings(max_examples=150)
    @hypothesis.given(given.sampled_from(sorted(FORMS)), given.sampled_from(DTYPES), given.lists(given.integers(0, 4), max_size=3), given.booleans(),
                      given.booleans(), given.integers(0, 2**32 - 1))
    def check(form, dtype, shape, turned, fortran, seed):
        n = np.random.default_rng(seed).integers(0, 2 if dtype == "?" else 100, shape).astype(dtype)
        x = FORMS[form](np, np.array(n, order="F" if fortran else "C"))
        if turned:
            x, n = x.T[..., ::-1] if x.ndim else x, n.T[..., ::-1] if n.ndim else n
        a = ub.asarray(x)
        assert a.shape == n.shape and a.dtype == n.dtype and a.tolist() == n.tolist()
        copy = ub.asarray(x, copy=True)
        assert copy.tolist() == n.tolist() and not copy.readonly
        assert ub.asarray(memoryview(x) if dtype != "f2" and x.ndim else x).tolist() == n.tolist()
        assert not n.size or ub.asarray(memoryview(n))._pointer == n.ctypes.data  # what can be shared is not copied
        assert ub.full(n.shape, x, dtype="complex128").tolist() == n.astype("c16").tolist()
        assert ub.asarray([x, x]).tolist() == [n.tolist()] * 2

    check()


@pytest.mark.parametrize("form", [form for form in FORMS if form != "field"])
def test_rules_of_copy(np, form):
    x = FORMS[form](np, np.arange(6.0).reshape(2, 3))
    for source in (x, x.view(np.matrix), memoryview(x)):
        with pytest.raises(ValueError, match="float64 elements at|f8 elements in another byte order"):
            ub.asarray(source, copy=False)
        a, b = ub.asarray(source), ub.asarray(source, copy=True)
        a[0, 0] = b[0, 0] = 9
        assert x[0, 0] == 0 and not a.readonly and not b.readonly
    assert ub.asarray(x, copy=None, dtype="float32").dtype == "float32"


@pytest.mark.parametrize("form", FORMS)
def test_where_values_are_read(np, device, form):
    n = np.arange(1.0, 7).reshape(2, 3)
    x = FORMS[form](np, n)
    for place in places():
        a = ub.asarray(n, **place, copy=True)
        assert ub.asarray(x, **place).tolist() == n.tolist()
        assert (a + x).tolist() == (x + a).tolist() == (n + n).tolist() and (a == x).tolist() == (n == n).tolist() and (a < x[0]).tolist() == (n < n[0]).tolist()
        a[:] = x * 2
        assert a.tolist() == (2 * n).tolist()
        a[:, 1:] = x[:, 1:]
        a[0] = x[1]
        a += x
        assert a.tolist() == [(n[1] + n[0]).tolist(), [n[1, 0] * 3, *(2 * n[1, 1:])]]
        assert ub.full((2, 3), x, **place).tolist() == n.tolist() and ub.full_like(a, x[0]).tolist() == [n[0].tolist()] * 2
        a.fill(FORMS[form](np, n[0, 1]))
        assert a.tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_unaligned_arrays_compute(np, device, dtype):
    """In-place operators write once and return the Array; what only NumPy's views give is copied."""
    size = np.dtype(dtype).itemsize
    for offset in {1, size // 2}:
        n = np.arange(1, 5).astype(dtype)
        for place in places():
            h = ub.asarray(np.concatenate([np.zeros(offset, "u1"), n.view("u1")]), **place, copy=True)[offset:].view(dtype)
            assert not h.flags.aligned and h.tolist() == n.tolist()
            x, xp, same = n.copy(), h.__array_namespace__(), h
            for op in (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow):
                for b in (2, n + 1):
                    x = op(x, b)
                    h = op(h, b)
                    assert h is same and np.allclose(h.asnumpy(), x, rtol=1e-3), (op, place)
            h[...] = n
            with pytest.raises(ValueError):
                h += np.ones((2, 4))
            assert h.tolist() == n.tolist()
            if place.get("usm_type") != "device":
                assert np.add(h, 1, out=h) is h and h.tolist() == (n + 1).tolist()
                h -= 1
            for f in (lambda x: x.reshape(h, (2, 2)), lambda x: x.flip(h), lambda x: x.expand_dims(h, axis=0), lambda x: x.broadcast_to(h, (2, 4)),
                      lambda x: x.permute_dims(h, (0,)), lambda x: x.squeeze(h[None], axis=0), lambda x: x.stack(x.unstack(h[:, None]))):
                assert sorted(np.ravel(f(xp).asnumpy()).tolist(), key=abs)[-4:] == sorted(n.tolist() * (f(xp).size // 4), key=abs)[-4:]


def test_sources(np):
    """Where such arrays come from."""
    rows = np.arange(9.0).reshape(3, 3)
    complex_rows = np.ndarray((3,), "c16", buffer=rows, strides=(24,))
    assert ub.asarray(complex_rows).tolist() == [1j, 3 + 4j, 6 + 7j]
    assert ub.asarray((ctypes.c_int32.__ctype_be__ * 3)(1, 2, 3)).tolist() == [1, 2, 3]

    class Described:
        __array_interface__ = {**np.arange(3, dtype=">i2").__array_interface__, "data": np.arange(3, dtype=">i2").tobytes()}

    class Old:
        def __array__(self, dtype=None):
            return np.arange(3, dtype=">f4")

    assert ub.asarray(Described()).tolist() == ub.asarray(Old()).tolist() == [0, 1, 2]
    for o in (Described(), Old()):
        with pytest.raises(ValueError):
            ub.asarray(o, copy=False)


def test_byte_order_of_foreign_buffers(np):
    """Exporters that memoryview does not know, with the formats of struct."""
    buffers = peer("_testbuffer")
    for c in "?bhiqBHIQefd":
        for order in ("", "1", "@", "=", "<", ">", "!", "@1", ">1", "!1"):
            for shape, values in (([3], [1, 0, 1]), ([2, 2], [1, 0, 1, 1])):
                o = buffers.ndarray(values, shape=shape, format=order + c, flags=buffers.ND_WRITABLE)
                want = np.reshape(values, shape)
                for where in ({}, {"device": "host"}):
                    a = ub.asarray(o, **where)
                    assert a.tolist() == want.tolist() and a.dtype == np.asarray(o).dtype.newbyteorder("="), (order, c)
                swapped = order[:1] in ("!", ">") and a.itemsize > 1
                if swapped:
                    with pytest.raises(ValueError, match="byte order"):
                        ub.asarray(o, copy=False)
                else:
                    a[...] = 0
                    assert not np.any(o)
    for wrong in ("!2h", ">hh", ">"):
        with pytest.raises((TypeError, ValueError)):
            ub.asarray(buffers.ndarray([(1, 1)] if "h" in wrong else [], shape=[1] if "h" in wrong else [0], format=wrong))


REFUSED = {
    "object": ([1, None], object, 'x.astype("float64")'),
    "<U1": (["a", "b"], None, "numpy.unique"),
    "|S1": ([b"a"], None, "numpy.unique"),
    "datetime64[D]": (["2020-01-01"], "M8[D]", 'x.astype("int64")'),
    "timedelta64[s]": ([3], "m8[s]", 'x.astype("int64")'),
    ">M8[s]": ([3], ">M8[s]", 'x.astype("int64")'),
    "longdouble": ([1], "g", 'x.astype("float64")'),
    "clongdouble": ([1], "G", 'x.astype("complex128")'),
    "[('a', 'u1'), ('b', '<f8')]": ([(1, 2)], [("a", "u1"), ("b", "f8")], 'x["name"]'),
    "|V3": ([b"abc"], "V3", "x.view"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_elements_that_arrays_lack(np, name):
    values, dtype, remedy = REFUSED[name]
    x = np.array(values, dtype)
    a = ub.zeros(x.shape, device="host")

    class Series:
        def __array__(self, dtype=None, copy=None):
            return x

    for use in (lambda: ub.asarray(x), lambda: ub.asarray(x, copy=False), lambda: ub.asarray(x, copy=True), lambda: ub.asarray(x.view(np.matrix)),
                lambda: ub.asarray(Series()), lambda: a + x, lambda: a == x, lambda: ub.full(x.shape, x), lambda: a.__setitem__(slice(None), x)):
        with pytest.raises(TypeError) as e:
            use()
        assert f"no elements of dtype {x.dtype};" in str(e.value) and remedy in str(e.value) and "DLPack" not in str(e.value)


def test_refusals_of_owners_stand(np):
    """What an owner refuses is not copied behind its back."""

    class Owner:
        def __init__(self, error):
            self.error = error

        def __dlpack__(self, **kw):
            raise self.error

        def __dlpack_device__(self):
            return (1, 0)

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("not asked for")

    class Refuses(np.ndarray):
        def __dlpack__(self, **kw):
            raise RuntimeError("no export")

    for error in (BufferError("it requires a gradient"), RuntimeError("no export")):
        with pytest.raises(type(error), match=str(error)):
            ub.asarray(Owner(error))
    with pytest.raises(RuntimeError, match="no export"):
        ub.asarray(np.arange(3).view(Refuses))
