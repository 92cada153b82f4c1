"""asarray of sequences of numbers, typed numbers and arrays, compared with NumPy."""

import itertools

import pytest
from conftest import DTYPES, peer, sycl_device

import usmbridge as ub


def same(np, got, want):
    return got.dtype == want.dtype.name and got.shape == want.shape and np.array_equal(got.asnumpy(), want)


def test_scalars_keep_their_type(np):
    for x, y in itertools.product(DTYPES, DTYPES):
        values = [np.dtype(x).type(1), np.dtype(y).type(0)]
        assert same(np, ub.asarray(values), np.asarray(values)), (x, y)
        assert same(np, ub.asarray([np.ones(2, x), np.zeros(2, y)]), np.asarray([np.ones(2, x), np.zeros(2, y)])), (x, y)
    for values in ([np.float32(1), 2.0], [np.float32(1), 2], [np.float16(1), True], [np.int8(1), 2], [np.uint64(2**63), 1], [np.complex64(1), 1.0], [[np.float32(1)], [np.float32(2)]]):
        assert same(np, ub.asarray(values), np.asarray(values)), values
    z = [np.complex64(1 - 2j), 3j, np.float32(4)]
    assert ub.asarray(z).tolist() == z and ub.asarray(z, dtype="complex64").tolist() == z
    assert ub.asarray([np.uint64(2**64 - 1)]).tolist() == [2**64 - 1] and ub.asarray([np.float32(0.1)]).tolist() == [float(np.float32(0.1))]
    assert ub.asarray([np.int64(3)], dtype="float32").tolist() == [3.0]
    assert ub.asarray([np.float32(-1.5)], dtype="int8").tolist() == [-1]
    with pytest.raises(OverflowError):
        ub.asarray([np.int64(300)], dtype="int8")


def test_types_of_each_number(np):
    """A class whose numbers name different types."""

    class Number:
        def __init__(self, dtype):
            self.dtype = np.dtype(dtype)

        def __float__(self):
            return 0.1

    for types in (["float32", "float64"], ["float64", "float32"], ["float32", "float32"]):
        a = ub.asarray([Number(t) for t in types])
        want = np.result_type(*types)
        assert a.dtype == want.name and a.tolist() == [float(want.type(0.1))] * 2, types


def test_scalars_of_other_types_are_refused(np):
    a = ub.zeros(2, "complex128", device="host")
    for scalar in (np.datetime64("2020-01-01"), np.datetime64("NaT", "s"), np.timedelta64(3, "s"), np.clongdouble(1 + 2j), np.longdouble(1.5)):
        with pytest.raises((TypeError, BufferError)):
            ub.asarray(np.asarray(scalar))
        for use in (ub.asarray, lambda x: ub.asarray([x]), lambda x: ub.asarray([[1.0, x]]), lambda x: ub.asarray(x, dtype="complex128"), lambda x: ub.asarray([x], dtype="int64"),
                    lambda x: ub.asarray(x, copy=False), lambda x: ub.full(8, x), lambda x: ub.full(8, x, "complex128"), lambda x: ub.full_like(a, x),
                    lambda x: ub.asarray([np.asarray([x])]), lambda x: a.__setitem__(0, x), a.fill):
            with pytest.raises(TypeError, match=scalar.dtype.name.split("[")[0]):
                use(scalar)
    assert a.tolist() == [0, 0]


def ways(dtype):
    """Returns functions that write a number as an element and read it."""
    a = ub.zeros(2, dtype, device="host")
    return [lambda x: ub.asarray(x, dtype=dtype).item(), lambda x: ub.asarray([x], dtype=dtype).item(), lambda x: ub.asarray([[x]], dtype=dtype).item(),
            lambda x: ub.full(2, x, dtype)[1].item(), lambda x: ub.full_like(a, x)[1].item(), lambda x: (a.fill(x), a[1].item())[1],
            lambda x: (a.__setitem__(1, x), a[1].item())[1], lambda x: (a.__setitem__(slice(None), x), a[1].item())[1],
            lambda x: (a.__setitem__(slice(None), [0, x]), a[1].item())[1], lambda x: ub.asarray([ub.zeros((), dtype), x], dtype=dtype)[1].item()]


