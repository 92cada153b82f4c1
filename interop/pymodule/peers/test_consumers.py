"""Arrays in libraries that take arrays. `make test-peers` runs it, with the packages in bin/consumers.

docs/compatibility.md has a row for each test."""

import io
import multiprocessing.spawn
import os
import sys

import numpy as np
import pytest

import usmbridge as ub

PLACES = [dict(device="host"), dict(usm_type="shared")]


@pytest.fixture(params=PLACES, ids=["host", "shared"])
def new(request):
    """Makes an Array of NumPy's values."""
    return lambda values, dtype=None: ub.asarray(np.asarray(values, dtype), **request.param, copy=True)


def test_pandas(new):
    import pandas as pd

    v, m = new([1.0, 2.0, 3.0]), new([[1, 2], [3, 4], [5, 6]])
    s = pd.Series(v)
    assert s.dtype == "float64" and s.tolist() == [1, 2, 3]
    s.iloc[0] = 9
    assert v[0].item() in (1, 9)  # pandas decides whether it copies
    frame = pd.DataFrame(m)
    assert frame.shape == (3, 2)
    frame["x"] = new([7, 8, 9])
    assert frame["x"].tolist() == [7, 8, 9] and frame["x"].dtype == "int64"
    for r in (s + v, v + s, v * s):
        assert type(r) is pd.Series
    assert (v == s).tolist() == [v[0].item() == 9, True, True]
    assert pd.Series([1, 2, 3]).isin(np.asarray(new([2, 3]))).tolist() == [False, True, True]  # it makes a list of the Array itself


def test_polars(new):
    import polars as pl

    v = new([1.0, 2.0, 3.0])
    s = pl.Series("x", v)
    assert s.dtype == pl.Float64 and s.to_list() == [1, 2, 3]
    assert pl.DataFrame({"x": v}).shape == (3, 1)
    assert ub.asarray(s).tolist() == [1, 2, 3]


def test_matplotlib(new):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    v = new([1.0, 2.0, 3.0])
    (line,) = axes.plot(v, v)
    assert line.get_ydata().tolist() == [1, 2, 3]
    assert axes.axhline(v[1]).get_ydata()[0] == 2
    axes.scatter(v, v, c=v)
    axes.hist(v)
    axes.imshow(new([[0.0, 1.0], [1.0, 0.0]]))
    figure.savefig(io.BytesIO())
    pyplot.close(figure)


def test_pillow(new):
    from PIL import Image

    grey, colours = new(np.arange(12).reshape(3, 4), "uint8"), new(np.arange(36).reshape(3, 4, 3), "uint8")
    picture = Image.fromarray(grey)
    assert picture.size == (4, 3) and picture.getpixel((1, 2)) == 9 and Image.fromarray(colours).mode == "RGB"
    assert ub.asarray(picture).tolist() == grey.tolist() and ub.asarray(Image.fromarray(colours)).tolist() == colours.tolist()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "I", "F", "I;16"])
def test_pillow_modes(mode):
    from PIL import Image

    picture = Image.frombytes(mode, (5, 3), bytes(range(128)) * 4) if mode == "I;16" else Image.new("RGB", (5, 3), (1, 2, 3)).convert(mode)
    want = np.asarray(picture)
    a = ub.asarray(picture)
    assert a.shape == want.shape and a.dtype == want.dtype and a.tolist() == want.tolist()


def test_h5py(new, tmp_path):
    import h5py

    a = new([[1.0, 2.0], [3.0, 4.0]])
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["a"] = a
        f.create_dataset("b", data=a)[...] = a
        b = ub.zeros_like(a)
        f["a"].read_direct(np.asarray(b))
        assert b.tolist() == f["b"][...].tolist() == a.tolist()


def test_xarray(new):
    import xarray

    a = new([[1.0, 2.0], [3.0, 4.0]])
    d = xarray.DataArray(a, dims=("x", "y"))
    assert d.data is a and type((d + 1).data) is ub.Array and type((d * d).data) is ub.Array
    assert d.sum("x").values.tolist() == [4, 6] and d.mean().item() == 2.5 and d.isel(x=1).values.tolist() == [3, 4]


