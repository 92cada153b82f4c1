"""usmbridge.array_api: the functions of the standard, computed by dpnp or NumPy."""

import collections
import gc
import operator
import weakref

import pytest
from conftest import run, soon

import usmbridge as ub


@pytest.fixture(params=["host", "device", "shared"])
def place(request, device, dpnp):
    return dict(device="host") if request.param == "host" else dict(device=device, usm_type=request.param)


@pytest.fixture
def xp():
    return ub.ones(1, device="host").__array_namespace__(api_version="2024.12")


def test_namespace(xp, np):
    assert xp is ub.array_api and xp.__array_api_version__ == "2024.12" and ub.zeros(1).__array_namespace__() is xp
    with pytest.raises(ValueError, match="2019.12.*2024.12"):
        ub.zeros(1).__array_namespace__(api_version="2019.12")
    info = xp.__array_namespace_info__()
    assert info.default_device() == ub.zeros(0).device and info.devices() == ub.devices()
    assert info.dtypes(kind="bool") == {"bool": xp.bool} and info.default_dtypes()["integral"] == xp.int64
    assert len(info.dtypes()) == 13 and set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}
    assert all(hasattr(xp, name) for name in xp.__all__) and xp.linalg.svd.__doc__ and xp.fft.fft.__doc__


def test_ranges_of_numbers_with_a_type(xp, np, place):
    """NumPy's numbers, 0-d arrays and Arrays count as the numbers that they stand for."""
    big = 2**53 + 1
    for number in (int, np.int64, np.uint64, np.array, lambda x: ub.asarray(x, **place)):
        for make in (ub.arange, xp.arange):
            r = make(number(big), number(big + 3), **place)
            assert r.dtype == "int64" and r.tolist() == [big, big + 1, big + 2]
            assert make(number(3), **place).tolist() == [0, 1, 2] and make(0, 6, number(2), **place).tolist() == [0, 2, 4]
    for number in (np.int8, np.uint8, np.int32):
        assert ub.arange(number(3), **place).dtype == "int64" and ub.linspace(number(0), 1, 3, **place).dtype == "float64"
    for number in (np.float16, np.float32, np.float64):
        assert ub.arange(number(3), **place).dtype == "float64"
    for make in (ub.linspace, xp.linspace):
        for name in ("float16", "float32", "float64", "complex64", "complex128"):
            x = np.dtype(name).type(1j if name.startswith("complex") else 1.5)
            for pair in ((x, 2), (x, x), (2, x), (np.array(x), 2)):
                r = make(*pair, 3, **place)
                assert r.dtype == name and r.tolist() == np.linspace(*pair, 3, dtype=name).tolist(), pair
        assert make(1j, ub.asarray(1.0, **place), 2, **place).tolist() == [1j, 1]
    with ub.set_default(dtype="float32"):
        assert ub.linspace(0, 1, 3, **place).dtype == "float32" == ub.arange(3.0, **place).dtype


def test_results_are_on_the_memory_of_the_library(xp, np, place):
    a = ub.asarray(np.arange(6.0).reshape(2, 3), **place, copy=True)
    view = xp.permute_dims(a, (1, 0))
    assert view._pointer == a._pointer and view.strides == (1, 3)
    view[0, 1] = 9
    assert a[1, 0].item() == 9
    r = xp.sum(a, axis=0, keepdims=True)
    assert r.tolist() == [[9, 5, 7]] and r.device == a.device and r.usm_type == a.usm_type
    u = xp.unique_all(ub.asarray([3, 1, 3], **place))
    assert u.values.tolist() == [1, 3] and u.counts.tolist() == [1, 2] and type(u.values) is ub.Array
    assert xp.linalg.svd(xp.eye(2, **place)).S.tolist() == [1, 1]
    assert xp.linalg.slogdet(xp.eye(2, **place)).logabsdet.item() == 0
    assert abs(xp.fft.fft(xp.astype(a, "complex128"))[0, 0].item() - 3) < 1e-9
    assert [x.tolist() for x in xp.meshgrid(a[0], a[0])] == [x.tolist() for x in np.meshgrid(a[0].asnumpy(), a[0].asnumpy())]
    assert xp.concat([a, a], axis=None).shape == (12,) and xp.stack((a, a)).shape == (2, 2, 3)
    assert xp.where(a > 1, a, 0).tolist() == [[0, 0, 2], [9, 4, 5]]
    assert xp.take(a, ub.asarray([2, 0], **place), axis=1).tolist() == [[2, 0], [5, 9]]
    assert xp.asnumpy(a).tolist() == a.tolist() and type(xp.asnumpy(a)) is np.ndarray
    descending = xp.argsort(ub.asarray([1, 3, 3, 2], **place), descending=True)
    assert descending.tolist() == [1, 2, 3, 0]
    assert xp.sort(ub.asarray([1, 3, 2], **place), descending=True).tolist() == [3, 2, 1]


