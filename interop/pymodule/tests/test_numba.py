"""Functions that Numba compiles take Arrays on memory that the host can read."""

import gc
import os
import sys
import types

import pytest
from conftest import DTYPES, program, run

import usmbridge as ub


@pytest.fixture(params=["host", "shared"])
def new(request):
    """Returns zeros() of float64 on the host and in shared memory. Each test compiles its functions for each."""
    if request.param == "host":
        return lambda shape: ub.zeros(shape, device="host")
    request.getfixturevalue("device")
    return lambda shape: ub.zeros(shape, usm_type="shared")


def test_reads_and_writes(np, numba, device):
    @numba.njit
    def f(a):
        total = a.dtype.type(0)
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                total += a[i, j]
                a[i, j] = i * 10 + j
        return total, a.shape, a.strides, a.size, a.ndim, a.itemsize

    for where in (dict(device="host"), dict(usm_type="shared"), dict(usm_type="host")):
        a = ub.zeros((3, 4), "float64", **where)
        n = np.asarray(a)
        n[...] = np.arange(12).reshape(3, 4)
        assert f(a) == (66.0, (3, 4), (32, 8), 12, 2, 8)
        assert n.tolist() == [[i * 10 + j for j in range(4)] for i in range(3)]
        # A view with other strides has another type and the same memory.
        assert f(a[::-1, 1::2])[1:3] == ((3, 2), (-32, 16)) and n[2].tolist() == [20, 0, 22, 1]
        assert f(a.T)[2] == (8, 32) and n[0].tolist() == [0, 10, 20, 30]


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "float16"])
def test_element_types(np, numba, dtype):
    @numba.njit
    def double(a):
        for i in range(a.size):
            a[i] += a[i]

    values = np.array([0, 1, 1, 0] if dtype == "bool" else [1, 2, 3, 4], dtype)
    a, n = ub.asarray(values, device="host", copy=True), values.copy()
    t = numba.typeof(a)
    assert isinstance(t, numba.types.Array) and t.dtype == numba.typeof(n).dtype and t.layout == "C" and t.mutable
    double(a)
    assert np.asarray(a).tolist() == (n + n).tolist()


def test_results(np, numba, new):
    a = new((4, 3))
    assert numba.njit(lambda a: a)(a) is a
    assert numba.njit(lambda a, b: b if a.size > 100 else a)(a, a.copy()) is a
    view = numba.njit(lambda a: a[1:, ::2])(a)
    assert type(view) is np.ndarray and view.shape == (3, 2)
    view[:] = 5
    assert np.asarray(a)[1:, ::2].tolist() == [[5, 5]] * 3 and np.asarray(a)[0].tolist() == [0, 0, 0]
    fresh = numba.njit(lambda a: a + 1)(a)
    assert type(fresh) is np.ndarray and fresh[1, 0] == 6
    both = numba.njit(lambda a: (a, a.T))(a)
    assert both[0] is a and type(both[1]) is np.ndarray


def test_references_balance(np, numba, new):
    a = new(16)
    functions = [numba.njit(f) for f in (lambda a: None, lambda a: a, lambda a: a[1:], lambda a: a.sum(), lambda a: (a, a))]
    for f in functions:
        f(a)
    gc.collect()
    before = sys.getrefcount(a)
    for f in functions:
        for _ in range(50):
            f(a)
    gc.collect()
    assert sys.getrefcount(a) == before


def test_read_only(np, numba):
    x = np.arange(4.0)
    x.flags.writeable = False
    a = ub.from_dlpack(x)
    assert a.readonly and not numba.typeof(a).mutable
    assert numba.njit(lambda a: a.sum())(a) == 6

    @numba.njit
    def write(a):
        a[0] = 1

    with pytest.raises(numba.TypingError, match="[Rr]eadonly"):
        write(a)


def test_the_first_type_in_a_process(numba):
    """An Array has its type in any order of imports and uses."""
    make = "; a = usmbridge.zeros(4, device='host'); "
    for code in (f"import usmbridge, numba{make}print(numba.njit(lambda a: a.sum())(a))", f"import numba, usmbridge{make}print(numba.njit(lambda a: a.sum())(a))",
                 f"import usmbridge, numba{make}print((numba.vectorize(lambda x: x + 1)(a) - 1)[0].item())", f"import usmbridge, numba{make}print(numba.typeof(a))",
                 f"import numba, sys; assert 'usmbridge' not in sys.modules; numba.njit(lambda: 0)(); import usmbridge{make}print(numba.typeof(a))"):
        assert program("-W", "error", "-c", code).strip() in ("0.0", "usmbridge.Array(float64, 1d, C)"), code


