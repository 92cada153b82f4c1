"""The structs of the Arrow C data interface and their capsules, by ctypes. Tests use them for cases that
pyarrow cannot produce or read: moved children, other devices, inconsistent structs."""

import ctypes
import struct as packing

import capi


class Schema(ctypes.Structure):
    pass


class Memory(ctypes.Structure):
    pass


Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(Schema))), ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))), ("private", ctypes.c_void_p),
]
Memory._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64), ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Memory))), ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(Memory))), ("private", ctypes.c_void_p),
]


class DeviceMemory(ctypes.Structure):
    _fields_ = [("array", Memory), ("device_id", ctypes.c_int64), ("device_type", ctypes.c_int32),
                ("sync_event", ctypes.c_void_p), ("reserved", ctypes.c_int64 * 3)]


def struct(capsule, name, kind):
    return kind.from_address(capi.py.PyCapsule_GetPointer(capsule, name))


class Producer:
    """Produces int32 [0, …, 11] as values, lists of three or tensors. Entries of say replace fields of the structs. It
    counts how often each struct is released."""

    def __init__(self, kind="values", **say):
        self.released = {}
        self.numbers = (ctypes.c_int32 * 256)(*range(12))  # room for wider types
        self.bits = (ctypes.c_uint8 * 2)(0xFF, 0xFF)
        values = (ctypes.c_void_p * 2)(None, ctypes.addressof(self.numbers))
        none = (ctypes.c_void_p * 1)(None)
        self.keep = [values, none]
        self.schema, self.memory = Schema(), DeviceMemory()
        self.memory.device_type, self.memory.device_id = 1, -1
        child_schema, child = Schema(), Memory()
        leaf_schema, leaf = (self.schema, self.memory.array) if kind == "values" else (child_schema, child)
        self.describe("leaf", leaf_schema, leaf, b"i", 12, values, 2)
        if kind != "values":
            self.describe("top", self.schema, self.memory.array, b"+w:3", 4, none, 1)
            for top, below in ((self.schema, child_schema), (self.memory.array, child)):
                pointers = (ctypes.POINTER(type(below)) * 1)(ctypes.pointer(below))
                self.keep += [below, pointers]
                top.n_children, top.children = 1, pointers
        if kind == "tensors":
            self.say_metadata(self.schema, say.pop("name", b"arrow.fixed_shape_tensor"), say.pop("text", b'{"shape":[3]}'))
        self.device = say.pop("device", False)
        self.names = say.pop("names", (b"arrow_schema", b"arrow_device_array" if self.device else b"arrow_array"))
        for key, value in say.items():
            where, field = key.split("_", 1)
            thing = {"schema": self.schema, "array": self.memory.array, "device": self.memory,
                     "leaf": leaf, "leafschema": leaf_schema}[where]
            if field == "nothing":
                ctypes.memmove(ctypes.byref(thing, getattr(type(thing), value).offset), bytes(8), 8)
            elif field == "metadata":
                self.keep.append(ctypes.create_string_buffer(value, len(value)))
                thing.metadata = ctypes.addressof(self.keep[-1])
            elif field == "buffers":
                self.keep.append((ctypes.c_void_p * len(value))(*value))
                thing.buffers = self.keep[-1]
            else:
                setattr(thing, field, value)

    def describe(self, name, schema, array, form, length, buffers, n):
        def releaser(kind, what):
            def release(p):
                self.released[what] = self.released.get(what, 0) + 1
                ctypes.memmove(ctypes.byref(p.contents, kind.release.offset), bytes(8), 8)

            call = dict(kind._fields_)["release"](release)
            self.keep.append(call)
            return call

        schema.format, schema.name, schema.release = form, b"", releaser(Schema, name + " schema")
        array.length, array.n_buffers, array.buffers = length, n, buffers
        array.release = releaser(Memory, name + " array")

    def say_metadata(self, schema, name, text):
        parts = [b"ARROW:extension:name", name, b"ARROW:extension:metadata", text]
        raw = packing.pack("i", 2) + b"".join(packing.pack("i", len(p)) + p for p in parts)
        self.keep.append(ctypes.create_string_buffer(raw, len(raw)))
        schema.metadata = ctypes.addressof(self.keep[-1])

    def __getattr__(self, name):
        if name != ("__arrow_c_device_array__" if self.__dict__.get("device") else "__arrow_c_array__"):
            raise AttributeError(name)
        thing = self.memory if self.device else self.memory.array
        # Without destructors: the structs belong to this object.
        return lambda: tuple(capi.py.PyCapsule_New(ctypes.addressof(t), name, None) for t, name in zip((self.schema, thing), self.names))
