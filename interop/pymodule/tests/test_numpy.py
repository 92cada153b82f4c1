"""Array as an argument of NumPy: it sees the same memory or gets an error, never other values. Small protocols of Python and
NumPy that libraries rely on."""

import collections.abc
import gc
import weakref

import pytest
from conftest import peer, places, run, sycl_device

import usmbridge as ub


def on_the_host(np, x):
    yield ub.asarray(x)
    for place in places(["shared", "host"]):
        yield ub.asarray(x, **place, copy=True)


def test_asarray_is_the_memory(np):
    x = np.arange(6.0).reshape(2, 3)
    for a in on_the_host(np, x):
        for y in (np.asarray(a), a.__array__(), a.__array__(copy=False), a.__array__(None, None), a.__array__("float64", copy=False)):
            assert y.dtype == "float64" and y.ctypes.data == a._pointer and y.flags.writeable and np.array_equal(y, x)
        for y in (a.__array__(copy=True), a.__array__("float32"), np.array(a, copy=True)):
            assert y.ctypes.data != a._pointer and np.array_equal(y, x)
        assert a.__array__("float32").dtype == np.float32
        with pytest.raises(ValueError, match="copy=False"):
            a.__array__("float32", copy=False)
        assert a.T.__array__().strides == x.T.strides


def test_read_only_memory(np):
    x = np.arange(3.0)
    x.flags.writeable = False
    a = ub.asarray(x)
    assert not np.asarray(a).flags.writeable and not a.__array__().flags.writeable and a.__array__(copy=True).flags.writeable
    assert a.asnumpy().flags.writeable and a.asnumpy().ctypes.data != a._pointer


def test_device_memory_is_refused(np, device):
    a, x = ub.asarray([1.0, 2.0, 3.0], device=device, usm_type="device"), np.arange(3.0)
    refused = [
        lambda: np.asarray(a), lambda: np.array(a), lambda: np.array([a, a]), lambda: a.__array__(), lambda: a.__array__(copy=True),
        lambda: np.array_equal(a, x), lambda: np.array_equal(x, a), lambda: np.array_equal(a, a), lambda: np.array_equiv(x, a),
        lambda: np.allclose(x, a), lambda: np.concatenate([a, a]), lambda: np.concatenate([x, a]), lambda: np.stack((a, x)),
        lambda: np.block([[a, a], [a, x]]), lambda: np.where(x > 0, a, x), lambda: np.sum(a), lambda: np.add(x, 1, out=a), lambda: np.spacing(a),
        lambda: np.copyto(x, a), lambda: np.in1d(x, a) if hasattr(np, "in1d") else np.isin(x, a), lambda: np.pad(a, mode="edge", pad_width=1),
        lambda: np.einsum("i,i", a, x), lambda: np.ones_like(a), lambda: np.full(3, a), lambda: x.__setitem__(slice(None), a),
    ]
    for f in refused:
        with pytest.raises(TypeError, match="asnumpy"):
            f()
    assert np.array_equal(a.asnumpy(), [1, 2, 3]) and a.asnumpy().flags.writeable


def test_functions_of_numpy_see_the_memory(np):
    x = np.arange(6.0).reshape(2, 3)
    for a in on_the_host(np, x):
        assert np.array_equal(a, x) and np.array_equal(x, a) and not np.array_equal(x + 1, a) and np.allclose(a, x)
        assert np.array_equal(np.concatenate([a, x]), np.concatenate([x, x])) and np.concatenate((a, a)).dtype == x.dtype
        assert np.array_equal(np.block([[a, x], [x, a]]), np.block([[x, x], [x, x]])) and np.shape(a) == (2, 3)
        assert np.array_equal(np.stack([a, a]), np.stack([x, x])) and np.array_equal(np.where(a, a, 7), np.where(x, x, 7))
        assert np.array_equal(np.sqrt(a), np.sqrt(x)) and np.array_equal(np.add(x, a), x + x) and np.sum(a, axis=0).tolist() == x.sum(0).tolist()
        out = ub.zeros((2, 3), "float64", device="host")
        np.copyto(out, a)
        assert np.array_equal(out, x)
        np.clip(x, 1, 3, out=np.asarray(out))
        assert np.sum(a=a, axis=0, out=np.asarray(out)[0]).tolist() == x.sum(0).tolist() == out[0].tolist()
        assert type(np.zeros_like(a)) is np.ndarray and np.zeros_like(a).shape == a.shape
        np.testing.assert_array_equal(a, x)


