"""copy, deepcopy and pickles, in band and out of band. robust/test_values.py pickles every type and layout."""

import copy
import io
import math
import pickle
import pickletools
import sys

import pytest
from conftest import places, program, run, sycl_device

import usmbridge as ub


def same(a, b):
    return a.tolist() == b.tolist() and (a.shape, a.dtype, a.usm_type, a.device, a.readonly) == (b.shape, b.dtype, b.usm_type, b.device, b.readonly)


def test_copy_and_deepcopy():
    a = ub.asarray([[1, 2], [3, 4]], dtype="int16", device="host")
    pair = copy.deepcopy([a, a])
    assert pair[0] is pair[1] and same(a, pair[0]) and pair[0]._pointer != a._pointer and not copy.copy(a.as_readonly()).readonly


def test_out_of_band_buffers_are_the_memory():
    for where in places():
        a = ub.asarray(list(range(64)), dtype="float32", **where).reshape(8, 8)
        for x in (a, a.T, a[2:4], a.as_readonly()):
            buffers = []
            data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
            assert len(buffers) == 1 and len(data) < 400
            raw = buffers[0].raw()
            readable = a.usm_type != "device"
            if readable:
                assert ub.asarray(raw)._pointer == x._pointer and raw.readonly == x.readonly and raw.nbytes == x.nbytes
            b = pickle.loads(data, buffers=buffers)
            assert same(x, b) and b.strides == x.strides
            if readable:
                assert b._pointer == x._pointer  # the same memory, because it is of the right kind
            # Imported memory is used in its place.
            other = bytearray(raw)
            c = pickle.loads(data, buffers=[other])
            assert same(x, c)
            if x.usm_type is None:
                assert c._pointer == ub.asarray(other)._pointer and c.readonly == x.readonly
            if x.usm_type is None:
                assert pickle.loads(data, buffers=[memoryview(bytes(raw))]).readonly
            for short in (other[:-4], other + b"1234", b""):
                with pytest.raises(ValueError, match="bytes"):
                    pickle.loads(data, buffers=[short])
            del b, c, raw
        a.release()
        assert buffers[0].raw().nbytes == x.nbytes if not readable else True


def test_the_memory_lives_as_long_as_a_buffer_of_it():
    a = ub.asarray([1.0, 2.0], dtype="float64", device="host")
    buffers = []
    data = pickle.dumps(a, protocol=5, buffer_callback=buffers.append)
    b = pickle.loads(data, buffers=buffers)
    a.release()
    del a
    b[0] = 5
    assert pickle.loads(data, buffers=buffers).tolist() == [5.0, 2.0]


def test_unaligned_buffers_are_copied():
    data = pickle.dumps(ub.asarray([1.0, 2.0], dtype="float64", device="host"), protocol=5, buffer_callback=lambda b: None)
    raw = bytearray(17)
    raw[1:] = memoryview(ub.asarray([3.0, 4.0], dtype="float64")).cast("B")
    assert pickle.loads(data, buffers=[memoryview(raw)[1:]]).tolist() == [3.0, 4.0]


def test_packed_elements_begin_where_they_can():
    """Elements of six bits do not begin at every byte of a buffer."""
    a = ub.asarray([1, 0, 2, 1], dtype="float6_e2m3fn", device="host")
    data = pickle.dumps(a, protocol=5, buffer_callback=lambda b: None)
    for at in range(4):
        wide = ub.zeros(16, "uint8", device="host")
        wide[at : at + 3] = a.__reduce_ex__(5)[1][0].raw()
        b = pickle.loads(data, buffers=[pickle.PickleBuffer(wide[at : at + 3])])
        assert same(a, b) and b.copy().tolist() == a.tolist() and (b._pointer == wide[at:]._pointer) == (at % 3 == 0)


def test_in_a_forked_child():
    """Neither Go nor SYCL can be called there. The first pickle is made and read in the child."""
    for where in places():
        if where.get("usm_type") != "device":
            run(f"""
import pickle
a = ub.asarray([1, 2], **{ {k: str(v) for k, v in where.items()} })
a.tolist()
pid = os.fork()
if pid == 0:
    for protocol in range(6):
        b = pickle.loads(pickle.dumps(a, protocol))
        assert b.tolist() == [1, 2] and not b.readonly
    buffers = []
    assert pickle.loads(pickle.dumps(a, 5, buffer_callback=buffers.append), buffers=buffers).tolist() == [1, 2]
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""")


