"""Exchanges with JAX on the CPU in both directions; its wheel brings no tests.

    make test-peers"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import usmbridge as ub

# JAX shares memory whose address is a multiple of 64 bytes, and copies other memory.
ALIGNED = 64

# Element types that JAX supports in DLPack. It does not pack int4 and int2.
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
    "float8_e5m2fnuz", "float8_e8m0fnu",
]


def live():
    return ub.stats()["live_buffers.all.current"]


@pytest.fixture(autouse=True)
def balanced():
    before = live()
    yield
    assert live() == before, "memory was not given back"


@pytest.fixture
def usm():
    """Returns a function that makes arrays on the SYCL device."""
    if len(ub.devices()) == 1:
        pytest.skip("no SYCL device")
    return lambda x, kind: ub.asarray(x, usm_type=kind, copy=True)


def where(j):
    return j.unsafe_buffer_pointer()


def test_version():
    assert jax.__version__.startswith("0.10.") and [d.platform for d in jax.devices()] == ["cpu"]


@pytest.mark.parametrize("take", [ub.asarray, ub.from_dlpack], ids=["asarray", "from_dlpack"])
def test_imports_are_read_only(take):
    """Compiled functions of JAX rely on the values of its arrays: this library must not write to them."""
    j = jnp.arange(6.0).reshape(2, 3)
    a = take(j)
    assert a._pointer == where(j) and a.readonly and a.shape == (2, 3) and a.tolist() == j.tolist()
    for write in (lambda: a.fill(1), lambda: a.__setitem__(0, 1), lambda: memoryview(a).__setitem__((0, 0), 1), lambda: np.asarray(a).fill(1)):
        with pytest.raises((TypeError, ValueError, BufferError)):
            write()
    assert j.tolist() == [[0, 1, 2], [3, 4, 5]]
    # Read-only memory has no legacy tensor, the only form that JAX requests. NumPy refuses it too.
    with pytest.raises(BufferError, match="read-only"):
        jax.dlpack.from_dlpack(a)
    assert jax.dlpack.from_dlpack(a.copy()).tolist() == j.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_types_both_ways(dtype):
    with jax.enable_x64(True):
        values = [True, False] if dtype == "bool" else [1, 2]
        j = jnp.array(values, dtype)
        a = ub.from_dlpack(j)
        assert a.dtype == dtype and a._pointer == where(j) and a.asnumpy().tobytes() == np.asarray(j).tobytes()
        mine = ub.asarray(values, dtype=dtype, device="host")
        k = jax.dlpack.from_dlpack(mine)
        assert k.dtype == dtype and where(k) == mine._pointer and np.asarray(k).tobytes() == mine.asnumpy().tobytes()


def test_four_bits():
    """JAX exports float4 as packed tensors, and does not import them."""
    j = jnp.array([1, -2, 3, 0.5, 6], "float4_e2m1fn")
    a = ub.from_dlpack(j)
    assert a.dtype == "float4_e2m1fn" and a.astype("float32").tolist() == [1, -2, 3, 0.5, 6]


def test_exports_share_the_memory():
    a = ub.asarray(np.arange(12, dtype="float32").reshape(3, 4), device="host", copy=True)
    assert a._pointer % ALIGNED == 0, "the pool aligns better than this"
    for take in (jax.dlpack.from_dlpack, jnp.from_dlpack):
        for copy in (None, False):
            j = take(a, copy=copy)
            assert where(j) == a._pointer and j.tolist() == a.tolist()
        assert where(take(a.T, copy=False)) == a._pointer and take(a.T).shape == (4, 3)
        # Unaligned memory: JAX copies or refuses it.
        assert where(take(a[1:])) != a[1:]._pointer and take(a[1:]).tolist() == a[1:].tolist()
        with pytest.raises(ValueError, match="not aligned"):
            take(a[1:], copy=False)
    assert jax.jit(lambda x: (x * 2).sum())(jax.dlpack.from_dlpack(a)) == 132
    assert jax.dlpack.from_dlpack(ub.zeros((), device="host")).shape == ()
    assert jax.dlpack.from_dlpack(a[:0]).shape == (0, 4)


def test_strides_that_jax_lacks():
    a = ub.zeros((3, 4), device="host")
    for view in (a[:, ::2], a[::-1]):
        with pytest.raises(jax.errors.JaxRuntimeError, match="strid"):
            jax.dlpack.from_dlpack(view)
        assert jax.dlpack.from_dlpack(view.copy()).shape == view.shape


def test_usm(usm):
    """JAX does not support SYCL memory; memory that the host can read goes through NumPy's view of it."""
    values = np.arange(16, dtype="float32")
    for kind in ("shared", "host"):
        a = usm(values, kind)
        with pytest.raises(TypeError, match="unsupported device type"):
            jax.dlpack.from_dlpack(a)
        j = jnp.from_dlpack(np.asarray(a))
        assert where(j) == a._pointer and j.tolist() == values.tolist()
        assert jnp.asarray(a).tolist() == values.tolist()
        del j
    a = usm(values, "device")
    with pytest.raises(TypeError, match=r"asnumpy\(\)"):
        jnp.asarray(a)
    assert jnp.asarray(a.asnumpy()).tolist() == values.tolist()
    j = jnp.arange(16.0)
    assert ub.asarray(j, usm_type="device").asnumpy().tolist() == j.tolist()


def test_exports_live_while_jax_holds_them():
    before = live()
    a = ub.asarray(np.arange(1000, dtype="float32"), device="host", copy=True)
    j = jax.dlpack.from_dlpack(a)
    del a
    assert live() == before + 1 and float(j.sum()) == 499500
    del j
    assert live() == before


def test_imports_live_while_an_array_holds_them():
    j = jnp.arange(1000.0)
    at = where(j)
    a = ub.from_dlpack(j)
    del j
    again = jnp.zeros(1000)
    assert where(again) != at and a.asnumpy().sum() == 499500


def test_donated_memory_is_not_reused():
    """A compiled function must not reuse the memory of its argument while it is exported."""
    j = jnp.arange(1000.0)
    a = ub.from_dlpack(j)
    doubled = jax.jit(lambda x: x * 2, donate_argnums=0)(j)
    assert where(doubled) != a._pointer and a.asnumpy().sum() == 499500 and float(doubled.sum()) == 999000


def test_work_in_the_background_is_done():
    """JAX computes in the background; an import waits for the result."""
    f = jax.jit(lambda x: jnp.cumsum(jnp.sin(x)))
    x = jnp.arange(1 << 20, dtype="float32")
    want = np.asarray(f(x))
    for _ in range(10):
        assert np.array_equal(ub.from_dlpack(f(x)).asnumpy(), want)


def test_lists_of_jax_arrays():
    a = ub.asarray([jnp.ones(2), jnp.zeros(2)], device="host")
    assert a.dtype == "float32" and a.tolist() == [[1, 1], [0, 0]]