def test_entry_point(numba):
    import importlib.metadata

    points = list(importlib.metadata.entry_points(group="numba_extensions", name="init"))
    ours = [p for p in points if p.value == "usmbridge:numba.init"]
    assert ours and ours[0].load()() is None


def test_device_memory_is_refused(numba, device):
    a = ub.zeros(3, usm_type="device")
    for _ in range(2):
        with pytest.raises(numba.TypingError, match=r"the host cannot read USM device memory.*asnumpy\(\).*to_device"):
            numba.njit(lambda a: a.sum())(a)
    assert numba.njit(lambda a: a.sum())(a.to_device("host")) == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_types_that_numba_lacks(numba, dtype):
    with pytest.raises(numba.TypingError, match="asarray|asnumpy"):
        numba.njit(lambda a: a.size)(ub.zeros(4, dtype, device="host"))


def test_globals_and_other_misuse(np, numba):
    a = ub.zeros(4, "float64", device="host")

    @numba.njit
    def frozen():
        return a.sum()

    with pytest.raises(numba.TypingError, match="pass it as an argument"):
        frozen()

    from usmbridge.numba import ArrayType

    explicit = numba.njit(numba.float64(ArrayType(numba.float64, 1, "C")))(lambda a: a.sum())
    assert explicit(a) == 0
    for wrong in (np.zeros(4), ub.zeros(4, "float32", device="host"), ub.zeros((2, 2), "float64", device="host"), ub.zeros(8, "float64", device="host")[::2], None):
        with pytest.raises(TypeError):
            explicit(wrong)
    with pytest.raises(TypeError):
        numba.njit("f8(f8[::1])")(lambda a: a.sum())(a)


def test_misaligned_memory_is_refused(numba, device):
    """A dictionary can describe elements at any address; compiled code requires alignment."""
    keep = ub.zeros(64, "uint8", usm_type="shared")
    described = dict(keep.__sycl_usm_array_interface__, data=(keep._pointer + 1, False), shape=(4,), typestr="<f8", typedescr=[("", "<f8")])
    a = ub.from_usm_array_interface(types.SimpleNamespace(__sycl_usm_array_interface__=described))
    total = numba.njit(lambda a: a.sum())
    with pytest.raises(ValueError, match=r"not; pass a\.copy\(\)"):
        total(a)
    assert total(a.copy()) == 0


def test_inner_functions_and_unification(np, numba, new):
    inner = numba.njit(numba.float64(numba.types.Array(numba.float64, 1, "C")))(lambda x: x.sum())

    @numba.njit
    def f(a, n):
        x = a
        for _ in range(n):
            x = x[1:]
        return inner(a), x.sum(), (a * a).sum(), np.asarray(a)[0]

    a = new(5)
    np.asarray(a)[:] = range(5)
    assert f(a, 2) == (10, 9, 30, 0)
    # Together with NumPy arrays, in one call.
    assert numba.njit(lambda a, n: (a + n).sum())(a, np.ones(5)) == 15


def test_containers(np, numba, device):
    """A container whose type is that of an Array takes computed arrays and ndarrays, and the other way round. It gives the
    Array itself back, and ndarrays for the others."""
    List, Dict = numba.typed.List, numba.typed.Dict

    @numba.njit
    def appended(a, first):
        typed = List()
        if first:
            typed.append(a)
            typed.append(a * 2)
        else:
            typed.append(a * 2)
            typed.append(a)
        return typed

    @numba.njit
    def stored(a):
        d = Dict()
        d[1] = a
        d[2] = a + 1
        d[1] = a * 3
        return d

    @numba.njit
    def reflected(a):
        x = [a]
        x.append(a + 1)
        x[0] = a * 2
        y = [a * 2]
        y.append(a)
        return x[0][0], x[1][0], y[0][0], y[1][0]

    a = ub.asarray([1.0, 2.0, 3.0], usm_type="shared")
    r = appended(a, True)
    assert r[0] is a and type(r[1]) is np.ndarray and r[1].tolist() == [2, 4, 6]
    assert [x.tolist() for x in appended(a, False)] == [[2, 4, 6], [1, 2, 3]]
    assert {k: x.tolist() for k, x in stored(a).items()} == {1: [3, 6, 9], 2: [2, 3, 4]}
    assert reflected(a) == (2, 2, 2, 1)
    mixed = List()
    mixed.append(a)
    mixed.append(np.ones(3))
    mixed.append(ub.zeros(3, device="host"))
    mixed[2][0] = 7
    assert [x.tolist() for x in mixed] == [[1, 2, 3], [1, 1, 1], [7, 0, 0]]


