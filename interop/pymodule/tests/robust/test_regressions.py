"""Examples that failed in hunts; each is a regression test."""

import pytest

import usmbridge as ub
from robust import engine, memory, producers, strategies
from robust.test_dictionaries import Holder

TENSOR = {**strategies.TENSOR, "versioned": False, "shape": (2,)}
BUFFER = {"format": b"f", "itemsize": 4, "ndim": 1, "shape": (2,), "shape_null": False, "strides": None, "len": 8, "readonly": 0, "suboffsets": False,
          "at": 0, "null": False}

FOUND = [
    # the producer's destructor lost the module's error
    ("dlpack", {"tensor": {**TENSOR, "shape": (0,), "shape_null": True}, "via": "object", "end": "del"}),
    # the error for an empty tensor on a device that does not exist
    ("dlpack", {"tensor": {**TENSOR, "data": 0, "device": (14, 1), "shape": (0,)}, "via": "object", "end": "del"}),
    # complex numbers of integers
    ("exporters", {**BUFFER, "format": b"ZB", "itemsize": 8, "len": 16}),
    # single bytes have no order
    ("exporters", {**BUFFER, "format": b"!b", "itemsize": 1, "len": 2}),
    # a negative number of axes
    ("exporters", {**BUFFER, "ndim": -1}),
    # the stride of one element after a mark of compact modes
    ("cute", {"tensor": {**TENSOR, "shape": (1, 2, 2), "strides": (2, 1, 2)}, "options": {}, "function": "from_dlpack", "operations": (("mark_compact_shape_dynamic", {"mode": 1}),)}),
]


@pytest.mark.parametrize("i", range(len(FOUND)))
def test_found_examples(i):
    name, example = FOUND[i]
    if memory.sycl() is None and "device" in example:
        pytest.skip("no SYCL device")
    engine.load()[name].run(example)


@pytest.mark.skipif(memory.sycl() is None, reason="no SYCL device")
@pytest.mark.parametrize("key", ["shape", "strides", "offset"])
def test_an_error_in_a_look_up_ends_the_look_ups(key):
    """If a key of the dictionary raises while it is compared, no other key is compared."""
    late = []

    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            if late:
                late.append(self)
            if str.__eq__(self, key) and str.__eq__(self, other):
                late.append(self)
                raise LookupError("mine")
            return str.__eq__(self, other)

    m = memory.usm("shared", 1024)
    h = Holder()
    d = {"version": 1, "data": (m._pointer, False), "shape": (4,), "strides": (1,), "offset": 0, "typestr": "<f4", "syclobj": memory.queue()}
    h.__sycl_usm_array_interface__ = {Key(k): v for k, v in d.items()}
    with pytest.raises(LookupError, match="mine"):
        ub.from_usm_array_interface(h)
    assert len(late) == 1


def test_a_number_whose_type_is_none():
    """An attribute dtype of None means no type: no error without an exception."""

    class Number:
        dtype = None

        def __float__(self):
            return 1.5

    assert ub.asarray([Number(), 2]).tolist() == [1.5, 2.0]
    assert ub.full(2, Number()).tolist() == [1.5, 1.5]
    with pytest.raises(TypeError, match="dtype must be"):
        ub._unpickle(b"", None, (0,), "C", False, None, None, False)


def test_an_error_ends_the_reading_of_a_pickle():
    """If the first of two truth values raises, the second is not evaluated with that exception set."""
    asked = []

    class Flag:
        def __bool__(self):
            asked.append(self)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        ub._unpickle(b"", "int8", (0,), "C", Flag(), None, None, Flag())
    assert len(asked) == 1


def test_keywords_that_change_while_they_are_read():
    """__array_function__ iterates over lists, whose iteration adds and removes keywords."""
    a = ub.zeros(2, device="host")
    kwargs = {}

    class Clears(list):
        def __iter__(self):
            kwargs.clear()
            return iter([bytearray(56) for _ in range(50)] + [a])

    class Adds(list):
        def __iter__(self):
            for i in range(4):
                kwargs["".join(["more", str(i)])] = Clears()
            return iter([a])

    def answer(*args, **kw):
        return sorted(kw)

    for _ in range(50):
        kwargs.clear()
        kwargs["".join(["fir", "st"])] = Adds()
        for i in range(3):
            kwargs["".join(["k", str(i)])] = i
        assert a.__array_function__(answer, (ub.Array,), (a,), kwargs) == ["first", "k0", "k1", "k2"]


def test_integers_beyond_int64():
    """NumPy makes uint64 of them if none is negative."""
    assert ub.asarray([2**63, 1]).tolist() == [2**63, 1] and ub.asarray(2**64 - 1).dtype == "uint64" and ub.full((), 2**63).item() == 2**63
    for no in ([2**63, -1], [2**64], -(2**63) - 1):
        with pytest.raises(OverflowError):
            ub.asarray(no)
    with pytest.raises(OverflowError):
        ub.asarray([2**63], dtype="int64")


def test_strides_that_lead_nowhere():
    """Strides of an array without elements can be any numbers; they are not multiplied (UBSan)."""
    for shape in ((0, 3), (3, 0), (3, 0, 2)):
        a = ub.from_dlpack(producers.Tensor({**TENSOR, "versioned": True, "shape": shape, "strides": (1 << 62,) * len(shape)}).capsule())
        want = [] if shape[0] == 0 else [[]] * 3
        assert a.tolist() == a.T.T.tolist() == a[..., ::-1].tolist() == a.copy().tolist() == want and a.view("int16").size == 0
        assert repr(a) and a.astype("float64").shape == shape and ub.asarray([a]).shape == (1, *shape)
        with pytest.raises(IndexError):
            a.item(*[2] * len(shape))
        a[...] = 1
        a.fill(2)
        assert a.asnumpy().shape == shape and a[shape[0] // 3 :].nbytes == 0
