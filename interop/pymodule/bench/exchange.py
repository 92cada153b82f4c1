"""Measures exchanges against the peers, as ratios in one process.

    bin/usmpython interop/pymodule/bench/exchange.py [--json FILE] [--rounds N] [--only REGEXP] [--strict]

Each row times an operation of usmbridge and the peer's in turns and compares the best of all rounds, so that a busy
machine affects both. With --strict the exit status is 1 if a bound is missed."""

import gc
import importlib
import operator
import pickle
import platform
import re
import sys
import timeit

import report
import usmbridge as ub


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


np = module("numpy")
tvm = module("tvm_ffi")
dpctl = module("dpctl")
dm = module("dpctl.memory")
dpt = module("dpnp.tensor")
pa = module("pyarrow")
pd = module("pandas")
sycl = [d for d in ub.devices() if d.filter_string != "host"]


class Holder:
    """An object with a dictionary."""

    def __init__(self, keep, **changes):
        self.keep = keep
        self.__sycl_usm_array_interface__ = dict(keep.__sycl_usm_array_interface__, **changes)


def through_pickle(a):
    """Pickles and unpickles with the memory beside the pickle."""
    buffers = []
    return pickle.loads(pickle.dumps(a, 5, buffer_callback=buffers.append), buffers=buffers)


def rows():
    """Returns rows of (name, our call, (peer's name, peer's call), bound); the calls take no argument."""
    host = ub.zeros((4, 5), "float32", device="host")
    if np:
        x = np.zeros((4, 5), "float32")
        f = np.from_dlpack
        yield "numpy.from_dlpack(ours)", (f, host), "numpy.from_dlpack(numpy)", (f, x), 0.9
        yield "__dlpack__()", (host.__dlpack__,), "numpy's", (x.__dlpack__,), 0.8
        yield "__dlpack__(max_version=(1, 3))", ("o.__dlpack__(max_version=(1, 3))", host), "numpy's", ("o.__dlpack__(max_version=(1, 3))", x), 0.8
        yield "ours.__dlpack__() by attribute", ("o.__dlpack__()", host), "numpy's", ("o.__dlpack__()", x), 0.8
    if np and tvm:
        t = tvm.from_dlpack(x)
        yield "from_dlpack(numpy)", (ub.from_dlpack, x), "tvm_ffi.from_dlpack(numpy)", (tvm.from_dlpack, x), 0.6
        yield "from_dlpack(tvm_ffi)", (ub.from_dlpack, t), "tvm_ffi.from_dlpack(tvm_ffi)", (tvm.from_dlpack, t), 0.6
        yield "tvm_ffi.from_dlpack(ours)", (tvm.from_dlpack, host), "tvm_ffi.from_dlpack(tvm_ffi)", (tvm.from_dlpack, t), 1.0
    if np:
        big, theirs = ub.empty(1 << 26, "uint8", device="host"), np.empty(1 << 26, "uint8")
        big.fill(1)
        theirs.fill(1)
        yield "pickle 5 out of band, 64 MiB", (through_pickle, big), "numpy's", (through_pickle, theirs), 1.1
        xp = host.__array_namespace__() if hasattr(host, "__array_namespace__") else None
        if xp:
            yield "array_api.add, plain memory", (lambda: xp.add(host, host),), "numpy.add", (lambda: np.add(x, x),), 4
            yield "a + 1, plain memory", (lambda: host + 1,), "numpy's", (lambda: x + 1,), 4
            yield "a += 1, plain memory", (lambda: operator.iadd(host, 1),), "numpy's", (lambda: operator.iadd(x, 1),), 4
            yield "a -= a, plain memory", (lambda: operator.isub(host, host),), "numpy's", (lambda: operator.isub(x, x),), 7
            index, mask = np.array([0, 2, 1]), x == 0
            yield "a[index array], plain memory", (lambda: host[index],), "numpy's", (lambda: x[index],), 8
            yield "a[mask], plain memory", (lambda: host[mask],), "numpy's", (lambda: x[mask],), 4
        yield "asarray(numpy)", (ub.asarray, x), "numpy.from_dlpack(numpy)", (f, x), 5
    if np and pa:
        numbers, flags, one = pa.array(range(20)), pa.array([True, False] * 10), host.reshape(20)
        tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(x)
        chunk = pa.chunked_array([numbers])
        yield "asarray(pyarrow array)", (ub.asarray, numbers), "numpy.asarray", (np.asarray, numbers), 1.5
        yield "asarray(pyarrow booleans)", (ub.asarray, flags), "numpy.asarray", (np.asarray, flags), 7
        yield "asarray(pyarrow tensor)", (ub.asarray, tensor), "its to_numpy_ndarray", (tensor.to_numpy_ndarray,), 3.5
        yield "asarray(pyarrow chunked array)", (ub.asarray, chunk), "numpy.asarray", (np.asarray, chunk), 6
        yield "pyarrow.array(ours)", (pa.array, one), "pyarrow.array(numpy)", (pa.array, np.asarray(one)), 1.5
    if np and pd:
        series, nullable = pd.Series(range(20)), pd.Series(range(20), dtype="Int64")
        yield "asarray(pandas series)", (ub.asarray, series), "numpy.asarray", (np.asarray, series), 4
        yield "asarray(pandas Int64)", (ub.asarray, nullable), "numpy.asarray", (np.asarray, nullable), 4
    if not sycl or not dpt:
        return
    u, d = ub.zeros((4, 5), "float32", usm_type="device"), dpt.zeros((4, 5), dtype="float32")
    yield "from_dlpack(ours, USM)", (ub.from_dlpack, u), "dpnp.tensor.from_dlpack(dpnp)", (dpt.from_dlpack, d), 1 / 50
    if xp:
        yield "array_api.add, USM", (lambda: xp.add(u, u),), "dpnp.tensor.add(dpnp)", (lambda: dpt.add(d, d),), 1.5
        yield "a + 1, USM", (lambda: u + 1,), "dpnp.tensor's", (lambda: d + 1,), 1.2
        yield "a += 1, USM", (lambda: operator.iadd(u, 1),), "dpnp.tensor's", (lambda: operator.iadd(d, 1),), 1.5
        yield "a -= a, USM", (lambda: operator.isub(u, u),), "dpnp.tensor's", (lambda: operator.isub(d, d),), 2.5
    c = u.__dlpack__
    yield "from_dlpack(capsule of ours, USM)", (lambda: ub.from_dlpack(c()),), "dpnp.tensor.from_dlpack(dpnp)", (dpt.from_dlpack, d), 1 / 50
    yield "from_dlpack(dpnp)", (ub.from_dlpack, d), "dpnp.tensor.from_dlpack(dpnp)", (dpt.from_dlpack, d), 1 / 5
    yield "__dlpack__() of USM", (u.__dlpack__,), "dpnp's", (d.__dlpack__,), 1 / 20
    m = dm.MemoryUSMDevice(80)
    attr = "o.__sycl_usm_array_interface__"
    yield "dictionary out", (attr, u), "dpctl.memory's", (attr, m), 1.0
    g = ub.from_usm_array_interface
    shape = dict(shape=(4, 5), typestr="<f4")
    plain = u.__sycl_usm_array_interface__
    q = dpctl.SyclQueue()
    for name, syclobj in (("a filter string", sycl[0].filter_string), ("a context", q.sycl_context), ("our queue", plain["syclobj"]), ("a SyclQueue", q)):
        h = Holder(m, syclobj=syclobj, **shape)
        quick = syclobj is q or syclobj is plain["syclobj"]  # dpnp's way takes a quarter of the time then
        yield f"array from a dictionary, {name}", (g, h), "dpnp.tensor.asarray", (dpt.asarray, h), 0.08 if syclobj is plain["syclobj"] else 0.12 if quick else 1 / 20
        if quick:
            h.alive = g(h)
            yield f"  while one of it lives, {name}", (g, h), "dpnp.tensor.asarray", (dpt.asarray, h), 0.08 if syclobj is plain["syclobj"] else 1 / 20
    yield "array from dpctl.memory", (g, m), "dpnp.tensor.asarray", (dpt.asarray, m), 1 / 10
    for n in (64, 4096, 1 << 20):
        new = "o.empty(%d, 'uint8')" % n
        yield f"empty({n})", (new, ub), f"dpctl.memory.MemoryUSMDevice({n})", (dm.MemoryUSMDevice, n), 1 / 8