def test_in_another_process(tmp_path):
    """In another process: on the same device if it exists, otherwise an error."""
    device = sycl_device()
    for name, a in (("usm", ub.asarray([1, 2, 3], device=device, usm_type="device")), ("host", ub.asarray([1, 2, 3], device="host"))):
        (tmp_path / name).write_bytes(pickle.dumps(a))
    code = """
import pickle, sys
for name in sys.argv[1:]:
    try:
        a = pickle.load(open(name, "rb"))
        print(a.tolist(), a.usm_type, a.device.filter_string, a.readonly)
    except ValueError as e:
        print(e)
"""
    for sycl in ("", "off"):
        usm, host = program("-c", code, tmp_path / "usm", tmp_path / "host", USMBRIDGE_SYCL=sycl).splitlines()
        assert host == "[1, 2, 3] None host False"
        assert usm == f"[1, 2, 3] device {device.filter_string} False" if not sycl else "SYCL is switched off" in usm


# Pickles that earlier releases made of asarray([[1, 2], [3, 4]], dtype="int16", device="host").T.
OLD = [
    b"cusmbridge\n_unpickle\np0\n(c_codecs\nencode\np1\n(V\x01\\u0000\x02\\u0000\x03\\u0000\x04\\u0000\np2\nVlatin1\np3\ntp4\nRp5\nVint16\np6\n(I2\nI2\ntp7\nVF\np8\nI0\nNNI0\ntp9\nRp10\n.",
    b"\x80\x02cusmbridge\n_unpickle\nq\x00(c_codecs\nencode\nq\x01X\x08\x00\x00\x00\x01\x00\x02\x00\x03\x00\x04\x00q\x02X\x06\x00\x00\x00latin1q\x03\x86q\x04Rq\x05X\x05\x00\x00\x00int16q\x06"
    b"K\x02K\x02\x86q\x07X\x01\x00\x00\x00Fq\x08K\x00NNK\x00tq\tRq\n.",
    b"\x80\x05\x95J\x00\x00\x00\x00\x00\x00\x00\x8c\tusmbridge\x94\x8c\t_unpickle\x94\x93\x94(\x96\x08\x00\x00\x00\x00\x00\x00\x00\x01\x00\x02\x00\x03\x00\x04\x00\x94\x8c\x05int16\x94"
    b"K\x02K\x02\x86\x94\x8c\x01F\x94K\x00NNK\x00t\x94R\x94.",
]


def test_pickles_of_earlier_releases():
    a = ub.asarray([[1, 2], [3, 4]], dtype="int16", device="host").T
    for protocol, data in zip((0, 2, 5), OLD):
        b = pickle.loads(data)
        assert same(a, b) and b.strides == (1, 2)
        assert pickle.dumps(a, protocol) == data


def test_hostile_recipes():
    good = [b"\0" * 8, "int32", (2,), "C", 0, None, None, 0]
    assert ub._unpickle(*good).tolist() == [0, 0]
    bad = {
        0: [b"", b"\0" * 7, bytearray(9), None, 5, "text", memoryview(b"\0" * 16)[::2], memoryview(b"\0" * 8).cast("i"), [0] * 8], 1: ["nonsense", None, 5, "int64", "int8"],
        2: [(3,), -2, (-2,), (1 << 62, 4), "x", None, (1,) * 65, (0,)], 5: ["nonsense", 5], 6: ["nosuch:device:9", 5],
    }
    for i, values in bad.items():
        for v in values:
            args = list(good)
            args[i] = v
            with pytest.raises((TypeError, ValueError, BufferError)):
                ub._unpickle(*args)
    for n in range(8):
        with pytest.raises(TypeError):
            ub._unpickle(*good[:n])
    with pytest.raises(TypeError):
        ub.zeros(2).__reduce_ex__("x")


# Errors of the pickle module, of the names of a changed pickle, and ours.
ERRORS = (TypeError, ValueError, OverflowError, BufferError, LookupError, AttributeError, MemoryError, EOFError, pickle.UnpicklingError, ImportError, RecursionError)