def test_creation(xp, place):
    for made in (xp.zeros(3, **place), xp.arange(3, **place), xp.linspace(0, 1, 3, **place), xp.eye(3, **place), xp.fft.fftfreq(3, **place),
                 xp.full(3, 2, **place), xp.asarray([1, 2, 3], **place)):
        assert made.device == ub.empty(0, **place).device and made.usm_type == place.get("usm_type")
    assert xp.arange(3, **place).dtype == "int64" and xp.arange(3.0, **place).dtype == xp.float64
    with ub.set_default(dtype="float32"):
        for made in (xp.arange(3.0, **place), xp.linspace(0, 1, 3, **place), xp.eye(3, **place), xp.fft.fftfreq(3, **place), xp.zeros(2, **place)):
            assert made.dtype == "float32"
    assert xp.linspace(0, 1j, 3, **place).dtype == xp.complex128
    assert xp.arange(1, 7, 2, **place).tolist() == [1, 3, 5] and xp.eye(2, 3, k=1, **place).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_types(xp, np):
    a = ub.zeros(2, "float32", device="host")
    assert xp.result_type(a, xp.float64) == xp.float64 and xp.result_type(a, 1) == xp.float32
    assert xp.can_cast(a, "float64") and xp.finfo(a).bits == 32 and xp.iinfo("int8").max == 127
    assert xp.isdtype(a.dtype, "real floating") and not xp.isdtype(ub.DType("int8"), ("bool", xp.float32))
    assert xp.astype(a, xp.int8).dtype == "int8" and xp.astype(a, a.dtype, copy=False) is a and xp.astype(a, "bfloat16").dtype == "bfloat16"
    assert xp.astype(a, xp.int8, device="host").tolist() == [0, 0]


def test_arguments(xp, np, dpnp):
    a = ub.ones(3, device="host")
    for bad in (np.ones(3), dpnp.ones(3)):
        with pytest.raises(TypeError, match="Arrays and Python numbers.*asarray"):
            xp.add(a, bad)
        with pytest.raises(TypeError, match="Arrays and Python numbers"):
            xp.concat([bad, a])
    with pytest.raises(TypeError, match="no argument is an Array"):
        xp.add(1, 2)
    with pytest.raises(ValueError, match="to_device"):
        xp.concat([a, ub.ones(3, usm_type="shared")])
    with pytest.raises(TypeError, match="bfloat16.*astype"):
        xp.sin(ub.zeros(3, "bfloat16", usm_type="shared"))
    assert xp.add(ub.zeros(3, "float32", device="host"), 1.5).dtype == "float32"


def test_without_dpnp(device, np):
    out = run("""
sys.modules["dpnp"] = None
import dpctl
q = dpctl.SyclQueue(property="in_order")
xp = ub.array_api
for kind in ("shared", "host"):
    a = ub.asarray([1.0, 4.0, 9.0], usm_type=kind, device=q)
    r = xp.sqrt(a) + 1
    assert r.tolist() == [2, 3, 4] and r.usm_type == kind and r.sycl_queue is q
    assert xp.sum(a).usm_type == kind and xp.sum(a).item() == 14
    u = xp.unique_all(a)
    assert u.values.usm_type == kind and type(u).__name__ == "UniqueAllResult"
    a += a
    a[a > 10] = 0
    assert a.tolist() == [2, 8, 0] and a[[0, 1]].usm_type == kind
assert xp.linspace(0, 1, 2, usm_type="host").usm_type == "host"
try: ub.ones(3, usm_type="device") + 1
except TypeError as e: print(e)
""")
    assert "asnumpy()" in out


