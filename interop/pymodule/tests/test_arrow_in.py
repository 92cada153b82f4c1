"""Import by the Arrow C data interface. pyarrow is the producer; ctypes covers what it does not make (inconsistent
structs, memory of devices)."""

import ctypes
import gc
import struct as packing

import pytest

import usmbridge as ub
from arrow_abi import Producer
from conftest import peer

np, pa = peer("numpy"), peer("pyarrow")

pytestmark = pytest.mark.filterwarnings("ignore:Exporting an unversioned DLPack capsule:DeprecationWarning")

TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


class Only:
    """An object with Arrow's interface and no other."""

    def __init__(self, x, device=False):
        name = "__arrow_c_device_array__" if device else "__arrow_c_array__"
        self.get = getattr(x, name)

    @property
    def __arrow_c_array__(self):
        return self.get


class OnlyDevice(Only):
    def __init__(self, x):
        super().__init__(x, True)

    @property
    def __arrow_c_device_array__(self):
        return self.get


def held():
    gc.collect()
    return pa.total_allocated_bytes()


# ---- objects of pyarrow ----------------------------------------------------------------


@pytest.mark.parametrize("wrap", [Only, OnlyDevice])
@pytest.mark.parametrize("dtype", TYPES)
def test_values(dtype, wrap):
    x = np.arange(7).astype(dtype)
    v = pa.array(x)
    a = ub.asarray(wrap(v))
    assert (a.shape, str(a.dtype), a.readonly) == ((7,), dtype, True)
    assert a._pointer == v.buffers()[1].address
    np.testing.assert_array_equal(a.asnumpy(), x)
    part = ub.asarray(wrap(v[2:5]))
    assert part._pointer == a._pointer + 2 * a.itemsize
    np.testing.assert_array_equal(part.asnumpy(), x[2:5])


def test_memory_lives_as_long_as_the_array():
    before = held()
    v = pa.array(np.arange(1 << 16, dtype="i8")).take(pa.array(np.arange(1 << 16)))
    a = ub.asarray(Only(v))
    view = a[10:20]
    size = held() - before
    assert size >= 1 << 19
    del v, a
    assert held() - before >= 1 << 19
    assert view.tolist() == list(range(10, 20))
    del view
    assert held() == before


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (1, 1), (3, 2, 1, 2), (0, 3), (5, 1)])
def test_tensors(shape):
    x = np.arange(int(np.prod(shape)), dtype="f4").reshape(shape)
    t = pa.FixedShapeTensorArray.from_numpy_ndarray(x) if x.size else pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), shape[1:]), pa.array([], pa.list_(pa.float32(), 3)))
    for o in (t, Only(t), OnlyDevice(t)):  # pyarrow's tensor array has a __dlpack__ that refuses
        a = ub.asarray(o)
        assert (a.shape, str(a.dtype), a.readonly) == (shape, "float32", True)
        np.testing.assert_array_equal(a.asnumpy(), x)
        if a.size:
            assert a._pointer == t.storage.values.buffers()[1].address
    if shape[0] > 1:
        np.testing.assert_array_equal(ub.asarray(t[1:]).asnumpy(), x[1:])


def test_permuted_tensors():
    x = np.arange(24, dtype="i2").reshape(2, 3, 4).transpose(0, 2, 1)
    t = pa.FixedShapeTensorArray.from_numpy_ndarray(x)
    assert t.type.permutation == [1, 0]
    a = ub.asarray(t)
    assert (a.shape, a.strides) == ((2, 4, 3), (12, 1, 4))
    np.testing.assert_array_equal(a.asnumpy(), t.to_numpy_ndarray())


def test_lists_of_one_size():
    v = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int16(), 2))
    a = ub.asarray(v[1:])
    assert (a.shape, a.tolist(), a.readonly) == ((2, 2), [[3, 4], [5, 6]], True)


def test_round_trip():
    for shape in ((6,), (2, 3), (2, 3, 4)):
        a = ub.asarray(np.arange(int(np.prod(shape)), dtype="f8").reshape(shape), device="host", copy=True)
        b = ub.asarray(Only(a))
        assert (b._pointer, b.shape, b.readonly) == (a._pointer, a.shape, True)
        del a
        assert b.tolist() == np.arange(b.size).reshape(shape).tolist()