def test_numbers_become_elements_by_one_rule(np):
    """asarray(dtype=), full, fill and assignment: fractions are cut, values out of range are errors."""

    for dtype in ("int8", "int32", "int64", "uint8", "uint64"):
        for value, want in ((1.5, 1), (0.99, 0), (-0.99, 0), (True, 1), (100, 100), (100.9, 100)):
            assert np.asarray(value, dtype=dtype) == want
            assert [way(value) for way in ways(dtype)] == [want] * 10, (dtype, value)
        for value, error in ((float("nan"), ValueError), (float("inf"), OverflowError), (-float("inf"), OverflowError), (1e30, OverflowError), (1 << 70, OverflowError), (1.5j, TypeError)):
            for way in ways(dtype):
                with pytest.raises(error):
                    way(value)
    for value in (300, 300.5, -129.5):
        for way in ways("int8"):
            with pytest.raises(OverflowError, match="int8"):
                way(value)
    for way in ways("uint8"):
        with pytest.raises(OverflowError, match="uint8"):
            way(-1.5)


def test_numpy_scalars_become_elements_by_the_same_rule(np):
    for value, dtype, want in ((np.int64(300), "int16", 300), (np.float64(-1.9), "int8", -1), (np.float32(1.5), "float64", 1.5), (np.uint64(2**64 - 1), "uint64", 2**64 - 1),
                               (np.bool_(True), "int8", 1), (np.int8(-3), "bool", True), (np.complex64(1 - 2j), "complex128", 1 - 2j), (np.float16(0.5), "float16", 0.5)):
        assert [way(value) for way in ways(dtype)] == [want] * 10, (value, dtype)
    for value, dtype, error in ((np.int64(300), "uint8", OverflowError), (np.float64(300), "uint8", OverflowError), (np.float64("nan"), "int32", ValueError),
                                (np.int8(-1), "uint64", OverflowError), (np.float32("inf"), "int64", OverflowError), (np.complex64(1j), "float32", TypeError)):
        for i, way in enumerate(ways(dtype)):
            with pytest.raises(error):
                print(i, value, dtype, way(value))
    # Elements of arrays, 0-d arrays included, are converted as by astype.
    assert ub.asarray(np.asarray(300), dtype="uint8").item() == ub.full(1, np.asarray(300), "uint8")[0].item() == 44


def test_ml_scalars(np):
    ml = peer("ml_dtypes")
    for name, values in (("bfloat16", [1.5, -2]), ("float8_e4m3fn", [0.5, 448]), ("int4", [-8, 7]), ("uint2", [3, 1]), ("float4_e2m1fn", [-6, 0.5])):
        scalars = [getattr(ml, name)(v) for v in values]
        a = ub.asarray(scalars)
        assert a.dtype == name and a.tolist() == values
        assert ub.asarray(scalars[0]).dtype == name and ub.asarray([np.array(values, name)]).dtype == name
    assert ub.asarray([ml.bfloat16(1), np.float32(2)]).dtype == "float32" and ub.asarray([ml.bfloat16(1), 2.0]).dtype == "float64"
    assert ub.asarray([ml.bfloat16(1), np.float16(1)]).dtype == "float32"
    for mixed in ([ml.float8_e4m3fn(1), np.float16(1)], [ml.float8_e4m3fn(1), ml.int4(1)], [ml.float8_e4m3fn(1), ml.float8_e5m2(1)]):
        with pytest.raises(TypeError, match="dtype="):
            ub.asarray(mixed)
        assert ub.asarray(mixed, dtype="float64").tolist() == [1.0, 1.0]