def test_memory_is_given_back(xp, device, dpt):
    made = ub.ones(3, usm_type="shared")
    imported = ub.asarray(dpt.ones(3))
    results = [made + 1, imported + 1, xp.permute_dims(imported, (0,)), xp.linalg.vector_norm(made, keepdims=True)]
    sums = [xp.sum(r + r).item() for r in (made, imported, *results)]  # each is used as a result and as an argument
    assert sums == [6, 6, 12, 12, 6, pytest.approx(2 * 3**0.5)]
    made.fill(5)  # the next call sees new contents
    assert (made + 1).tolist() == [6, 6, 6]
    gone = [weakref.ref(r) for r in (made, imported, *results)]
    del made, imported, results
    soon(lambda: [g() for g in gone] == [None] * len(gone))


def test_results_are_on_the_queue_of_the_arguments(xp, device, dpctl):
    for queue in (None, dpctl.SyclQueue(), dpctl.SyclQueue(property="in_order")):
        a = ub.ones((3, 3), usm_type="shared", sycl_queue=queue)
        for r in (a + a, xp.sum(a), xp.permute_dims(a, (1, 0)), xp.linalg.qr(a).R, xp.sort(a + a), a.max()):
            assert r.sycl_queue is a.sycl_queue and (queue is None or r.sycl_queue is queue)


def test_results_are_complete_where_they_are_read(xp, np, device):
    a = ub.zeros(1_000_000, "float32", usm_type="shared")
    reads = (lambda b: b.tolist()[-1], lambda b: b.asnumpy()[-1], lambda b: memoryview(b)[-1], lambda b: np.asarray(b)[-1], lambda b: b[-1].item(),
             lambda b: np.from_dlpack(b, device="cpu")[-1], lambda b: b.copy()[-1].item(), lambda b: ub.from_dlpack(b.__dlpack__())[-1].item())
    for i, read in enumerate(reads):
        assert read(xp.add(a, i + 1)) == 2 * i + 1
        a += 1
        assert read(a) == i + 1


def test_queues_are_waited_for_now_and_then(xp, device, monkeypatch):
    """A queue that is never waited for keeps records of its work: 7 MB in 10,000 calls."""
    a = ub.zeros(10)
    monkeypatch.setattr(xp, "_unawaited", 0)
    for i in range(2 * xp._MOST_UNAWAITED):
        assert xp._unawaited == i % xp._MOST_UNAWAITED
        xp.add(a, a)
    assert xp._unawaited == 0


def test_cycles_of_computed_arrays_are_collected(xp, device, dpctl):
    class Owner:
        def __init__(self, memory):
            d = memory.__sycl_usm_array_interface__
            self.__sycl_usm_array_interface__ = dict(d, data=(d["data"][0], False), shape=(4,), typestr="<f4")
            self.memory = memory

    owner = Owner(dpctl.memory.MemoryUSMShared(16))
    owner.array = ub.asarray(owner)
    owner.array.fill(1)
    owner.view = xp.permute_dims(owner.array, (0,))
    assert xp.sum(owner.array).item() == xp.sum(owner.view).item() == 4
    gone = weakref.ref(owner)
    del owner
    soon(lambda: gc.collect() >= 0 and gone() is None)  # dpnp's host tasks hold their arguments until they get the GIL


# Functions that sum in float16, of a matrix, and the same in NumPy.
SUMS = {
    "sum": lambda xp, x: xp.sum(x, axis=0), "sum of all": lambda xp, x: xp.sum(x), "mean": lambda xp, x: xp.mean(x, axis=0),
    "var": lambda xp, x: xp.var(x, axis=0), "std": lambda xp, x: xp.std(x, axis=0), "prod": lambda xp, x: xp.prod(x[:9], axis=0),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=0), "cumulative_prod": lambda xp, x: xp.cumulative_prod(x[:9], axis=0),
    "vecdot": lambda xp, x: xp.vecdot(x.T, x.T), "tensordot": lambda xp, x: xp.tensordot(x, x, axes=((0,), (0,))),
    "matmul": lambda xp, x: xp.matmul(x.T, x), "vector_norm": lambda xp, x: xp.linalg.vector_norm(x, axis=0),
    "vector_norm 3": lambda xp, x: xp.linalg.vector_norm(x, axis=0, ord=3), "matrix_norm": lambda xp, x: xp.linalg.matrix_norm(x),
    "trace": lambda xp, x: xp.linalg.trace(x), "cross": lambda xp, x: xp.linalg.cross(x[:3].T, x[3:6].T),
}
METHODS = {
    "a.sum": lambda x: x.sum(axis=0), "a.mean": lambda x: x.mean(0), "a.std": lambda x: x.std(0, ddof=1), "a.var": lambda x: x.var(0), "a.dot": lambda x: x.T.dot(x),
    "a.cumsum": lambda x: x.cumsum(0), "a.prod": lambda x: x[:9].prod(0), "a @ a": lambda x: x.T @ x,
}