def test_scikit_learn(new):
    from sklearn.cluster import KMeans
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.model_selection import cross_val_score, train_test_split

    rng = np.random.default_rng(0)
    n = rng.random((60, 3))
    x, y, labels = new(n), new(n @ [1.0, 2.0, 3.0]), new(n[:, 0] > 0.5, "int64")
    train, test, *_ = train_test_split(x, y, test_size=0.25, random_state=0)
    assert type(train) is ub.Array and train.shape == (45, 3) and test.shape == (15, 3) and train.usm_type == x.usm_type
    assert np.allclose(LinearRegression().fit(x, y).coef_, [1, 2, 3])
    assert cross_val_score(Ridge(), x, y, cv=3).shape == (3,)
    for model in (LogisticRegression(), RandomForestClassifier(5), KMeans(2, n_init=1)):
        assert len(model.fit(x, labels).predict(x)) == 60


def test_scikit_learns_array_api(new):
    import sklearn
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import MinMaxScaler

    n = np.random.default_rng(0).random((60, 3))
    x, y = new(n), new(n @ [1.0, 2.0, 3.0])
    with sklearn.config_context(array_api_dispatch=True):
        results = [MinMaxScaler().fit_transform(x), PCA(2, svd_solver="full").fit_transform(x), Ridge(solver="svd").fit(x, y).predict(x)]
    for r in results:
        assert type(r) is ub.Array and r.usm_type == x.usm_type
    assert np.allclose(results[0].asnumpy(), MinMaxScaler().fit_transform(n))


def test_array_api_compat(new):
    import array_api_compat

    a = new([1.0, 2.0])
    assert array_api_compat.array_namespace(a, a) is ub.array_api and array_api_compat.is_array_api_obj(a)
    assert array_api_compat.device(a) == a.device and array_api_compat.size(a) == 2 and array_api_compat.to_device(a, "host").usm_type is None


def test_einops(new):
    from einops import array_api

    a = new([[1.0, 2.0], [3.0, 4.0]])
    r = array_api.rearrange(a, "i j -> j i")
    assert type(r) is ub.Array and r.tolist() == [[1, 3], [2, 4]]
    assert array_api.reduce(a, "i j -> i", "sum").tolist() == [3, 7] and array_api.repeat(a, "i j -> i j k", k=2).shape == (2, 2, 2)


def test_joblib(new, tmp_path):
    import joblib

    a = new([1.0, 2.0])
    joblib.dump(a, tmp_path / "a")
    b = joblib.load(tmp_path / "a")
    assert b.tolist() == [1, 2] and b.usm_type == a.usm_type and joblib.hash(a) == joblib.hash(a)
    assert joblib.Parallel(2, prefer="threads")(joblib.delayed(float)(x) for x in a) == [1, 2]


def test_joblib_processes(monkeypatch):
    """Interprocess memory is shared with the processes of loky."""
    import joblib

    def fill(a):
        a[...] = 7

    monkeypatch.setattr(sys, "executable", os.fsdecode(multiprocessing.spawn.get_executable()))
    arrays = [ub.zeros(3, interprocess=True) for _ in range(3)]
    joblib.Parallel(2)(joblib.delayed(fill)(a) for a in arrays)
    assert [a.tolist() for a in arrays] == [[7, 7, 7]] * 3


def test_safetensors(new):
    from safetensors.numpy import load, save

    a = new([[1.0, 2.0], [3.0, 4.0]])
    for x in (a, a.T, a[:, ::-1], a[1:]):
        # safetensors ignores the strides of an ndarray.
        assert load(save({"a": np.ascontiguousarray(x)}))["a"].tolist() == x.tolist()


def test_zarr(new):
    import zarr

    a = new([[1.0, 2.0], [3.0, 4.0]])
    z = zarr.create_array(store={}, shape=(2, 2), dtype="f8")
    z[...] = a
    assert ub.asarray(z[...]).tolist() == a.tolist() == zarr.create_array(store={}, data=a)[...].tolist()