def test_array_function_returns_notimplemented_for_other_types(np):
    class Other:
        def __array_function__(self, func, types, args, kwargs):
            return "other"

    a = ub.zeros(3, device="host")
    assert np.concatenate([a, Other()]) == "other" and np.concatenate([Other(), a]) == "other"
    assert type(np.zeros(3, like=a)) is np.ndarray
    for bad in ((), (np.sum,), (np.sum, (), [], {}), (np.sum, (), (), None), (np.sum, 5, (), {})):
        with pytest.raises(TypeError):
            a.__array_function__(*bad)
    assert a.__array_function__(np.sum, (), (1,), {}) is NotImplemented
    with pytest.raises(np.exceptions.AxisError):
        np.sum(a, axis=5)
    deep = inner = []
    for _ in range(100):
        inner.append([])
        inner = inner[0]
    inner.append(a)
    a.__array_function__(len, (ub.Array,), (deep,), {})


@pytest.mark.parametrize("name", ["__array_interface__", "__array_struct__", "__sycl_usm_array_interface__"])
def test_memory_that_a_property_makes(np, name):
    """A property can make the memory that its value describes: the Array keeps the last value alive."""
    seen, make = [], np.ones
    if "sycl" in name:
        sycl_device()
        make = peer("dpnp.tensor").ones

    class Owner:
        pass

    def value(self):
        memory = make(4)
        seen.append(weakref.ref(memory))
        described = getattr(memory, name)
        if name != "__array_struct__":  # whose capsule holds the ndarray
            described["keep"] = memory
        return described

    setattr(Owner, name, property(value))
    a = ub.asarray(Owner())
    gc.collect()
    assert len(seen) == (1 if "sycl" in name else 2) and seen[-1]() is not None and a.tolist() == [1, 1, 1, 1]
    view = a[1:]
    del a
    gc.collect()
    assert seen[-1]() is not None and view.tolist() == [1, 1, 1]
    del view
    gc.collect()
    assert seen[-1]() is None


def test_interfaces_without_data(np):
    """Without 'data' the memory is that of the object's buffer."""

    class Owner(bytearray):
        __array_interface__ = {"shape": (4,), "typestr": "|u1", "version": 3}

    o = Owner(b"1234")
    assert ub.asarray(o).tolist() == [49, 50, 51, 52]


# ---- small protocols -------------------------------------------------------------------------------------


def test_iteration(np):
    for place in places():
        a = ub.asarray(np.arange(6).reshape(2, 3), **place)
        assert isinstance(a, collections.abc.Iterable) and [x.tolist() for x in a] == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(TypeError, match="0-d"):
            iter(a[0, 0])


def test_format_and_round(np):
    for place in places():
        a = ub.asarray([2.567, 3.5], **place)
        assert f"{a[0]:.2f}" == "2.57" and round(a[0], 1) == 2.6 and round(a[1]) == 4 and f"{a}" == str(a)
        assert "{:>5d}".format(ub.asarray(7, **place)) == "    7"
        for bad in (lambda: f"{a:.2f}", lambda: round(a), lambda: round(a[0], 1.5), lambda: round(a[0], 1, 2)):
            with pytest.raises(TypeError):
                bad()


def test_tobytes(np):
    for place in places():
        n = np.arange(12, dtype="int16").reshape(3, 4)
        a = ub.asarray(n, **place)
        for x, y in ((a, n), (a.T, n.T), (a[::2, ::-1], n[::2, ::-1]), (a[:0], n[:0]), (a[1, 2], n[1, 2])):
            assert x.tobytes() == y.tobytes()
    assert len(ub.zeros(3, "int4", device="host").tobytes()) == 2


def test_print_options(np):
    for place in places():
        a = ub.asarray([1.23456, 2.0], **place)
        with np.printoptions(precision=2):
            assert repr(a).startswith("Array([1.23, 2.  ], dtype=float64")
        assert repr(a).startswith("Array([1.23456, 2.     ]")
    assert "Array([1.5], dtype=float64, device=host)" in run("print(ub.asarray([1.5], device='host')); assert 'numpy' not in sys.modules", first="")