@pytest.mark.parametrize("name", [*SUMS, *METHODS])
def test_sums_of_float16(xp, np, place, name):
    """Results are those of float64, rounded, up to one unit in the last place: sums overflow only if their result does."""
    inputs = [np.full((3000, 2), 1.0), np.full((70000, 1), 0.5), np.full((10000, 1), 10.0), np.array([[60000.0], [60000], [-60000], [-60000], [3], [4]] * 2),
              np.linspace(-300, 300, 1200).reshape(300, 4), np.random.default_rng(1).normal(size=(500, 3))]
    for n in inputs:
        n = n.astype("float16")
        a = ub.asarray(n, **place, copy=True)
        f = (lambda xp, x: METHODS[name](x)) if name in METHODS else SUMS[name]
        with np.errstate(over="ignore"):
            got, want = f(xp, a), f(np, n.astype("float64"))
        assert got.dtype == "float16" and got.shape == want.shape
        got = got.asnumpy().astype("float64")
        cancelled = 1e-6 * np.abs(n.astype("float64")).sum() * (n.min() < 0)  # what float32 rounds in sums that are near zero
        with np.errstate(all="ignore"):
            rounded = np.asarray(want).astype("float16")
            near = np.abs(got - want) <= np.spacing(np.abs(rounded)) + cancelled
        assert (near | (got == rounded)).all(), (got, rounded)
    m = ub.asarray(np.full((100, 100), 6.0, "float16"), **place, copy=True)
    m @= m
    assert (m.asnumpy() == 3600).all() and xp.sum(m, dtype="float32").item() == 36e6


@pytest.mark.parametrize("name", "acos acosh asin asinh atan atanh sqrt log exp tanh".split())
def test_complex_functions_are_exact(xp, np, place, name):
    """dpnp's formulas of the inverse functions lose all digits of large numbers, and half of those of small ones."""
    rng = np.random.default_rng(3)
    for dtype in ("complex64", "complex128"):
        for scale in (1e-6, 1e-3, 1.0, 1e3, 1e9):
            z = ((rng.normal(size=50) + 1j * rng.normal(size=50)) * scale).astype(dtype)
            with np.errstate(all="ignore"):
                got, want = getattr(xp, name)(ub.asarray(z, **place, copy=True)), getattr(np, name)(z.astype("complex128"))
            assert got.dtype == dtype and got.usm_type == place.get("usm_type")
            known = np.isfinite(want) & (np.abs(want) < 1e38) & (np.abs(want) > 1e-37)
            error = np.abs(got.asnumpy().astype("complex128") - want)[known]
            assert (error <= 32 * np.finfo(dtype).eps * np.abs(want)[known]).all(), scale


def test_negative_powers_of_integers(xp, np, place):
    for dtype in ("int8", "int64", "uint8", "uint64"):
        a = ub.asarray([1, 2, 3], **place).astype(dtype)
        negative = ub.asarray([1, -1, 0], **place).astype("int8" if dtype[0] == "i" else "int16")
        for f in (lambda: a ** -1, lambda: xp.pow(a, -1), lambda: a**negative, lambda: 2**negative, lambda: operator.ipow(a, -1), lambda: np.power(a, negative)):
            if dtype == "uint64":  # its powers with signed integers are float64
                continue
            with pytest.raises((ValueError, OverflowError)):
                f()
        assert a.tolist() == [1, 2, 3] == (a**1).tolist() and (a ** ub.asarray([2, 0, 1], **place).astype(dtype)).tolist() == [1, 1, 3]
    assert (ub.asarray([2.0, 4], **place) ** -1).tolist() == [0.5, 0.25] and (ub.asarray([2.0], **place) ** ub.asarray([-2], **place)).tolist() == [0.25]


