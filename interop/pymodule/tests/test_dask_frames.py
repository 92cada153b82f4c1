"""Serialization of Arrays for Dask without a cluster: headers, frames, sizes, spilling."""

import gc
import pickle
import weakref

import pytest
from conftest import peer, places, program, sycl_device

import usmbridge as ub

PACKED = ("float6_e2m3fn", "int4", "uint1")


@pytest.fixture
def frames():
    peer("distributed")
    from usmbridge import _dask_frames

    return _dask_frames


@pytest.fixture
def protocol(frames):
    return peer("distributed.protocol")


def layouts(whole):
    yield from (whole, whole.T, whole[::-1], whole[:, ::2], whole[1], whole[:0], whole[:, None], whole.as_readonly(), whole.T.as_readonly())


def bits(a):
    """Returns the elements of an Array in C order, bit for bit, without the unused bits of packed ones."""
    return a.tolist() if a.dtype in PACKED else pickle.dumps(a.copy().to_device("host"), 4)


def same(a, b):
    assert (a.shape, a.dtype, a.usm_type, a.device, a.readonly) == (b.shape, b.dtype, b.usm_type, b.device, b.readonly)
    assert bits(a) == bits(b)


def arrived(sent, start, own=False):
    """Returns frames as a receiver has them: slices of one buffer, from an offset on."""
    size = start + sum(memoryview(f).nbytes for f in sent)
    buffer = memoryview(ub.empty(size, "uint8", **(own or dict(device="host"))) if own is not False else bytearray(size))
    out = []
    for f in sent:
        n = memoryview(f).nbytes
        buffer[start : start + n] = memoryview(f).cast("B")
        out.append(buffer[start : start + n])
        start += n
    return out


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_through_distributed(protocol, compression):
    for where in places():
        for n in (10, 10_000, 100_000):
            a = ub.asarray(list(range(n)), dtype="int32", **where)
            for x in (a, a[::3], a.reshape(2, n // 2).T, a.as_readonly()):
                sent = protocol.dumps({"x": protocol.to_serialize([x, {"y": x}])}, context={"compression": compression}, frame_split_size=30_000)
                got = protocol.loads(arrived(sent, 3))["x"]
                same(x, got[0])
                same(x, got[1]["y"])


def test_pieces(frames, monkeypatch):
    """An Array can be longer than a frame."""
    monkeypatch.setattr(frames, "LARGE", 64)
    monkeypatch.setattr(frames, "MOST", 100)
    for where in places():
        for dtype in ("float64", "int4", "uint8"):
            a = ub.asarray([i % 7 for i in range(999)], dtype=dtype, **where).reshape(37, 27)
            for x in (a, a.T, a.as_readonly()):
                header, sent = frames.dumps(x)
                assert [memoryview(f).nbytes for f in sent[:3]] == [1, 100, 100]
                for own in (False, dict(usm_type="shared")):
                    same(x, frames.loads(header, arrived(sent, 5, own)))


def test_frames_are_the_memory(frames):
    for where in places():
        a = ub.asarray(list(range(40_000)), dtype="float32", **where)
        for x in (a, a.reshape(200, 200).T, a[100:]):
            _, sent = frames.dumps(x)
            mark, data = sent
            assert mark.nbytes == 1 and data.nbytes == x.nbytes and data.c_contiguous and data.format == "B"
            assert (ub.asarray(data)._pointer == x._pointer) == (a.usm_type != "device")


def test_a_frame_holds_the_memory(frames):
    a = ub.asarray([1.0] * 20_000, dtype="float64", usm_type="shared", device=sycl_device())
    header, sent = frames.dumps(a)
    gone = weakref.ref(a)
    a.release()
    del a
    gc.collect()
    assert gone() is None
    assert frames.loads(header, sent).tolist() == [1.0] * 20_000


def test_staging_is_host_usm_of_the_pool(frames):
    before = ub.stats()["allocation.all.allocated"]
    a = ub.zeros(1 << 20, "uint8", usm_type="device", device=sycl_device())
    _, sent = frames.dumps(a)
    staged = sent[1].obj
    assert staged.usm_type == "host" and staged.device == a.device and staged.nbytes == a.nbytes
    assert ub.stats()["allocation.all.allocated"] == before + 2


def test_frames_in_memory_of_arrays(frames):
    """Plain Arrays stay in any memory that the host can use; others are copied to USM."""
    for own in (dict(usm_type="shared"), dict(usm_type="host"), dict(device="host")):
        for where in places():
            a = ub.asarray(list(range(40_000)), dtype="float32", **where)
            header, sent = frames.dumps(a)
            for start in (0, 2):
                got = arrived(sent[1:], start, own)
                b = frames.loads(header, [sent[0], *got])
                address = ub.asarray(got[0])._pointer
                assert (b._pointer == address) == (start == 0 and a.usm_type is None)
                same(a, b)
                # A small part of a large buffer is copied, so that the buffer can be freed.
                wide = memoryview(ub.empty(10 * a.nbytes, "uint8", **own))
                part = wide[256 : 256 + a.nbytes]
                part[:] = got[0]
                c = frames.loads(header, [sent[0], part])
                same(a, c)
                if a.usm_type:
                    wide[:] = bytes(len(wide))
                    same(a, c)


def test_an_unknown_device_becomes_the_default(frames, tmp_path):
    a = ub.asarray([1, 2, 3], device=sycl_device(), usm_type="shared")
    header, sent = frames.dumps(a)
    b = frames.loads({**header, "device": "level_zero:gpu:77"}, sent)
    same(a, b)
    message = tmp_path / "message"
    message.write_bytes(pickle.dumps((header, [bytes(f) for f in sent])))
    code = f"""
import pickle
from usmbridge import _dask_frames
a = _dask_frames.loads(*pickle.load(open({str(message)!r}, "rb")))
print(a.tolist(), a.usm_type, a.device.filter_string)
"""
    assert program("-c", code, USMBRIDGE_SYCL="off") == "[1, 2, 3] None host\n"


def test_sizes(frames, np):
    sizeof = peer("dask.sizeof").sizeof
    for where in places():
        a = ub.zeros((256, 1024), "float32", **where)
        assert 1 << 20 <= sizeof(a) <= (1 << 20) + 200
        assert 512 << 10 <= sizeof(a[:128]) <= (512 << 10) + 200
        assert sizeof({"x": [a, a]}) >= 2 << 20
    assert sizeof(ub.asarray(np.broadcast_to(np.zeros(1000), (1000, 1000)))) <= 8000 + 200
    assert sizeof(ub.zeros((0, 5))) <= 200


def test_repeated_elements_are_sent_once(frames, np, dpnp):
    for where in places():
        x = ub.array_api.broadcast_to(ub.asarray([[1], [2]], **where), (2, 1 << 20)).as_readonly()
        header, sent = frames.dumps(x)
        assert sum(memoryview(f).nbytes for f in sent) == 16 and list(header["broadcast"]) == [2, 1 << 20]
        b = frames.loads(header, sent)
        assert b.readonly and (b.shape, b.dtype, b.usm_type) == (x.shape, x.dtype, x.usm_type) and b[:, -1].tolist() == [1, 2]
        for bad in ([2], [3, 4], [2, -1], [2, 1 << 63], [2, 2.0], "12", None):
            with pytest.raises(ValueError, match="broadcast"):
                frames.loads({**header, "broadcast": bad}, sent)


def test_registered_without_an_import():
    """Arrays are registered in any order of imports, in a process that does not import usmbridge.dask."""
    peer("distributed")
    code = """
import {first}
import {second}
from distributed.protocol import serialize, deserialize
import usmbridge, dask.sizeof
header, frames = serialize(usmbridge.zeros(3, device="host"))
assert header["serializer"] == "dask" and header["sub-header"]["usmbridge"] == 1, header
print(deserialize(header, frames).tolist(), dask.sizeof.sizeof(usmbridge.zeros(1000, device="host")) > 4000)
"""
    for first, second in (("usmbridge", "distributed"), ("distributed", "usmbridge"), ("dask.sizeof", "usmbridge"), ("usmbridge.dask", "dask")):
        assert program("-c", code.format(first=first, second=second)) == "[0.0, 0.0, 0.0] True\n"


def test_the_entry_point_loads_nothing():
    """Dask alone does not load usmbridge, and knows the sizes once there is an Array."""
    peer("dask")
    code = """
import sys, dask.sizeof
import _usmbridge_dask
_usmbridge_dask.register(dask.sizeof.sizeof)
assert "usmbridge._native" not in sys.modules or {built_in}
import usmbridge
assert dask.sizeof.sizeof(usmbridge.zeros(1000, device="host")) > 4000
assert "distributed" not in sys.modules
"""
    built_in = ub.__spec__.origin == "built-in"
    program("-c", ("import usmbridge\n" if built_in else "") + code.format(built_in=built_in))
    from importlib.metadata import entry_points

    assert [e.value for e in entry_points(group="dask.sizeof") if e.name == "usmbridge"] == ["_usmbridge_dask:register"]


def test_arguments_of_setup():
    peer("distributed")
    from usmbridge import dask

    for bad, kind in ((-1, ValueError), (1.5, ValueError), (float("nan"), ValueError), ("much", ValueError), (True, TypeError), ([], TypeError), (1 << 63, ValueError)):
        with pytest.raises(kind):
            dask.setup(limit=bad)
    with pytest.raises(ValueError, match="[Cc]lient"):
        dask.setup()


def test_arrays_beyond_the_pools_stay_in_plain_memory(frames, caplog):
    """The message is in memory already: an error would make Dask wait forever."""
    for n, start in ((1000, 0), (5_000_000, 0), (5_000_000, 1)):
        a = ub.asarray(list(range(100)), dtype="int64", device=sycl_device(), usm_type="shared").view("uint8")
        whole = ub.zeros(n * 8, "uint8", usm_type="shared")
        whole[: a.size] = a
        x = whole.view("int64")
        header, sent = frames.dumps(x)
        got = arrived(sent, start)
        try:
            ub.trim()
            ub._set_limit(1)
            b = frames.loads(header, got)
        finally:
            ub._set_limit(0)
        assert b.usm_type in (None, "shared") and (n == 1000 or b.usm_type is None) and not b.readonly
        assert b.asnumpy().tobytes() == x.asnumpy().tobytes()
        del a, whole, x, b, header, sent, got  # so that the pools have no memory for the next array
    assert "limit" in caplog.text


LIMIT = """
import usmbridge as ub
M = 1 << 20

def refused(**where):
    try:
        ub.empty(40 * M, "uint8", **where)
    except MemoryError as e:
        return "limit" in str(e)

ub._set_limit(96 * M)
a = ub.empty(40 * M, "uint8", usm_type="shared")
b = ub.empty(40 * M, "uint8", device="host")
assert refused(usm_type="device") and refused(device="host")
a.release()
ub.stats()  # the memory is idle in its pool now, until another pool needs it
c = ub.empty(40 * M, "uint8", usm_type="device")
ub._set_limit(M)
assert refused(usm_type="shared") and b.nbytes == c.nbytes
b.release(), c.release()
ub.stats()
assert refused(usm_type="shared")
ub._set_limit(0)
assert not refused(usm_type="shared")
for bad, kind in ((-1, OverflowError), (1 << 64, OverflowError), ("x", TypeError), (None, TypeError)):
    try:
        ub._set_limit(bad)
    except kind:
        continue
    raise AssertionError(bad)
print("done")
"""


def test_limit_of_the_pools():
    """The limit covers all pools together, whatever they hold; idle memory is returned for it."""
    sycl_device()
    assert program("-c", LIMIT) == "done\n"