class Unpickler(pickle.Unpickler):
    """Loads only the names of the module's pickles; other code in a pickle is not ours."""

    def find_class(self, module, name):
        if (module, name) in (("usmbridge", "_unpickle"), ("usmbridge", "DType"), ("_codecs", "encode")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(name)


def has_large_index(data):
    """Whether a pickle stores at a large index of the memo, for which Python allocates and clears gigabytes."""
    try:
        return any("PUT" in op.name and arg > 1000 for op, arg, _ in pickletools.genops(data))
    except Exception:  # from an invalid opcode on
        return False


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_changed_pickles(protocol):
    """Cut pickles, and pickles with another byte anywhere, give an Array or an error."""
    for where in places():
        for dtype in ("int16", "float6_e2m3fn"):
            data = pickle.dumps(ub.ones((2, 4), dtype, **where), protocol)
            changed = [data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :] for at in range(len(data)) for bits in (1, 4, 0x80)]
            for other in (*changed, *(data[:at] for at in range(len(data))), *(data[:at] + data[at + 1 :] for at in range(len(data)))):
                if has_large_index(other):
                    continue
                try:
                    a = Unpickler(io.BytesIO(other)).load()
                except ERRORS:
                    continue
                if isinstance(a, ub.Array):
                    b = a.copy()
                    assert (b.shape, b.nbytes, b.dtype, b.size) == (a.shape, a.nbytes, a.dtype, math.prod(a.shape)) and b.tolist() is not None


def test_buffers_of_other_kinds():
    a = ub.zeros(8, "uint8", device="host")
    data = pickle.dumps(a, protocol=5, buffer_callback=lambda b: None)
    released = pickle.PickleBuffer(ub.zeros(8, "uint8", device="host"))
    released.release()
    for bad in ([], [released], [memoryview(bytearray(16))[::2]], [memoryview(bytearray(32)).cast("f")], [None], [5], ["text"]):
        with pytest.raises(ERRORS):
            pickle.loads(data, buffers=bad)


def test_in_band_has_the_bytes_once():
    a = ub.zeros(1 << 16, "uint8", device="host")
    assert len(pickle.dumps(a, 4)) < (1 << 16) + 400 and len(pickle.dumps(a, 5)) < (1 << 16) + 400
    assert "BYTEARRAY8" in "".join(op.name for op, *_ in pickletools.genops(pickle.dumps(a, 5)))
    assert sys.getsizeof(pickle.dumps(a[:0])) < 500


def test_no_elements_at_an_odd_address():
    """The bytes of an empty array can be anywhere, as those of an empty bytearray of CPython 3.14."""
    m = memoryview(bytearray(64))
    for at in range(4):
        a = ub._unpickle(m[at:at], "int32", (0, 2), "C", 0, None, None, 0)
        assert a.shape == (0, 2) and a.dtype == "int32" and a._pointer == ub.asarray(m[at:at])._pointer


def test_repeated_elements_are_pickled_once(np, dpnp):
    xp = ub.array_api
    for where in places():
        n = np.arange(6.0).reshape(2, 1, 3)
        a = ub.asarray(n, copy=True, **where)
        for x, y, most in ((xp.broadcast_to(a[:1, :, :1], (1000, 100, 10)).as_readonly(), np.broadcast_to(n[:1, :, :1], (1000, 100, 10)), 1),
                           (xp.broadcast_to(a, (2, 500, 3)).as_readonly().T, np.broadcast_to(n, (2, 500, 3)).T, 6)):
            for protocol in range(6):
                data = pickle.dumps(x, protocol)
                b = pickle.loads(data)
                assert len(data) < 800 + 8 * most and same(x, b) and np.array_equal(b.asnumpy(), y)
            buffers = []
            data = pickle.dumps(x, 5, buffer_callback=buffers.append)
            assert sum(v.raw().nbytes for v in buffers) == 8 * most and np.array_equal(pickle.loads(data, buffers=buffers).asnumpy(), y)
        whole = a.as_readonly()
        assert pickle.loads(pickle.dumps(whole)).strides == whole.strides and pickle.loads(pickle.dumps(a[:0].as_readonly())).shape == (0, 1, 3)
    x = ub.asarray(np.broadcast_to(np.float64(5), (1000, 1000)))
    assert x.readonly and len(pickle.dumps(x)) < 400


def test_repeated_elements_without_libraries(tmp_path, np):
    """Where no view can be made, the elements are copied."""
    for name, where in (("host", {"device": "host"}), ("usm", {"usm_type": "shared"})):
        a = ub.array_api.broadcast_to(ub.asarray([[1], [2]], **where), (2, 3)).as_readonly()
        (tmp_path / name).write_bytes(pickle.dumps(a))
        for missing in ("dpnp", "numpy"):
            run(f"""
import pickle, sys
sys.modules[{missing!r}] = None
a = pickle.load(open({str(tmp_path / name)!r}, "rb"))
assert a.tolist() == [[1] * 3, [2] * 3] and a.readonly and a.usm_type == {a.usm_type!r}
""", first="")
