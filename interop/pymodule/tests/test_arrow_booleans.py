"""Boolean Arrays in Arrow: bits, which are a copy, or bytes if the consumer asks for them."""

import pytest
from conftest import peer, places

import usmbridge as ub


def values(pa, v):
    return v.type, v.to_pylist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1003])
def test_bits(np, pyarrow, device, n):
    pa, want = pyarrow, (np.arange(n) * 7 % 3 == 1).tolist()
    for place in places(["shared", "host"]):
        a = ub.asarray(np.asarray(want, bool), **place, copy=True)
        for v in (pa.array(a), pa.array(a, pa.bool_()), pa.array(a.as_readonly())):
            assert values(pa, v) == (pa.bool_(), want) and v.null_count == 0
        assert pa.array(a[::-1]).to_pylist() == want[::-1] and pa.array(a[n // 3 :]).to_pylist() == want[n // 3 :]
        assert ub.asarray(pa.array(a)).tolist() == want and ub.asarray(pa.array(a)).dtype == "bool"


def test_bytes_on_request(np, pyarrow, device):
    pa = pyarrow
    for place in places(["shared", "host"]):
        a = ub.asarray([True, False, True], **place)
        shared = pa.Array._import_from_c_capsule(*a.__arrow_c_array__(pa.bool8().__arrow_c_schema__()))
        assert values(pa, shared) == (pa.bool8(), [True, False, True]) and shared.storage.buffers()[1].address == a._pointer
        shared = pa.array(a, pa.int8())
        assert values(pa, shared) == (pa.int8(), [1, 0, 1]) and shared.buffers()[1].address == a._pointer
        assert pa.array(a[::-1], pa.int8()).to_pylist() == [1, 0, 1] and pa.array(a[1:], pa.int8()).to_pylist() == [0, 1]
    for method in ("__arrow_c_array__", "__arrow_c_device_array__"):
        a, wish = ub.asarray([True, False], device="host"), pa.bool8().__arrow_c_schema__()
        schema, _ = getattr(a, method)(requested_schema=wish)
        assert pa.Field._import_from_c_capsule(schema).type == pa.bool8()
        for other in (None, pa.float64().__arrow_c_schema__(), "no schema"):
            schema, _ = getattr(a, method)(other)
            assert pa.Field._import_from_c_capsule(schema).type == pa.bool_()


def test_device_memory_stays_bytes(np, pyarrow, device):
    a = ub.asarray([True, False], usm_type="device")
    schema, _ = a.__arrow_c_device_array__()
    assert pyarrow.Field._import_from_c_capsule(schema).type == pyarrow.bool8()
    with pytest.raises(BufferError, match="device memory"):
        a.__arrow_c_array__()


def test_later_writes_do_not_change_bits(np, pyarrow):
    a = ub.asarray([True, False, True], device="host")
    v = pyarrow.array(a)
    a[:] = False
    assert v.to_pylist() == [True, False, True]


def test_compute(np, pyarrow):
    pc = peer("pyarrow.compute")
    for place in places(["shared"]):
        mask = pyarrow.array(ub.asarray([True, False, True], **place))
        assert pc.filter(pyarrow.array([1, 2, 3]), mask).to_pylist() == [1, 3] and pc.sum(mask).as_py() == 2