def test_copy_dtype_and_place():
    t = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6, dtype="f4").reshape(2, 3))
    a = ub.asarray(t, copy=True)
    assert not a.readonly and a._pointer != t.storage.values.buffers()[1].address
    assert str(ub.asarray(t, dtype="float64").dtype) == "float64"
    assert ub.asarray(t, copy=False)._pointer == t.storage.values.buffers()[1].address
    with pytest.raises(ValueError, match="copy=False"):
        ub.asarray(t, dtype="float64", copy=False)


def test_usm(device):
    t = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6, dtype="f4").reshape(2, 3))
    a = ub.asarray(t, usm_type="device")
    assert a.usm_type == "device" and a.asnumpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_booleans_are_copied_if_allowed():
    x = [bool(i % 3) for i in range(50)]
    v = pa.array(x)
    for o, want in ((v, x), (v[3:41], x[3:41]), (Only(v[9:]), x[9:]), (v[:0], [])):
        a = ub.asarray(o)
        assert (str(a.dtype), a.readonly, a.tolist()) == ("bool", False, want)
        with pytest.raises(ValueError, match="booleans are bits"):
            ub.asarray(o, copy=False)
    lists = pa.array([[True, False, True], [False, False, True]], pa.list_(pa.bool_(), 3))
    assert ub.asarray(lists[1:]).tolist() == [[False, False, True]]
    b = ub.zeros((2, 3), dtype="bool", device="host")
    b[0] = pa.array([True, True, False])
    assert b.tolist() == [[True, True, False], [False] * 3]
    assert ub.asarray([pa.array([True]), pa.array([False])]).tolist() == [[True], [False]]


def test_bool8():
    v = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8()))
    a = ub.asarray(v, copy=False)
    assert (str(a.dtype), a.tolist(), a._pointer) == ("bool", [True, False, True], v.storage.buffers()[1].address)


def test_nulls():
    v = pa.array([1, None, 3, 4])
    for o in (v, Only(v), v[1:], Only(v[1:])):
        with pytest.raises(BufferError, match="1 of [34] elements are null"):
            ub.asarray(o)
    for o in (v[2:], Only(v[2:])):  # no null in the slice: the bitmap shows that
        assert ub.asarray(o).tolist() == [3, 4]
    lists = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2))
    with pytest.raises(BufferError, match="rows are null"):
        ub.asarray(lists)
    with pytest.raises(BufferError, match="elements are null"):
        ub.asarray(lists[2:])
    assert ub.asarray(lists[:1]).tolist() == [[1, 2]]


def test_extension_arrays_are_read_by_arrow():
    """pyarrow 26 has wrong strides in the DLPack of permuted tensors, which read elements behind the column."""
    values = np.arange(24, dtype="int32")
    values[12:] += 1000
    inner = pa.Array.from_buffers(pa.int32(), 12, [None, pa.py_buffer(values)])
    for shape, order in (((2, 3, 1), [2, 0, 1]), ((2, 3, 1), [1, 2, 0]), ((3, 4), [1, 0]), ((6, 2), [0, 1]), ((2, 3), None)):
        size = int(np.prod(shape))
        storage = pa.FixedSizeListArray.from_arrays(inner, size)
        x = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), shape, permutation=order), storage)
        want = values[:12].reshape(-1, *shape).transpose(0, *(i + 1 for i in order or range(len(shape))))
        for a in (ub.asarray(x), ub.asarray(x, copy=False), ub.asarray(Only(x)), ub.asarray(pa.chunked_array([x])), ub.asarray([x])[0]):
            assert a.tolist() == want.tolist() and a._pointer

    class Custom(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int32(), "usmbridge.test")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            return cls()

    x = pa.ExtensionArray.from_storage(Custom(), inner)
    try:
        x.__dlpack__()
    except TypeError:
        with pytest.raises(TypeError, match="extension"):
            ub.asarray(x)
    else:
        assert ub.asarray(x).tolist() == list(range(12))


class Stream:
    """An object with __arrow_c_stream__ alone."""

    def __init__(self, o):
        self.o = o

    def __arrow_c_stream__(self, requested_schema=None):
        return self.o.__arrow_c_stream__()