def test_lists_of_own_arrays(np):
    """An array and a list of its shape are equivalent anywhere in a sequence."""
    x = np.arange(6, dtype="int32").reshape(2, 3)
    f = np.asarray([0.5, 1.5, 2.5], "float32")
    for where in (dict(device="host"), dict(device=sycl_device()), dict(device=sycl_device(), usm_type="shared")):
        a, g = ub.asarray(x, **where), ub.asarray(f, **where)
        for own in (
            lambda a, f: [a, a], lambda a, f: [a[0], a[1, ::-1]], lambda a, f: (a.T,), lambda a, f: [[a], [a]], lambda a, f: [a[0, 0], a[1, 1]], lambda a, f: [a[0, 0], 5],
            lambda a, f: [a[0], x[1]], lambda a, f: [a[:0], a[:0]], lambda a, f: [a[0], [7, 8, 9]], lambda a, f: [[7, 8, 9], a[1]], lambda a, f: [a, [[7, 8, 9], a[0]]],
            lambda a, f: [[a[0], (7, 8, 9)], a, [[1, 2, a[1, 1]], a[0, ::-1]]], lambda a, f: [[[1, 2, 3]], a[:1]], lambda a, f: [f, [1, 2, 3]],
            lambda a, f: [f, [1.5, np.float32(2), True]], lambda a, f: [[1, a[0, 0]], [2, 3]], lambda a, f: [a[0, :0], []], lambda a, f: [[], a[0, :0]],
            lambda a, f: [a[:, :0], [[], []]],
        ):
            b, want = ub.asarray(own(a, g)), np.asarray(own(x, f))
            assert same(np, b, want) and b.usm_type == a.usm_type and b.device == a.device, (where, want)
        b = ub.asarray([a, a], dtype="float64", device="host")
        assert b.dtype == "float64" and b.usm_type is None and b.shape == (2, 2, 3)
        assert ub.asarray([a, a.astype("float32")]).dtype == "float64" and ub.asarray([a], copy=True).shape == (1, 2, 3)
        assert ub.asarray([a.astype("int4"), a.T.astype("int4").T]).tolist() == [x.tolist(), x.tolist()]
        assert ub.asarray([[0.5, 1.5, 2.5], a[0].astype("int4")], dtype="int4").tolist() == [[0, 1, 2], [0, 1, 2]]
        b = ub.zeros((2, 3), "float64", **where)
        b[...] = [a[0], [0.5, 1.5, 2.5]]
        assert b.tolist() == [[0, 1, 2], [0.5, 1.5, 2.5]]
        for bad in ([a, a[0]], [a, 1], [a, a.T], [[a], a], [a[0], [1, 2]], [a[0], [1, 2, [3]]], [[1, 2, [3]], a[0]], [a[:0], []], [[], a[:0]], [a, "x"], [a, None]):
            with pytest.raises((ValueError, TypeError)):
                ub.asarray(bad)
        with pytest.raises(ValueError, match="copy=False"):
            ub.asarray([a, a], copy=False)
        for bad, dtype in (([a.astype("complex64")], "float32"), ([a[0], [1, 2, np.complex64(1j)]], "int8"), ([a[0], [1, 2, np.complex64(1j)]], "float32")):
            with pytest.raises(TypeError, match="real"):
                ub.asarray(bad, dtype=dtype)
    deep = a
    for _ in range(62):
        deep = [deep]
    assert ub.asarray(deep).ndim == 64
    with pytest.raises(ValueError):
        ub.asarray([deep])


