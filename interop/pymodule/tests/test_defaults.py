"""The defaults of new arrays, and set_default."""

import contextvars

import pytest
from conftest import in_threads

import usmbridge as ub


def test_built_in(device):
    for a in (ub.empty(2), ub.zeros(2), ub.ones(2), ub.full(2, 1.5), ub.asarray([1.5, 2.5])):
        assert a.usm_type == "shared" and a.device == device and a.dtype == "float64"
    for value, dtype in ((1, "int64"), (True, "bool"), (1j, "complex128"), (2**63, "uint64"), ([1, 2], "int64"), ([1, 2.5], "float64")):
        assert ub.asarray(value).dtype == dtype and ub.full(2, value).dtype == dtype and ub.asarray(value).usm_type == "shared"
    assert ub.asarray([]).dtype == "float64"
    assert ub.asarray(bytearray(3)).usm_type is None and ub.zeros_like(bytearray(3)).usm_type is None  # memory is shared
    assert ub.zeros(2, device="host").dtype == "float64" and ub.zeros(2, device=device).usm_type == "shared"


def test_set(device, np):
    with ub.set_default(usm_type="device", dtype="float32"):
        for a in (ub.empty(2), ub.zeros(2), ub.ones(2), ub.full(2, 1.5), ub.asarray([1.5, 2.5])):
            assert a.usm_type == "device" and a.dtype == "float32"
        assert ub.asarray([1, 2]).dtype == "int64" and ub.asarray([1j]).dtype == "complex64" and ub.asarray([1, 2.5]).dtype == "float32"
        assert ub.asarray([np.float64(1), 2.5]).dtype == "float64"
        assert ub.zeros(2, device="host").usm_type is None and ub.zeros(2, "int8", usm_type="host").usm_type == "host"
        with ub.set_default(device="host"):
            assert ub.zeros(2).usm_type is None and ub.asarray([1.0]).dtype == "float32"
            assert ub.zeros(2, usm_type="shared").usm_type == "shared" and ub.zeros(2, device=device).usm_type == "device"
            with ub.set_default(device=None, usm_type=None, dtype=None):
                assert ub.zeros(2).usm_type == "shared" and ub.zeros(2).dtype == "float64"
        like = ub.zeros_like(ub.zeros(2, "int8", device="host"))
        assert like.usm_type is None and like.dtype == "int8"
        for f in (ub.empty, ub.zeros, ub.ones, lambda n, **k: ub.full(n, 1, **k), lambda n, **k: ub.ones_like(ub.zeros(n), **k)):
            assert f(2, sycl_queue="host").usm_type is None and f(2, sycl_queue=device.filter_string).usm_type == "device"
            assert f(2, device=device).usm_type == "device"
    assert ub.zeros(2).usm_type == "shared" and ub.zeros(2).dtype == "float64"


def test_queue(device, dpctl):
    q = dpctl.SyclQueue()
    with ub.set_default(device=q):
        assert ub.zeros(2).sycl_queue is q and ub.asarray([1, 2]).sycl_queue is q
        assert ub.zeros(2, device="host").sycl_queue is None


def test_until_changed():
    def change():
        ub.set_default(device="host")
        assert ub.zeros(2).usm_type is None

    contextvars.copy_context().run(change)
    assert ub.zeros(2).usm_type == "shared"
    with ub.set_default(device="host"):
        seen = []
        in_threads(lambda: seen.append(ub.zeros(2).usm_type))
        assert seen == ["shared"]


@pytest.mark.parametrize("bad, error", [(dict(usm_type="fast"), ValueError), (dict(usm_type=1), TypeError), (dict(device="no:such:9"), ValueError),
                                        (dict(dtype="int32"), ValueError), (dict(dtype="none"), TypeError), (dict(speed=1), TypeError),
                                        (dict(device="host", usm_type="device"), ValueError)])
def test_invalid(bad, error):
    with pytest.raises(error):
        ub.set_default(**bad)
    assert ub.zeros(2).usm_type == "shared" and ub.zeros(2).dtype == "float64"