REFUSED = """
import warnings
import numba
warnings.simplefilter("ignore", numba.NumbaTypeSafetyWarning)
a = ub.zeros(3, device="host")
typed = numba.typed.List()
typed.append(a)
for other in (ub.zeros(6, device="host")[::2], a.as_readonly()):
    try:
        typed.append(other)
    except numba.TypingError as e:
        print("copy the array first" in str(e), len(typed))
"""


def test_containers_refuse(numba):
    """Numba's containers ask, with a warning, for conversions to another layout and to writable arrays."""
    assert run(REFUSED) == "True 1\nTrue 1\n"  # in another process: Numba keeps the errors and what their frames hold


def test_parallel_vectorize_and_gufunc(np, numba, device):
    @numba.njit(parallel=True)
    def scaled(a, out):
        for i in numba.prange(a.size):
            out[i] = a[i] * 2
        return out.sum()

    a, out = ub.ones(1000, usm_type="shared"), ub.zeros(1000, device="host")
    assert scaled(a, out) == 2000 and np.asarray(out).tolist() == [2] * 1000
    fixed = numba.vectorize(["f8(f8)"])(lambda x: x + 1)
    free = numba.vectorize(lambda x: x + 1)
    assert fixed(a).tolist() == free(a).tolist() == [2] * 1000
    fixed(a, out=np.asarray(out))
    assert np.asarray(out)[0] == 2

    @numba.guvectorize(["(f8[:], f8[:])"], "(n)->(n)")
    def triple(x, y):
        for i in range(x.size):
            y[i] = 3 * x[i]

    assert triple(a).tolist() == [3] * 1000


def test_pending_work_is_waited_for(np, numba, device):
    """Pending work of this library on the memory is done before compiled code reads it."""
    source = ub.asarray(np.arange(1 << 20, dtype="float64"), usm_type="device")
    total = numba.njit(lambda a: a.sum())
    want = float(np.arange(1 << 20).sum())
    for _ in range(20):
        assert total(ub.asarray(source, usm_type="shared", copy=True)) == want


HITS = "print(*results, sum(total.stats.cache_hits.values()), sum(total.stats.cache_misses.values()))\n"

CACHED = """
import sys, usmbridge as ub, numpy as np
from cached_functions import total
a = ub.zeros(8, "float64", device="host")
np.asarray(a)[:] = range(8)
results = total(a), total(np.asarray(a))
""" + HITS

# As if usmbridge were not installed.
CACHED_WITHOUT = """
import sys
sys.modules["usmbridge"] = None
import numpy as np
from cached_functions import total
results = [total(np.arange(8, dtype=t)) for t in sys.argv[1:]]
""" + HITS

# As with a version of usmbridge whose compiled code calls other helpers.
CACHED_OTHERWISE = "import usmbridge.numba\nusmbridge.numba._AGREEMENT += 1\n" + CACHED


@pytest.fixture
def cached(numba, tmp_path):
    """Runs a program in a process of its own, with a function that is cached."""
    (tmp_path / "cached_functions.py").write_text("import numba\n\n@numba.njit(cache=True)\ndef total(a):\n    return a.sum()\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return lambda *args: program("-c", *args, NUMBA_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=path).strip()


def test_cache(cached):
    """cache=True: another process loads the compiled functions, for Arrays and for NumPy arrays."""
    assert cached(CACHED_WITHOUT, "float64") == "28.0 0 1"
    assert cached(CACHED) == "28.0 28.0 1 1"
    assert cached(CACHED) == "28.0 28.0 2 0"
    # Programs that cannot import usmbridge read and write the same cache. They do not
    # use its entries for Arrays and compile those functions again.
    assert cached(CACHED_WITHOUT, "float64", "float32") == "28.0 28.0 1 1"
    assert cached(CACHED) == "28.0 28.0 1 1"
    # Code that calls helpers which no longer exist would end the process.
    assert cached(CACHED_OTHERWISE) == "28.0 28.0 1 1"


def test_types_are_pickled_and_copied(numba):
    """By pickle and by Numba's own pickler."""
    import copy
    import pickle

    from numba.core import serialize

    for a in (ub.zeros(4, device="host"), ub.zeros((2, 3), "int8", device="host").T.as_readonly()):
        t = numba.typeof(a)
        for same in (pickle.loads(pickle.dumps(t)), serialize.loads(serialize.dumps(t)), copy.copy(t), copy.deepcopy(t)):
            assert same == t and type(same) is type(t) and same.mutable == t.mutable and hash(same) == hash(t)


def test_without_numba():
    """Without Numba the package works, and it does not import Numba."""
    run("assert 'numba' not in sys.modules", first="")
    assert program("-W", "error", "-c", "import sys; sys.modules['numba'] = None\nimport usmbridge; print(usmbridge.zeros(2, device='host').shape)") == "(2,)\n"