def test_sequences_of_other_arrays(np, dpt):
    assert same(np, ub.asarray([memoryview(b"ab"), bytearray(b"cd")]), np.array([[97, 98], [99, 100]], "uint8"))
    b = ub.asarray([dpt.asarray([1, 2]), dpt.asarray([3, 4])])
    assert b.tolist() == [[1, 2], [3, 4]] and b.usm_type == "device"
    big = np.arange(3, dtype=">i4")
    assert ub.asarray([big, big]).tolist() == [[0, 1, 2], [0, 1, 2]]  # no protocol supports it, so it is read number by number
    assert same(np, ub.asarray([range(3), (1, 2, 3)]), np.array([[0, 1, 2], [1, 2, 3]]))


def test_a_leaf_is_read_once(np):
    asked = []

    class Producer:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            raise AssertionError("has memory")

        def __dlpack__(self, **kw):
            asked.append(kw)
            return np.arange(2.0).__dlpack__(**kw)

        def __dlpack_device__(self):
            return 1, 0

    assert ub.asarray([Producer(), Producer()]).tolist() == [[0, 1], [0, 1]] and len(asked) == 2

    class Failing(Producer):
        def __dlpack__(self, **kw):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        ub.asarray([Failing()])

    class Number:
        dtype = property(lambda self: (_ for _ in ()).throw(LookupError("dtype")))

        def __float__(self):
            return 1.0

    with pytest.raises(LookupError, match="dtype"):
        ub.asarray([Number()])


def test_objects_with_numpys_own_protocols(np):
    x = np.arange(6.0).reshape(2, 3)

    def array_of(value):
        return type("Array", (), {"__array__": lambda self, dtype=None, copy=None: value()})

    for cls in (type("Interface", (), {"__array_interface__": property(lambda self: x.__array_interface__)}),
                type("Struct", (), {"__array_struct__": property(lambda self: x.__array_struct__)}), array_of(lambda: x)):
        o = cls()
        a = ub.asarray(o)
        assert a._pointer == x.ctypes.data and a.shape == (2, 3) and not a.readonly and ub.asarray(o, copy=False)._pointer == a._pointer
        del o
        assert a.tolist() == x.tolist() and ub.asarray(cls(), dtype="int8").tolist() == x.tolist()
        b = ub.asarray([cls(), cls()])
        assert b.shape == (2, 2, 3) and b.dtype == "float64"
        z = ub.zeros((2, 3))
        z[...] = cls()
        assert z.tolist() == x.tolist()
    assert ub.asarray(array_of(lambda: np.arange(3))()).tolist() == [0, 1, 2]
    n = np.array([1, 2], peer("ml_dtypes").bfloat16)
    assert ub.asarray(array_of(lambda: n)()).dtype == "bfloat16"
    for bad, error in ((lambda: "text", TypeError), (lambda: None, TypeError), (lambda: {}["mine"], LookupError)):
        with pytest.raises((error, ValueError, BufferError)):
            ub.asarray(array_of(bad)())

    class Strange:
        __array_interface__ = {"version": 3, "shape": (2,), "typestr": "|O", "data": (8, False)}

    with pytest.raises((TypeError, ValueError, BufferError)):
        ub.asarray(Strange())


def test_numbers_of_numpy_are_numbers(np):
    """They are in new memory in the default place, as Python's numbers."""
    for name in DTYPES:
        x = np.dtype(name).type(1)
        for where in ({}, dict(device="host")):
            a, b = ub.asarray(x, **where), ub.asarray(1.0, **where)
            assert a.dtype == name and a.shape == () and not a.readonly and (a.usm_type, a.device) == (b.usm_type, b.device)
            a[...] = 0
            assert a.item() == 0 and x == 1
    with pytest.raises(ValueError):
        ub.asarray(np.float64(1), copy=False)


@pytest.mark.parametrize("numbers", [[2**63, -1], [2**64, 0], [-(2**63) - 1], -(2**70)])
def test_integers_of_no_integer_type(np, numbers):
    with pytest.raises(OverflowError, match='dtype="float64"'):
        ub.asarray(numbers)
    assert np.array_equal(ub.asarray(numbers, dtype="float64").asnumpy(), np.asarray(numbers, "float64"))