BIG = 2**60 + 1  # float64 and float32 round it
NULLS = {
    "values": lambda: (pa.array([BIG, None, 3]), [BIG, None, 3]),
    "a slice": lambda: (pa.array([7, BIG, None, 3])[1:], [BIG, None, 3]),
    "chunks": lambda: (pa.chunked_array([[BIG, None], [3]]), [BIG, None, 3]),
    "the first chunk has none": lambda: (pa.chunked_array([[BIG], [], [None, 3]], pa.int64()), [BIG, None, 3]),
    "booleans": lambda: (pa.array([True] * 9 + [None])[5:], [True] * 4 + [None]),
    "chunks of booleans": lambda: (pa.chunked_array([[True, None], [False]]), [True, None, False]),
    "unsigned": lambda: (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None]),
    "lists": lambda: (pa.array([[1, 2], [BIG, None]], pa.list_(pa.int64(), 2)), [[1, 2], [BIG, None]]),
    "rows": lambda: (pa.array([[0, 0], [1, BIG], None, [3, 4]], pa.list_(pa.int64(), 2))[1:], [[1, BIG], [None, None], [3, 4]]),
    "tensors": lambda: (permuted([1, 2, None, 4, 5, 6], (2, 3), [1, 0]), [[[1, 4], [2, 5], [None, 6]]]),
    "a table": lambda: (pa.table({"x": [BIG, None], "y": [1, 2]}), [[BIG, 1], [None, 2]]),
    "a table in parts": lambda: (pa.concat_tables([pa.table({"x": [BIG], "y": [1]}), pa.table({"x": [5, None, 6], "y": [1, 2, 3]})[1:2]]), [[BIG, 1], [None, 2]]),
    "a record batch": lambda: (pa.record_batch({"x": [0, BIG, None], "y": [0, 1, 2]})[1:], [[BIG, 1], [None, 2]]),
    "floats": lambda: (pa.array([1.5, None]), [1.5, None]),
    "chunks of floats": lambda: (pa.chunked_array([[1.5, None], [2.5]]), [1.5, None, 2.5]),
    "float32 and int64": lambda: (pa.table({"x": pa.array([1.5, None], pa.float32()), "y": [1, 2]}), [[1.5, 1], [None, 2]]),
}


def permuted(values, shape, permutation):
    storage = pa.FixedSizeListArray.from_arrays(pa.array(values, pa.int64()), len(values))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), shape, permutation=permutation), storage)


def of_floats(want, dtype):
    """Returns nested lists with None replaced by NaN, in elements of a type."""
    if isinstance(want, list):
        return np.array([of_floats(x, dtype) for x in want])
    with np.errstate(over="ignore"):
        return np.array(np.nan if want is None else want).astype(dtype)


@pytest.mark.parametrize("case", NULLS)
def test_nulls_are_nan_or_refused(case):
    x, want = NULLS[case]()
    floating = "float" in case
    kinds = [x] + ([Stream(x)] if hasattr(x, "__arrow_c_stream__") else []) + ([Only(x)] if hasattr(x, "__arrow_c_array__") else [])
    for o in kinds:
        for dtype in ("float16", "float32", "float64", "complex64", "complex128"):
            a = ub.asarray(o, dtype=dtype)
            assert str(a.dtype) == dtype and np.array_equal(a.asnumpy(), of_floats(want, dtype), equal_nan=True)
        a = ub.asarray(o, dtype="bfloat16").astype("float64")
        assert np.array_equal(np.isnan(np.asarray(a)), np.isnan(of_floats(want, "float64")))
        for dtype in ("bool", "int64", "uint8", "int4", "float8_e5m2", "float4_e2m1fn"):
            with pytest.raises(BufferError, match="null"):
                ub.asarray(o, dtype=dtype)
            b = ub.zeros(np.shape(want), dtype, device="host")
            for write in (lambda: b.__setitem__(..., o), lambda: ub.full(b.shape, o, dtype)):
                with pytest.raises(BufferError, match="null"):
                    write()
        with pytest.raises(ValueError, match="copy=False"):
            ub.asarray(o, dtype="float64", copy=False)
        c = ub.zeros(np.shape(want), "float32")
        c[...] = o
        assert np.array_equal(c.asnumpy(), of_floats(want, "float32"), equal_nan=True)
        assert np.array_equal(ub.asarray([o], dtype="float32").asnumpy()[0], of_floats(want, "float32"), equal_nan=True)
        for make in (ub.asarray, ub.array, ub.array_api.asarray, lambda o: ub.full(np.shape(want), o)):
            if floating:
                assert np.array_equal(make(o).asnumpy(), of_floats(want, "float64"), equal_nan=True)
            else:
                with pytest.raises(BufferError, match="null"):
                    make(o)


