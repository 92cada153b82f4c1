"""Examples that failed once, as the hunts gave them."""

import hashlib

import pytest

import usmbridge as ub
from robust import engine, memory, producers, test_switches
from robust.test_dictionaries import Holder

TENSOR = {"place": "window", "versioned": False, "version": (1, 3), "flags": 0, "at": 0, "data": None, "byte_offset": 0, "device": None, "ndim": None,
          "dtype": (2, 32, 1), "shape": (2,), "strides": None, "shape_null": False, "deleter": "count", "destructor": True}
BUFFER = {"format": b"f", "itemsize": 4, "ndim": 1, "shape": (2,), "shape_null": False, "strides": None, "len": 8, "readonly": 0, "suboffsets": False,
          "at": 0, "null": False}

FOUND = [
    # an error of ours met the producer's destructor, and was lost
    ("dlpack", {"tensor": {**TENSOR, "shape": (0,), "shape_null": True}, "via": "object", "end": "del"}),
    # the error for an empty tensor on a device that does not exist
    ("dlpack", {"tensor": {**TENSOR, "data": 0, "device": (14, 1), "shape": (0,)}, "via": "object", "end": "del"}),
    # complex numbers of integers
    ("exporters", {**BUFFER, "format": b"ZB", "itemsize": 8, "len": 16}),
    # a negative number of dimensions
    ("exporters", {**BUFFER, "ndim": -1}),
    # type strings and names that go on behind a NUL
    ("dictionaries", {"memory": "shared", "owner": "unknown", "keys": {"typestr": "\0f4"}, "function": "from_usm_array_interface"}),
    ("texts", {"what": "dtype", "text": "float64\0x"}),
    ("texts", {"what": "dtype", "text": "<u1\0"}),
    ("texts", {"what": "order", "text": "C\0x"}),
]


@pytest.mark.parametrize("i", range(len(FOUND)))
def test_again(i):
    name, example = FOUND[i]
    if memory.sycl() is None and (name == "dictionaries" or "device" in example):
        pytest.skip("no SYCL device")
    engine.load()[name].run(example)


def test_bytes_of_any_shape():
    """A consumer that asks for no shape sees one run of bytes."""
    for shape in ((), (4,), (4, 4), (2, 2, 2)):
        a = ub.zeros(shape, "float64", device="host")
        assert hashlib.sha256(a).digest() == hashlib.sha256(bytes(a.nbytes)).digest()


@pytest.mark.skipif(memory.sycl() is None, reason="no SYCL device")
@pytest.mark.parametrize("key", ["shape", "strides", "offset"])
def test_an_error_in_a_look_up_ends_the_look_ups(key):
    """A key of the dictionary raises while it is compared; no other is compared after that."""
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


def test_the_paths_run_foreign_code():
    """Each path of test_switches gets somewhere when nobody disturbs it."""
    with producers.unraisable():
        for name, path in test_switches.PATHS.items():
            p = path(-1, "collect")
            assert p.run() is not None, name
            p.moment.busy = True
            p.capsules.clear()
            memory.settled()
