"""DLPack producers made of examples: structs byte by byte, and deleters and destructors of every kind."""

import collections
import contextlib
import ctypes as ct
import gc
import sys

import capi
from robust import memory
import usmbridge as ub

DESTRUCTOR = ct.PYFUNCTYPE(None, ct.c_void_p)
capsule_name = ct.PYFUNCTYPE(ct.c_char_p, ct.c_void_p)(("PyCapsule_GetName", ct.pythonapi))
capsule_new = ct.PYFUNCTYPE(ct.py_object, ct.c_void_p, ct.c_char_p, ct.c_void_p)(("PyCapsule_New", ct.pythonapi))


class Tensor(capi.Producer):
    """One managed tensor in memory of its own. It stays for a while after its check, so that a dangling pointer does not
    reach another object at its address. If a capsule of it is refused, it ends at once, by a destructor in Python."""

    recent = collections.deque(maxlen=4096)

    def __init__(self, e):
        self.e = e
        base, _ = memory.base(e["place"])
        self.data = base + e["at"] if e["data"] is None else e["data"]
        self.ndim = len(e["shape"]) if e["ndim"] is None else e["ndim"]
        device = memory.dl_device(e["place"]) if e["device"] is None else e["device"]
        super().__init__(self.data, e["shape"], e["strides"], e["dtype"], device, e["byte_offset"], e["versioned"], e["version"], e["flags"],
                         e["deleter"] != "null", self.ndim, shape_null=e["shape_null"])
        self.destructor = DESTRUCTOR(self.destroy)

    def keep(self):
        self.recent.append(self)

    def fields(self):
        """Returns the contents of the struct as the model reads them."""
        e = self.e
        return dict(e, data=self.data, device=self.device, ndim=self.ndim, shape=None if e["shape_null"] else tuple(self.shape),
                    strides=None if e["strides"] is None else tuple(self.strides))

    def delete(self, address):
        self.deleted += 1
        if address != ct.addressof(self.m):
            self.deleted += 100
        what = self.e["deleter"]
        if what == "reenter":
            a = ub.from_dlpack(capi.Producer(memory.window().address, (4,)))
            ub.zeros((2, 2), device="host")
            del a
        elif what == "collect":
            gc.collect(0)
        elif what == "raise":
            raise LookupError("a deleter's own")

    def destroy(self, capsule):
        """The destructor of a typical producer: a capsule that was not consumed still owns its tensor."""
        if capsule_name(capsule) == self.name and self.m.deleter:
            capi.DELETER(self.m.deleter)(ct.addressof(self.m))

    def capsule(self):
        return capsule_new(ct.addressof(self.m), self.name, ct.cast(self.destructor, ct.c_void_p) if self.e["destructor"] else None)

    def check_ended(self, taken, capsules):
        """Checks that the tensor ended exactly once, or never if its owner does nothing."""
        if not self.m.deleter:
            want = 0
        elif taken:
            want = 1
        else:
            want = capsules if self.e["destructor"] else 0
        if self.deleted != want:
            raise AssertionError(f"the deleter ran {self.deleted} times, want {want} for {self.e!r}")


@contextlib.contextmanager
def unraisable():
    """Collects exceptions of callbacks that no caller receives."""
    seen = []
    old, sys.unraisablehook = sys.unraisablehook, lambda u: seen.append(u.exc_type)
    try:
        yield seen
    finally:
        sys.unraisablehook = old