def test_float16_quotients_do_not_underflow(xp, np, place):
    x, y = np.array([-0.002, 6e-8, 5], "float16"), np.array([60000, -5000, 0.0002], "float16")
    a, b = ub.asarray(x, **place, copy=True), ub.asarray(y, **place, copy=True)
    want = np.floor(x.astype("float64") / y.astype("float64")).astype("float16").tolist()
    assert (a // b).tolist() == want
    a //= b
    assert a.tolist() == want
    assert abs(xp.logaddexp(ub.asarray([-2.505859375], dtype="float16", **place), ub.asarray([-0.07238], dtype="float16", **place)).item() - 0.0117) < 1e-5


Pair = collections.namedtuple("Pair", "x y")


class Row(list):
    pass


@pytest.mark.parametrize("name", ["argmax", "argmin", "sum", "max", "sort", "flip", "cumulative_sum", "count_nonzero", "diff", "concat", "stack", "expand_dims"])
@pytest.mark.parametrize("integer", ["int8", "uint8", "int64"])
def test_integers_of_numpy_are_axes(xp, np, place, name, integer):
    a = ub.asarray(np.arange(6).reshape(2, 3) % 4, **place, copy=True)
    f, axis = getattr(xp, name), np.dtype(integer).type(1)
    x = [a, a] if name in ("concat", "stack") else a
    assert f(x, axis=axis).tolist() == f(x, axis=1).tolist()
    assert xp.repeat(a, np.dtype(integer).type(2), axis=axis).tolist() == xp.repeat(a, 2, axis=1).tolist()


def test_arguments_that_numpy_takes(xp, np, place):
    n = np.array([[1, 4, 9, 16], [0, 0, 5, 1]])
    a = ub.asarray(n, **place, copy=True)
    assert xp.diff(a, 2).tolist() == np.diff(n, 2).tolist() and xp.diff(a, n=1, axis=0).tolist() == np.diff(n, axis=0).tolist()
    for f, g in ((xp.stack, np.stack), (xp.concat, np.concatenate)):
        assert f(Pair(a, a)).tolist() == f(Row([a, a])).tolist() == g(Pair(n, n)).tolist()


def test_errors_of_products_have_the_shapes(xp, np, place):
    a, b = ub.zeros((3, 4), **place), ub.zeros((2, 5), **place)
    for product in (xp.matmul, xp.linalg.matmul, operator.matmul, xp.vecdot, lambda a, b: xp.tensordot(a, b, axes=1)):
        with pytest.raises(ValueError, match=r"\(3, 4\) and \(2, 5\)"):
            product(a, b)


def test_names_beyond_the_standard(xp, np, place):
    """SciPy uses them."""
    assert xp.float16 == np.float16 and ub.zeros(1, dtype=xp.float16, **place).dtype == "float16"
    where = {"device": "host"} if "device" in place else place
    for args, kw in (((0, 2), {}), ((0, 3, 4), {}), ((1, -1, 5), {"endpoint": False, "base": 2.0}), ((0, 1, 3), {"dtype": "float32"})):
        a = xp.logspace(*args, **kw, **where)
        want = np.logspace(*args, **kw)
        assert a.dtype == want.dtype and np.allclose(a.asnumpy(), want) and a.usm_type == ub.empty(0, **where).usm_type
    for n in (np.arange(1, 4), np.arange(6.0).reshape(2, 3), np.arange(6).reshape(3, 2).T, np.ones(0), np.array([True])):
        a = ub.asarray(n, copy=True, **place)
        for k in range(-3, 4):
            if n.ndim == 1 or -n.shape[0] < k < n.shape[1]:
                d = xp.diag(a, k)
                assert d.tolist() == np.diag(n, k).tolist() and d.dtype == n.dtype and d.usm_type == a.usm_type, (n, k)
    for wrong in (ub.zeros((), **place), ub.zeros((1, 1, 1), **place), np.ones(3)):
        with pytest.raises(ValueError, match="diag"):
            xp.diag(wrong)