def test_nulls_that_only_other_readers_know_are_not_lost():
    """NumPy makes 7 of the null in the first."""
    for x in (pa.chunked_array([pa.array([5, None, 7]).dictionary_encode()]), pa.chunked_array([pa.nulls(2)]),
              pa.table({"x": pa.array([5, None]).dictionary_encode()}), pa.table({"x": [1, None], "y": ["a", "b"]})):
        for dtype in (None, "int64", "float64"):
            with pytest.raises((TypeError, BufferError), match="dictionary-encoded|format|null"):
                ub.asarray(x, dtype=dtype)
    assert ub.asarray(pa.chunked_array([pa.array([5, 7]).dictionary_encode()])).tolist() == [5, 7]


def test_streams():
    values = np.arange(6.0)
    one = pa.chunked_array([values])
    a = ub.asarray(one)
    assert a.readonly and a._pointer == one.chunk(0).buffers()[1].address and a.tolist() == values.tolist()
    for x, want in ((pa.chunked_array([[1, 2], [3]]), [1, 2, 3]), (pa.chunked_array([], pa.int32()), []), (pa.chunked_array([[True], [False]]), [True, False]),
                    (pa.chunked_array([permuted(range(6), (2, 3), [1, 0])] * 2), [[[0, 3], [1, 4], [2, 5]]] * 2)):
        for o in (x, Stream(x)):
            assert ub.asarray(o).tolist() == want
            if x.num_chunks != 1:
                with pytest.raises(ValueError, match="copy"):
                    ub.asarray(o, copy=False)
    assert ub.asarray(pa.table({"x": [1, 2], "y": [0.5, 1.5]})).tolist() == [[1, 0.5], [2, 1.5]]

    def batches():
        yield pa.record_batch({"x": [1, None]})
        raise OSError("lost")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), batches())
    with pytest.raises(RuntimeError, match="stream failed.*lost"):
        ub.asarray(Stream(reader))
    capsule = one.__arrow_c_stream__()
    again = type("Again", (), {"__arrow_c_stream__": lambda self: capsule})()
    assert ub.asarray(again).tolist() == values.tolist()
    for bad in (again, type("Number", (), {"__arrow_c_stream__": lambda self: 5})()):
        with pytest.raises((BufferError, ValueError)):
            ub.asarray(bad)


class Missing:
    """A column of pandas: integers or floats, and a mask."""

    def __init__(self, values, missing):
        self.values, self.missing, self.ndim = np.array(values), np.array(missing), 1
        self.dtype = type("Dtype", (), {"na_value": None})()

    def isna(self):
        return self.missing

    def __getitem__(self, mask):
        return Missing(self.values[mask], self.missing[mask])

    def __array__(self, dtype=None, copy=None):
        if not self.missing.any():
            return self.values
        if copy is False:
            raise ValueError("a copy")
        return np.where(self.missing, np.nan, self.values.astype("float64"))


def test_missing_values_of_pandas():
    """peers/test_consumers.py has pandas itself."""
    x = Missing([BIG, 0, 3], [False, True, False])
    for dtype in (None, "int64", "bool"):
        with pytest.raises(BufferError, match="1 of 3 elements of the Missing are missing"):
            ub.asarray(x, dtype=dtype)
    for dtype in ("float32", "complex128"):
        assert np.array_equal(ub.asarray(x, dtype=dtype).asnumpy(), of_floats([BIG, None, 3], dtype), equal_nan=True)
    assert np.array_equal(ub.asarray(Missing([1.5, 0], [False, True])).asnumpy(), [1.5, np.nan], equal_nan=True)
    assert ub.asarray(Missing([BIG], [False]), dtype="int64").tolist() == [BIG]