def test_opencv(new):
    import cv2

    a = new(np.arange(12).reshape(3, 4), "uint8")
    view = np.asarray(a)
    assert ub.asarray(cv2.resize(view, (8, 6))).shape == (6, 8)
    cv2.add(view, 1, dst=view)  # writes into the Array
    assert a.tolist() == np.arange(1, 13).reshape(3, 4).tolist()


def test_onnxruntime(new):
    import onnxruntime

    a = new([1.0, 2.0])
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(a))
    assert value.data_ptr() == a._pointer and ub.asarray(value.numpy()).tolist() == [1, 2]


def test_dask(new):
    import dask.array

    a = new(np.arange(6.0))
    d = dask.array.from_array(a, chunks=3)
    assert (d + 1).compute().tolist() == [1, 2, 3, 4, 5, 6] and d.sum().compute() == 15


SCIPY = {
    "ttest_1samp": lambda s, x, y, m: s.stats.ttest_1samp(x, 0.5).statistic, "ttest_ind": lambda s, x, y, m: s.stats.ttest_ind(x, y).statistic,
    "pearsonr": lambda s, x, y, m: s.stats.pearsonr(x, y).statistic, "chisquare": lambda s, x, y, m: s.stats.chisquare(x, x).statistic,
    "skew": lambda s, x, y, m: s.stats.skew(x), "zscore": lambda s, x, y, m: s.stats.zscore(x), "entropy": lambda s, x, y, m: s.stats.entropy(x),
    "rankdata": lambda s, x, y, m: s.stats.rankdata(x), "whiten": lambda s, x, y, m: s.cluster.vq.whiten(m), "linkage": lambda s, x, y, m: s.cluster.hierarchy.linkage(m),
    "detrend": lambda s, x, y, m: s.signal.detrend(x), "fftconvolve": lambda s, x, y, m: s.signal.fftconvolve(x, y), "hilbert": lambda s, x, y, m: s.signal.hilbert(x),
    "erf": lambda s, x, y, m: s.special.erf(x), "logsumexp": lambda s, x, y, m: s.special.logsumexp(x), "softmax": lambda s, x, y, m: s.special.softmax(x),
    "rfft": lambda s, x, y, m: s.fft.rfft(x), "dct": lambda s, x, y, m: s.fft.dct(x), "rotation": lambda s, x, y, m: s.spatial.transform.Rotation.from_rotvec(m).as_matrix(),
}


@pytest.mark.parametrize("name", SCIPY)
def test_scipy(new, name):
    import scipy
    import scipy.cluster
    import scipy.signal
    import scipy.spatial.transform
    import scipy.special
    import scipy.stats

    rng = np.random.default_rng(0)
    values = rng.random(20) + 0.1, rng.random(20) + 0.1, rng.random((10, 3))
    if name == "rankdata" and new([1]).usm_type is None:
        pytest.xfail("it creates arrays without device=, which are in USM")
    r = SCIPY[name](scipy, *map(new, values))
    assert type(r) is ub.Array and np.allclose(r.asnumpy(), SCIPY[name](scipy, *values))


def test_pandas_rows(new):
    import pandas as pd

    v, m, i = new([1.0, 2.0, 1.0]), new([True, False, True]), new([2, 0])
    s, frame = pd.Series([1.0, 2.0, 3.0]), pd.DataFrame({"x": [1.0, 2.0, 1.0], "y": [4, 5, 6]})
    assert s.iloc[i].tolist() == s[i].tolist() == s.take(i).tolist() == [3, 1] and frame.iloc[i].shape == (2, 2)
    assert s.where(m).isna().tolist() == [False, True, False] and s.searchsorted(v).tolist() == [0, 1, 0]
    assert pd.Index(v).tolist() == pd.array(v).tolist() == [1, 2, 1] and pd.crosstab(v, v).shape == (2, 2) and frame.assign(z=v).shape == (3, 3)
    for error, use in {
        KeyError: [lambda x: frame[x], lambda x: s[x], lambda x: frame.loc[x]],
        TypeError: [lambda x: frame.groupby(x).sum(), lambda x: pd.unique(x), lambda x: pd.factorize(x)],
    }.items():
        for f in use:
            with pytest.raises(error):
                f(m)
            f(np.asarray(m))
    assert frame.set_index(np.asarray(v)).index.tolist() == [1, 2, 1] and pd.Categorical(np.asarray(v)).categories.tolist() == [1, 2]