def timer(spec):
    """Returns a timer of a call f(*args), or of a statement about o."""
    f, *args = spec
    if isinstance(f, str):
        return timeit.Timer(f, globals={"o": args[0]})
    if args:
        return timeit.Timer("f(o)", globals={"f": f, "o": args[0]})
    return timeit.Timer("f()", globals={"f": f})


def measure(ours, theirs, rounds):
    a, b = timer(ours), timer(theirs)
    na, nb = (max(1, int(0.002 / (t.timeit(200) / 200))) for t in (a, b))
    best = [float("inf"), float("inf")]
    gc.disable()
    for _ in range(rounds):
        best[0] = min(best[0], a.timeit(na) / na)
        best[1] = min(best[1], b.timeit(nb) / nb)
    gc.enable()
    return best


def main():
    args = report.options(150)
    args.add_argument("--only", type=re.compile, default=re.compile(""))
    args = args.parse_args()
    versions = {n: getattr(module(n), "__version__", "?") for n in ("numpy", "tvm_ffi", "dpctl", "dpnp") if module(n)}
    print(f"Python {platform.python_version()}, usmbridge {ub.__version__},", ", ".join(f"{k} {v}" for k, v in versions.items()))
    print(f"{'operation':42} {'ours':>9} {'peer':>9} {'ratio':>7} {'bound':>7}")
    results = []
    for name, ours, peer, theirs, bound in rows():
        if not args.only.search(name):
            continue
        a, b = measure(ours, theirs, args.rounds)
        ok = a / b <= bound
        print(f"{name:42} {a * 1e9:7.0f}ns {b * 1e9:7.0f}ns {a / b:7.3f} {bound:7.3f} {'' if ok else 'MISSED '}({peer})", flush=True)
        results.append(dict(operation=name, peer=peer, ours_ns=a * 1e9, peer_ns=b * 1e9, ratio=a / b, bound=bound, ok=ok))
    return report.finish(args, results, python=platform.python_version(), peers=versions)


if __name__ == "__main__":
    sys.exit(main())
