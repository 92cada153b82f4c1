"""Producers whose fields change during an import: when a chosen one of their methods is called, or by another thread.

A producer has two states. Any mixture of their fields describes elements inside the window, or must be refused. An
imported array must consist of fields of the two states, be consistent, and lie in the window."""

import contextlib
import ctypes as ct
import math
import sys
import threading

import capi
import usmbridge as ub
from robust import memory, oracles, producers, strategies

ERRORS = (TypeError, ValueError, OverflowError, BufferError, LookupError, AttributeError, MemoryError)
AT = 1024
pointer = ct.POINTER(ct.c_int64)

# Writes without the GIL, word by word as a producer does. A sanitizer's memmove copies bytes, and half-written
# pointers would make the test invalid.
wmemmove = ct.CDLL(None).wmemmove
wmemmove.argtypes, wmemmove.restype = [ct.c_void_p, ct.c_void_p, ct.c_size_t], ct.c_void_p


@contextlib.contextmanager
def another_thread(step, ignored=ERRORS):
    """Runs step again and again beside the caller's block, on a thread that gets the GIL often."""
    stop, broken, interval = threading.Event(), [], sys.getswitchinterval()

    def run():
        while not stop.is_set() and not broken:
            try:
                step()
            except ignored:
                pass
            except BaseException as error:
                broken.append(error)

    thread = threading.Thread(target=run)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    if broken:
        raise broken[0]