def test_polars_rows(new):
    import polars as pl

    v, m, rows = new([1.0, 2.0, 1.0]), new([True, False, True]), new([[1.0, 2.0], [3.0, 4.0]])
    frame = pl.DataFrame({"x": [1, 2, 3]})
    assert pl.Series(m).dtype == pl.Boolean and frame.filter(pl.Series(m))["x"].to_list() == [1, 3] and pl.Series(rows).len() == 2
    assert pl.DataFrame(np.asarray(rows)).shape == (2, 2) and frame.with_columns(z=pl.Series(v)).shape == (3, 2)
    for f in (lambda: pl.DataFrame(rows), lambda: frame.filter(m), lambda: frame.with_columns(z=v)):
        with pytest.raises((TypeError, pl.exceptions.SchemaError)):
            f()


@pytest.mark.parametrize("library", ["pandas", "pandas frame", "categories", "polars", "polars frame"])
def test_missing_values_are_nan_or_refused(library):
    """Integers beside a missing value keep their last bit, and nothing becomes 0."""
    big = 2**60 + 1
    if library.startswith("polars"):
        import polars as pl

        x = pl.Series([big, None, 3])
        x = x if library == "polars" else pl.DataFrame({"x": x, "y": [1, 2, 3]})
    else:
        import pandas as pd

        x = pd.Series([big, None, 3], dtype="Int64")
        x = {"pandas": x, "pandas frame": pd.DataFrame({"x": x}), "categories": x.astype("category")}[library]
    for f in (ub.asarray, lambda x: ub.asarray(x, dtype="int64"), lambda x: ub.asarray(x, dtype="bool"), lambda x: ub.zeros((3, 2), "int64").__setitem__(..., x)):
        with pytest.raises(BufferError, match="null|missing"):
            f(x)
    a = ub.asarray(x, dtype="float32").asnumpy()
    assert np.isnan(a.ravel()[a.size // 3]) and a.ravel()[0] == np.float32(big)
    if library == "pandas":
        assert np.isnan(ub.asarray(pd.Series([1.5, np.nan]))[1].item()) and np.isnan(ub.asarray(pd.array([1.5, None], dtype="Float64"))[1].item())
        for kind in ("boolean", "bool[pyarrow]", "int64[pyarrow]"):
            with pytest.raises(BufferError, match="missing"):
                ub.asarray(pd.Series([True, None], dtype=kind))
        assert ub.asarray(pd.Series([1, 2], dtype="Int64")).dtype == "int64"


def test_polars_tensors_come_back(new):
    import polars as pl

    for shape in ((6,), (2, 3), (2, 3, 4), (2, 1, 3, 2)):
        for dtype in ("float64", "int8", "bool"):
            n = (np.arange(np.prod(shape)).reshape(shape) % 3 == 1).astype(dtype)
            back = ub.asarray(pl.Series("x", new(n)))
            assert back.shape == shape and back.dtype == dtype and back.tolist() == n.tolist()


def test_pandas_divmod(new):
    import pandas as pd

    quotient, rest = divmod(pd.Series([3.0, 5.0]), new([2.0, 2.0]))
    assert quotient.tolist() == [1, 2] and rest.tolist() == [1, 1]


def test_pint(new):
    pint = pytest.importorskip("pint")
    units = pint.UnitRegistry()
    a, metres, plain = new([1.0, 2.0]), units.Quantity([1.0, 2.0], "m"), units.Quantity([1.0, 2.0], "")
    assert (metres * a).magnitude.tolist() == (a * metres).magnitude.tolist() == [1, 4]
    assert (plain + a).magnitude.tolist() == (a + plain).magnitude.tolist() == [2, 4]
    q = units.Quantity(a, "m")
    assert type((q + metres).magnitude) is ub.Array and (q + metres).magnitude.tolist() == [2, 4]
    with pytest.raises(pint.DimensionalityError):
        metres + a
