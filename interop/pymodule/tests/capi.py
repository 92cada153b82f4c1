"""Makes and reads DLPack tensors by hand, with ctypes: a peer without restrictions."""

import contextlib
import ctypes as ct
import sys
import types

VERSIONED, LEGACY = b"dltensor_versioned", b"dltensor"
NAMES = [VERSIONED, LEGACY, b"used_dltensor_versioned", b"used_dltensor", b"dlpack_exchange_api"]

py = ct.pythonapi
py.PyCapsule_New.restype = ct.py_object
py.PyCapsule_New.argtypes = [ct.c_void_p, ct.c_char_p, ct.c_void_p]
py.PyCapsule_GetPointer.restype = ct.c_void_p
py.PyCapsule_GetPointer.argtypes = [ct.py_object, ct.c_char_p]
py.PyCapsule_GetName.restype = ct.c_char_p
py.PyCapsule_GetName.argtypes = [ct.py_object]
py.PyCapsule_SetName.argtypes = [ct.py_object, ct.c_char_p]


class DLTensor(ct.Structure):
    _fields_ = [
        ("data", ct.c_void_p), ("device_type", ct.c_int32), ("device_id", ct.c_int32),
        ("ndim", ct.c_int32), ("code", ct.c_uint8), ("bits", ct.c_uint8), ("lanes", ct.c_uint16),
        ("shape", ct.POINTER(ct.c_int64)), ("strides", ct.POINTER(ct.c_int64)), ("byte_offset", ct.c_uint64),
    ]


DELETER = ct.CFUNCTYPE(None, ct.c_void_p)


class Legacy(ct.Structure):
    _fields_ = [("t", DLTensor), ("ctx", ct.c_void_p), ("deleter", ct.c_void_p)]


class Versioned(ct.Structure):
    _fields_ = [("major", ct.c_uint32), ("minor", ct.c_uint32), ("ctx", ct.c_void_p),
                ("deleter", ct.c_void_p), ("flags", ct.c_uint64), ("t", DLTensor)]


assert (ct.sizeof(DLTensor), ct.sizeof(Legacy), ct.sizeof(Versioned)) == (48, 64, 80)


def c_order(shape):
    strides, n = [], 1
    for extent in reversed(shape):
        strides.append(n)
        n *= max(extent, 1)
    return tuple(reversed(strides))


def name(capsule):
    return py.PyCapsule_GetName(capsule)


def tensor(capsule):
    """Returns the struct of a capsule without taking it. The struct keeps the capsule, which owns its memory."""
    n = name(capsule)
    struct = (Versioned if n == VERSIONED else Legacy).from_address(py.PyCapsule_GetPointer(capsule, n))
    struct.capsule = capsule
    return struct


class Producer:
    """An object with __dlpack__ that exports exactly the given fields. As a C producer does, it lives until its
    deleter is called, even if no Python reference is left."""

    alive = []

    def __init__(self, data=0, shape=(4,), strides="C", dtype=(2, 32, 1), device=(1, 0), byte_offset=0,
                 versioned=True, version=(1, 3), flags=0, deleter=True, ndim=None, keywords=True, shape_null=False):
        self.keep()
        self.deleted = 0
        self.asked = []
        self.keywords = keywords
        self.device = device
        cls = Versioned if versioned else Legacy
        self.name = VERSIONED if versioned else LEGACY
        self.m = m = cls()
        if versioned:
            m.major, m.minor = version
            m.flags = flags
        t = m.t
        t.data, t.device_type, t.device_id = data, *device
        t.ndim = len(shape) if ndim is None else ndim
        t.code, t.bits, t.lanes = dtype
        if strides == "C":
            strides = c_order(shape)
        # Room for 64 of each, so that a valid ndim reads defined values.
        self.shape, self.strides = (ct.c_int64 * 64)(*shape), (ct.c_int64 * 64)(*(strides or ()))
        pointer = ct.POINTER(ct.c_int64)
        t.shape = ct.cast(None if shape_null else self.shape, pointer)
        t.strides = ct.cast(None if strides is None else self.strides, pointer)
        t.byte_offset = byte_offset
        self.callback = DELETER(self.delete)
        if deleter:
            m.deleter = ct.cast(self.callback, ct.c_void_p)

    def keep(self):
        Producer.alive[:] = [p for p in Producer.alive if not p.deleted] + [self]

    def delete(self, address):
        self.deleted += 1

    def capsule(self):
        return py.PyCapsule_New(ct.addressof(self.m), self.name, None)

    def __dlpack__(self, **kwargs):
        self.asked.append(kwargs)
        if kwargs and not self.keywords:
            raise TypeError("__dlpack__() takes no keyword arguments")
        return self.capsule()

    def __dlpack_device__(self):
        return self.device


class ExchangeAPI(ct.Structure):
    _fields_ = [("major", ct.c_uint32), ("minor", ct.c_uint32), ("prev", ct.c_void_p), ("allocate", ct.c_void_p),
                ("from_py", ct.c_void_p), ("to_py", ct.c_void_p), ("borrow", ct.c_void_p), ("stream", ct.c_void_p)]


SET_ERROR = ct.CFUNCTYPE(None, ct.c_void_p, ct.c_char_p, ct.c_char_p)
# PyDLL-style prototypes: they are called with the GIL held, and exceptions pass through.
ALLOCATE = ct.PYFUNCTYPE(ct.c_int, ct.POINTER(DLTensor), ct.POINTER(ct.c_void_p), ct.c_void_p, SET_ERROR)
FROM_PY = ct.PYFUNCTYPE(ct.c_int, ct.py_object, ct.POINTER(ct.c_void_p))
TO_PY = ct.PYFUNCTYPE(ct.c_int, ct.c_void_p, ct.POINTER(ct.py_object))
BORROW = ct.PYFUNCTYPE(ct.c_int, ct.py_object, ct.POINTER(DLTensor))
STREAM = ct.PYFUNCTYPE(ct.c_int, ct.c_int32, ct.c_int32, ct.POINTER(ct.c_void_p))


def exchange(cls):
    """Returns the exchange API that a type publishes."""
    p = py.PyCapsule_GetPointer(cls.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return ExchangeAPI.from_address(p)


class TorchFlags:
    """The flags of a PyTorch tensor, none of them set."""

    requires_grad = False

    def is_conj(self):
        return False

    def is_neg(self):
        return False


@contextlib.contextmanager
def as_torch(cls):
    """Replaces torch.Tensor by cls, the class whose exchange API is used. The module caches facts about classes:
    enter this before it imports the first object of cls."""
    before = sys.modules.get("torch")
    sys.modules["torch"] = types.SimpleNamespace(Tensor=cls)
    try:
        yield
    finally:
        if before is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = before


def table(api):
    """Returns the capsule of an exchange API, as a type publishes it."""
    return py.PyCapsule_New(ct.addressof(api), NAMES[4], None)


def exchanging(from_py, stream=None, **members):
    """Returns a class whose exchange API has these functions. A Producer in the place of a function gives its tensor."""

    def give(x, out):
        out[0] = ct.addressof(from_py.m)
        return 0

    functions = FROM_PY(give if isinstance(from_py, Producer) else from_py), STREAM(stream or (lambda kind, index, out: 0))
    api = ExchangeAPI(1, 3, from_py=ct.cast(functions[0], ct.c_void_p), stream=ct.cast(functions[1], ct.c_void_p))
    return type("Exchanging", (TorchFlags,), {"__dlpack_c_exchange_api__": table(api), "kept": (api, functions), **members})


def delete(address):
    """Runs the deleter of a versioned tensor."""
    DELETER(Versioned.from_address(address).deleter)(address)