def write(at, what, size):
    wmemmove(at, what, size // ct.sizeof(ct.c_wchar))


def raw(address):
    return ct.cast(address, pointer)


class Struct:
    """A managed tensor with two states. The second deleter and the second shape are separate objects too."""

    FIRST = {**strategies.TENSOR, "at": AT, "strides": (3, 1)}

    def __init__(self, **fields):
        self.tensor = producers.Tensor({**self.FIRST, **fields})
        self.m, self.t = self.tensor.m, self.tensor.m.t
        shape, strides = self.tensor.e["shape"], self.tensor.e["strides"] or ()
        for array, values in ((self.tensor.shape, shape), (self.tensor.strides, strides)):
            for i in range(len(values), 64):
                array[i] = 1
        self.other_shape, self.other_strides = (ct.c_int64 * 64)(4, 2, *[1] * 62), (ct.c_int64 * 64)(1, 4, *[1] * 62)
        self.huge = (ct.c_int64 * 64)(*[1 << 61] * 64)
        self.others = 0
        self.second = capi.DELETER(self.delete)
        self.before = bytes(self.m)

    def delete(self, address):
        self.others += 1

    @property
    def deleted(self):
        return self.tensor.deleted + self.others

    def back(self):
        write(ct.addressof(self.m), self.before, len(self.before))

    def change(self, what):
        m, t = self.m, self.t
        versioned = isinstance(m, capi.Versioned)
        {
            "ndim 64": lambda: setattr(t, "ndim", 64), "ndim 0": lambda: setattr(t, "ndim", 0), "ndim -1": lambda: setattr(t, "ndim", -1),
            "ndim 65": lambda: setattr(t, "ndim", 65), "ndim huge": lambda: setattr(t, "ndim", (1 << 31) - 1),
            "shape": lambda: setattr(t, "shape", raw(ct.addressof(self.other_shape))),
            "extents": lambda: write(self.tensor.shape, self.other_shape, 512), "shape huge": lambda: setattr(t, "shape", raw(ct.addressof(self.huge))),
            "extents huge": lambda: write(self.tensor.shape, self.huge, 512), "shape NULL": lambda: setattr(t, "shape", raw(None)),
            "strides": lambda: setattr(t, "strides", raw(ct.addressof(self.other_strides))), "strides NULL": lambda: setattr(t, "strides", raw(None)),
            "strides huge": lambda: setattr(t, "strides", raw(ct.addressof(self.huge))), "data": lambda: setattr(t, "data", memory.window().address + AT + 64),
            "data NULL": lambda: setattr(t, "data", None), "data odd": lambda: setattr(t, "data", memory.window().address + AT + 1),
            "offset": lambda: setattr(t, "byte_offset", 8), "offset huge": lambda: setattr(t, "byte_offset", (1 << 64) - 8),
            "dtype": lambda: (setattr(t, "code", 0), setattr(t, "bits", 16)), "dtype other": lambda: (setattr(t, "code", 99), setattr(t, "bits", 255)),
            "lanes": lambda: setattr(t, "lanes", 4), "device": lambda: setattr(t, "device_type", 2), "oneapi": lambda: setattr(t, "device_type", 14),
            "device id": lambda: setattr(t, "device_id", -1), "deleter": lambda: setattr(m, "deleter", ct.cast(self.second, ct.c_void_p)),
            "flags": lambda: versioned and setattr(m, "flags", 5), "version": lambda: versioned and setattr(m, "major", 2),
        }[what]()


FIELDS = ["ndim 64", "ndim 0", "ndim -1", "ndim 65", "ndim huge", "shape", "extents", "shape huge", "extents huge", "shape NULL", "strides", "strides NULL",
          "strides huge", "data", "data NULL", "data odd", "offset", "offset huge", "dtype", "dtype other", "lanes", "device", "oneapi", "device id", "deleter",
          "flags", "version"]


def check_array(a, about, base=None, size=None):
    """Checks that a is consistent and that all its elements are in the window, or in size bytes at base."""
    count = math.prod(a.shape)
    oracles.equal((a.size, a.ndim, len(a.strides)), (count, len(a.shape), len(a.shape)), "the array and its shape", about)
    if any(not 0 <= n <= 8 for n in a.shape):
        raise AssertionError(f"an extent that neither state has: {a.shape} of {about!r}")
    bits = a.itemsize * 8
    oracles.equal(a.nbytes, count * bits // 8, "bytes", about)
    if not count:
        return
    base, size = (memory.window().address, memory.window().size) if base is None else (base, size)
    lo, hi = oracles.span(a.shape, a.strides, bits)
    if not base <= a._pointer + lo <= a._pointer + hi <= base + size:
        raise AssertionError(f"outside the memory: {a.shape, a.strides} at {a._pointer - base} of {about!r}")
    if a.usm_type not in (None, "host", "shared"):
        return
    facts = oracles.Facts(a.shape, a.strides, str(a.dtype), a._pointer, None, bits)
    c = ub.from_dlpack(a, device="host").copy()
    oracles.equal(int.from_bytes(ct.string_at(c._pointer, c.nbytes), "little"), facts.elements(ct.string_at), "elements", about)


def check_cute(t, about):
    oracles.equal((len(t.shape), len(t.stride)), (len(t.stride), len(t.shape)), "rank", about)
    text = t.layout.replace(",)", ")")
    oracles.equal(text.count(","), 2 * max(0, len(t.shape) - 1), "layout", (text, about))
    if any(not 0 <= n <= 8 for n in t.shape) or any(abs(n) > 64 for n in t.stride):
        raise AssertionError(f"modes that neither state has: {t.layout} of {about!r}")


class CallHook:
    """Foreign code calls it. It counts the calls and makes the change at the k-th."""

    def __init__(self, k, change):
        self.k, self.change, self.calls, self.busy = k, change, 0, False

    def __call__(self):
        if self.busy:
            return
        self.busy = True
        try:
            if self.calls == self.k:
                self.change()
        finally:
            self.calls += 1
            self.busy = False


def watched(hook, name, members):
    """Returns a new type and an instance of it. Each read of an attribute of either calls the hook."""

    class Meta(type):
        def __getattribute__(cls, key):
            hook()
            return super().__getattribute__(key)

    def getattribute(self, key):
        hook()
        return object.__getattribute__(self, key)

    module, _, qualname = name.rpartition(".")
    return Meta(qualname, (), {"__getattribute__": getattribute, "__module__": module, "__qualname__": qualname, **members})()


class Key(str):
    """Equal to a key and with its hash, so that each lookup of the key calls it."""

    hook = None

    def __eq__(self, other):
        if self.hook:
            self.hook()
        return str.__eq__(self, other)

    def __hash__(self):
        return str.__hash__(self)


class Integer:
    def __init__(self, hook, value):
        self.hook, self.value = hook, value

    def __index__(self):
        self.hook()
        return self.value


class Truth(Integer):
    def __bool__(self):
        self.hook()
        return bool(self.value)
