"""Dictionaries and tensors at random: each is taken or refused with an error of the table, and nothing ends the process."""

import ctypes as ct
import os
import random

import pytest

import capi
import usmbridge as ub
from test_suai_in import Holder, Provider

ROUNDS = int(os.environ.get("USMBRIDGE_FUZZ_ROUNDS", "600"))
ERRORS = (TypeError, ValueError, OverflowError, BufferError, MemoryError, LookupError, AttributeError)


class Raises:
    def __index__(self):
        raise LookupError("mine")

    __bool__ = _get_capsule = __index__


def use(a):
    """Everything that reads the description of an array, or its elements."""
    for f in (lambda: a.__sycl_usm_array_interface__, lambda: ub.from_dlpack(a), lambda: a.__dlpack__(max_version=(1, 0)), a.__dlpack__,
              lambda: a[..., :1], lambda: a[::-1].T, lambda: a.reshape(-1), lambda: memoryview(a), lambda: ub.cute.from_dlpack(a).mark_layout_dynamic()):
        try:
            f()
        except ERRORS:
            pass
    if a.size < 500:
        assert a.copy().shape == a.shape and "Array" in repr(a)


@pytest.mark.parametrize("seed", [1, 2])
def test_dictionaries(dpctl, device, np, seed):
    r = random.Random(seed)
    memories = [t(1024) for t in (dpctl.memory.MemoryUSMShared, dpctl.memory.MemoryUSMDevice, dpctl.memory.MemoryUSMHost)]
    d = dpctl.SyclDevice(device.filter_string)
    q, other, plain = dpctl.SyclQueue(d), dpctl.SyclContext([d]), np.zeros(64)
    sane = [0, 1, 2, 3, 4, 8, 64, 255, 257, -1, -2]
    odd = sane + [1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 64, -(1 << 64), 1 << 200, True, 1.5, float("nan"), "1", b"1", None, Raises(), np.int64(3), [], (), 3j]

    def integer():
        return r.choice(sane if r.random() < 0.6 else odd)

    def sequence():
        return r.choice([tuple, list])(integer() for _ in range(r.choice([0, 1, 1, 2, 2, 3, 64, 65])))

    for _ in range(ROUNDS):
        m = r.choice(memories)
        values = {
            "shape": sequence, "strides": lambda: r.choice([None, sequence()]), "offset": integer, "version": integer,
            "typestr": lambda: r.choice(["<f4", "|u1", "<c16", ">f4", "=f4", "|O8", "V4", "", "<", "<f", "<f" + "9" * 30, "\0", "é", "\ud800", 5, None, b"<f4", "<M8[ns]"]),
            "data": lambda: r.choice([(m._pointer + r.randrange(-9, 1030), False), [m._pointer, True], (plain.ctypes.data, 0), (integer(), integer()), sequence(), integer(), (r.getrandbits(64), True)]),
            "typedescr": lambda: r.choice([[], [("", "<f4")], [("a", "<f4")], [("", "<f4", (2,))], [(5, 5)], [("\ud800", "\ud800")], [()], sequence(), integer()]),
            "syclobj": lambda: r.choice([q, q.sycl_context, other, "cpu", "host", "", "\ud800", "a" * 3000, 5, None, Raises(), Provider(5), Provider(q), q._get_capsule(), other._get_capsule(), object(), plain.__dlpack__(), capi.py.PyCapsule_New(4096, None, None)]),
        }
        keys = {"shape": (4,), "typestr": "<f4"}
        for key in r.choices(list(values), k=r.choice([0, 1, 1, 1, 2, 3])):
            keys[key] = ... if r.random() < 0.1 else values[key]()
        try:
            a = r.choice([ub.from_usm_array_interface, ub.asarray])(Holder(m, **keys))
        except ERRORS:
            continue
        use(a)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("where", ["host", "usm"])
def test_tensors(request, seed, where):
    r = random.Random(seed)
    room = (ct.c_uint64 * 1024)()
    base, dev = ct.addressof(room) + 2048, (1, 0)
    if where == "usm":  # any address may be tried: it is looked up before it is touched
        dev = request.getfixturevalue("device").dlpack_device
        memory = ub.zeros(1024, usm_type="shared")
        base = memory._pointer
    huge = [1 << 31, 1 << 62, -1, -(1 << 63), (1 << 63) - 1]
    for _ in range(ROUNDS):
        dims = r.choice([0, 1, 1, 2, 3, 64])
        wild = huge if r.random() < 0.3 else []
        values = {
            "data": lambda: r.choice([0, base + 1, base + 8] + ([r.getrandbits(64), 1 << 63, (1 << 64) - 4] if where == "usm" else [])),
            "strides": lambda: r.choice([None, tuple(r.choice([0, 1, 2, -1, -2] + wild) for _ in range(dims))]),
            "dtype": lambda: (r.choice([0, 1, 2, 3, 4, 5, 6, 10, 15, 17, 18, 255]), r.choice([0, 1, 4, 6, 8, 16, 32, 64, 128, 255]), r.choice([1, 1, 1, 0, 2, 65535])),
            "device": lambda: r.choice([(14, 77), (14, -1), (0, 0), (-1, -1), (2, 0), (1 << 30, 0)]), "byte_offset": lambda: r.choice([0, 4, 8, 1]),
            "version": lambda: r.choice([(1, 0), (1, 99), (0, 9), (2, 0)]), "flags": lambda: r.choice([0, 1, 2, 4, 7, (1 << 64) - 1]),
            "deleter": lambda: False, "ndim": lambda: r.choice([-1, 65, -(1 << 31), (1 << 31) - 1]), "shape_null": lambda: True,
        }
        keys = {"data": base, "device": dev, "shape": tuple(r.choice([0, 1, 2, 3] + wild) for _ in range(dims)), "versioned": r.random() < 0.5}
        for key in r.choices(list(values), k=r.choice([0, 1, 1, 2])):
            keys[key] = values[key]()
        p = capi.Producer(**keys)
        c = p.capsule()
        name = capi.name(c)
        try:
            a = r.choice([ub.from_dlpack, ub.from_dlpack, ub.cute.from_dlpack])(c)
        except ERRORS:
            assert capi.name(c) == name and p.deleted == 0, keys
            continue
        assert capi.name(c) == b"used_" + name and p.deleted == 0 or not isinstance(a, ub.Array) or a.size == 0, keys
        if isinstance(a, ub.Array) and a.nbytes < 500 and all(abs(s) < 10 for s in a.strides) and a.ndim < 5:
            use(a)
        del a
        for _ in range(3):
            ub.zeros(0, device="host")  # an entry ends what could not end at once
        assert p.deleted == keys.get("deleter", 1), keys