@pytest.mark.parametrize("make, why", [
    (lambda: pa.array(["a", "b"]), 'format "u"'),
    (lambda: pa.array([b"a"]), 'format "z"'),
    (lambda: pa.array(["a"]).dictionary_encode(), "dictionary-encoded"),
    (lambda: pa.array([1, 2]).dictionary_encode(), "dictionary-encoded"),
    (lambda: pa.array([[1], [2, 3]]), r'format "\+l"'),
    (lambda: pa.array([[["a"]]], pa.list_(pa.list_(pa.string(), 1), 1)), r'format "\+w:1"'),
    (lambda: pa.array([1], pa.timestamp("s")), 'format "tss:"'),
    (lambda: pa.array([1], pa.decimal128(5)), 'format "d:5,0"'),
    (lambda: pa.nulls(2), 'format "n"'),
    (lambda: pa.array([{"a": 1}]), r'format "\+s"'),
    (lambda: pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))), "arrow.uuid"),
])
def test_unsupported_types_are_type_errors(make, why):
    for o in (make(), Only(make())):
        with pytest.raises(TypeError, match=why):
            ub.asarray(o)


# ---- invalid structs ---------------------------------------------------------------------


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("kind", ["values", "lists", "tensors"])
def test_each_struct_is_released_once(kind, device):
    p = Producer(kind, device=device)
    top = "leaf" if kind == "values" else "top"
    a = ub.asarray(p)
    assert p.released == {top + " schema": 1}
    assert a.tolist() == (list(range(12)) if kind == "values" else [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
    view = a[1:]
    del a
    assert p.released == {top + " schema": 1}
    with pytest.raises(BufferError, match="released"):  # the structs were moved out of the capsules
        ub.asarray(p)
    assert view._pointer > ctypes.addressof(p.numbers)
    del view
    gc.collect()
    assert p.released == {top + " schema": 1, top + " array": 1}


def text(n):
    return packing.pack("i", n)


BIG, NAMED = 1 << 62, text(20) + b"ARROW:extension:name" + text(11) + b"arrow.bool8"
# By the kind of the producer and the error: values of one field, each of which is refused.
FIELDS = {
    ("values", BufferError): {
        "schema_nothing": ["format", "release"],
        "schema_n_children": [1],
        "schema_metadata": [text(2**31 - 1), text(-1), text(1) + text(-5), text(1) + text(1) + b"k" + text(2**31 - 1)],
        "array_length": [-1, BIG],  # BIG elements overflow in bytes
        "array_offset": [-1],
        "array_null_count": [-2, 13, 1],  # more than the length; nulls without a bitmap
        "array_n_buffers": [0, 1, 3],
        "array_nothing": ["buffers", "release"],
        "array_buffers": [(None, None)],
        "array_dictionary": [1],
    },
    ("values", TypeError): {
        "schema_format": [b"", b"i" * 10000, b"\xff\xfe"],
        "schema_dictionary": [1],
        "names": [(b"arrow_schema", b"other"), (b"arrow_array", b"arrow_schema")],
    },
    ("lists", BufferError): {
        "schema_format": [b"+w:", b"+w:-3", b"+w:99999999999999999999", b"+w:4"],
        "schema_n_children": [0, 2],
        "schema_nothing": ["children"],
        "leafschema_nothing": ["format", "release"],
        "array_length": [5, BIG],
        "array_offset": [1],
        "array_n_children": [0, BIG],
        "array_nothing": ["children", "buffers"],
        "leaf_length": [-12],
        "leaf_offset": [2**63 - 1],
        "leaf_nothing": ["buffers", "release"],
    },
    ("lists", TypeError): {"leafschema_dictionary": [1]},
    ("tensors", BufferError): {
        "text": [
            b"", b"{}", b"[3]", b'{"shape":3}', b'{"shape":[3', b'{"shape":[2]}', b'{"shape":["3"]}', b'{"shape":[-1,-3]}', b'{"shape":[1.5,2]}',
            b'{"shape":[true,3]}', b'{"shape":[4294967296,4294967296,3]}', b'{"shape":[99999999999999999999]}', b'{"shape":[3%s]}' % (b",1" * 63),
            *(b'{"shape":[1,3],"permutation":%s}' % p for p in (b"[0,0]", b"[1,2]", b"[64,1]", b"[]", b"[0]", b"[true,false]")),
            b'{"shape":[1],"shape":[3]}', b'{"shape":[3],"\xff":1}', b'{"shape":[3]}\0 ', b"[" * 4000, b" " * 100000 + b'{"shape":[3]}',
            b'{"shape":[3]}' + b" " * 5000,  # right as far as there is room
        ],
    },
    ("tensors", TypeError): {"name": [b"somebody.else", b"arrow.fixed_shape_tensor\0", b"\xff\xfe\x00", b"x" * 100000]},
}
REFUSED = [(kind, error, {field: value}) for (kind, error), fields in FIELDS.items() for field, values in fields.items() for value in values] + [
    ("values", BufferError, dict(array_length=2**63 - 1, array_offset=1)),
    ("values", BufferError, dict(array_offset=BIG, array_length=1)),
    ("values", BufferError, dict(array_buffers=(None, (1 << 64) - 8), array_offset=3, array_length=1)),  # behind all memory
    ("values", BufferError, dict(schema_metadata=text(2) + NAMED * 2, schema_format=b"c", array_length=1)),
    ("tensors", BufferError, dict(text=b'{"shape":[0,4611686018427387904,4611686018427387904]}', schema_format=b"+w:0")),
    ("tensors", BufferError, dict(text=b'{"shape":null}', schema_format=b"+w:1")),
    *(("values", BufferError, dict(device=True, device_device_type=kind)) for kind in (2, 14, -1)),
    ("values", BufferError, dict(device=True, device_sync_event=8)),
]


@pytest.mark.parametrize("kind, error, say", REFUSED, ids=[f"{kind}-{say}"[:80] for kind, _, say in REFUSED])
def test_inconsistent_structs_are_refused(kind, error, say):
    p = Producer(kind, **say)
    with pytest.raises(error) as e:
        ub.asarray(p)
    assert len(str(e.value)) > 20 and type(e.value) is error
    top = "leaf" if kind == "values" else "top"
    if "names" in say:
        assert p.released == {}  # the capsules still own the structs
    else:
        for what, thing in (("schema", p.schema), ("array", p.memory.array)):
            gone = say.get(what + "_nothing") == "release"
            assert p.released.get(f"{top} {what}", 0) == (0 if gone else 1)
            assert not thing.release


def test_no_elements_at_a_null_address():
    """For the undefined behaviour sanitizer too: C copies no bytes from a null address."""
    p = Producer("values", array_length=0, array_buffers=(None, None))
    assert ub.asarray(p, copy=True).tolist() == []


def test_bitmaps():
    p = Producer(array_null_count=-1)
    p.memory.array.buffers = (ctypes.c_void_p * 2)(ctypes.addressof(p.bits), ctypes.addressof(p.numbers))
    assert ub.asarray(p).tolist() == list(range(12))
    p = Producer(array_null_count=-1, array_offset=8, array_length=4)
    p.bits[1] = 0b11111011
    p.memory.array.buffers = (ctypes.c_void_p * 2)(ctypes.addressof(p.bits), ctypes.addressof(p.numbers))
    with pytest.raises(BufferError, match="1 of 4 elements are null"):
        ub.asarray(p)


def test_unaligned_values():
    """Arrow recommends alignment without requiring it: messages of Flight can be at any address."""
    p = Producer(array_length=4)
    raw = (ctypes.c_char * 64)()
    at = ctypes.addressof(raw) + 1
    ctypes.memmove(at, p.numbers, 48)
    p.memory.array.buffers = (ctypes.c_void_p * 2)(None, at)
    a = ub.asarray(p)
    assert a._pointer == at and a.asnumpy().tolist() == [0, 1, 2, 3] and a[2:].tolist() == [2, 3]
    with pytest.raises(BufferError, match="align"):
        a.__dlpack__(max_version=(1, 0))
    assert ub.asarray(a, copy=True).tolist() == [0, 1, 2, 3]


def test_results_other_than_two_capsules():
    right = pa.array([1]).__arrow_c_array__()
    for answer in (None, (), (1, 2), (1,), [1, 2], "ab", list(right), (*right, None), right[::-1]):
        with pytest.raises(TypeError, match="__arrow_c_array__ (returned|did not return)"):
            ub.asarray(type("Liar", (), {"__arrow_c_array__": lambda self, requested_schema=None: answer})())


def test_a_producer_that_raises():
    class Raising:
        def __arrow_c_array__(self):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ub.asarray(Raising())


def test_a_record_batch_is_an_array_as_numpy_has_it(np):
    batch = pa.record_batch({"a": [1, 2], "b": [3.5, 4.5]})
    assert ub.asarray(batch).tolist() == np.asarray(batch).tolist() == [[1.0, 3.5], [2.0, 4.5]]
    with pytest.raises(TypeError, match=r'format "\+s"'):
        ub.asarray(Only(batch))


class Picture:
    """As Pillow's images: the array interface has the picture, and Arrow rows of padded pixels."""

    def __init__(self, np, protocol):
        self.pixels = np.arange(2 * 5 * 3, dtype="uint8").reshape(2, 5, 3)
        self.padded = pa.FixedSizeListArray.from_arrays(pa.array(range(2 * 5 * 4), pa.uint8()), 4)
        method = lambda dtype=None, copy=None: self.pixels  # before NumPy 2.0 ndarray.__array__ takes no copy
        offer = method if protocol == "__array__" else getattr(self.pixels, protocol)
        setattr(type(self), protocol, property(lambda self: offer))

    def __arrow_c_array__(self, requested_schema=None):
        return self.padded.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("protocol", ["__array_interface__", "__array_struct__", "__array__"])
def test_array_protocols_precede_arrow(np, protocol):
    picture = type("One", (Picture,), {})(np, protocol)
    for a in (ub.asarray(picture), ub.asarray([picture])[0], ub.asarray(picture, device="host")):
        assert a.shape == (2, 5, 3) and a.tolist() == picture.pixels.tolist()
    assert ub.asarray(picture)._pointer == picture.pixels.ctypes.data


def test_the_buffer_protocol_precedes_arrow():
    class WithBuffer(bytearray):
        def __arrow_c_array__(self):
            raise AssertionError("asked")

    assert ub.asarray(WithBuffer(b"ab")).tolist() == [97, 98]


class Copies:
    """A producer whose __array__ can only copy. NumPy requires ValueError for copy=False in that case."""

    def __init__(self, x):
        self.x = x

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("Unable to avoid copy")
        return np.array([float(v) for v in self.x.to_pylist()])


class CopiesOld(Copies):
    """The same with the signature of NumPy 1, whose __array__ takes no copy."""

    def __array__(self, dtype=None):
        return super().__array__()


class Both(Copies):
    """The same with Arrow's interface."""

    def __arrow_c_array__(self, requested_schema=None):
        return self.x.__arrow_c_array__(requested_schema)


class BothOld(Both, CopiesOld):
    pass


@pytest.mark.parametrize("cls", [Both, BothOld])
def test_arrow_is_used_if_only_the_array_protocol_would_copy(cls):
    x = pa.array([1, 2, 3])
    for copy in (None, False):
        a = ub.asarray(cls(x), copy=copy)
        assert (a._pointer, a.dtype, a.tolist()) == (x.buffers()[1].address, "int64", [1, 2, 3])
    assert ub.asarray(cls(x), copy=True)._pointer != x.buffers()[1].address


@pytest.mark.parametrize("cls", [Copies, CopiesOld, Both, BothOld])
def test_copy_false_never_copies_by_the_array_protocol(cls):
    """Neither protocol can share booleans, which are bits in Arrow."""
    for copy in (None, True):
        assert ub.asarray(cls(pa.array([True, False])), copy=copy).tolist() == [1, 0]
    with pytest.raises(ValueError, match="[Uu]nable to avoid copy|copy=False"):
        ub.asarray(cls(pa.array([True, False])), copy=False)


def test_copy_false_of_record_batches():
    batch = pa.record_batch({"a": [1, None]})
    assert str(ub.asarray(batch, dtype="float64").tolist()) == "[[1.0], [nan]]"
    with pytest.raises(ValueError, match="copy"):
        ub.asarray(batch, dtype="float64", copy=False)
    with pytest.raises(ValueError, match="copy"):
        ub.asarray(pa.record_batch({"a": [1, 2]}), copy=False)


def test_operators_take_arrow_arrays():
    a = ub.asarray([1, 2], device="host")
    assert (a + pa.array([1, 2])).tolist() == [2, 4]
    with pytest.raises(TypeError):
        a + Only(pa.array([1, 2]))
