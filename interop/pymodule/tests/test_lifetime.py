"""Process exit, fork and finalization, in interpreters of their own."""

from conftest import run


def test_plain_exit():
    assert run("a = ub.zeros(3); print(a.asnumpy is not None)") == "True\n"
    assert run("print(ub)").startswith("<module 'usmbridge'")
    run("sys.exit(7)", 7)


def test_exit_with_everything_alive(np):
    """Arrays, tensors and owners of each kind exist until the interpreter ends."""
    run("""
import atexit, numpy as np
x = np.arange(10.)
keep = [ub.from_dlpack(x), ub.asarray(bytearray(10)), ub.zeros(5), np.from_dlpack(ub.zeros(4, device="host")), memoryview(ub.zeros(4, device="host"))]
caps = [a.__dlpack__(max_version=(1, 0)) for a in keep[:3]]
class Late:
    def __init__(self, a): self.a = a
    def __del__(self):
        self.a.__dlpack__(max_version=(1, 0)); self.a[1:]; self.a.shape
sys.late = Late(keep[0]); sys.late2 = Late(keep[2])
atexit.register(lambda: keep[0].shape)
import builtins
builtins.keep = keep; builtins.caps = caps; builtins.views = [a[1:] for a in keep[:3]]
""")


def test_deleters_after_python_has_gone(np):
    """A C library holds a tensor beyond the end of the interpreter."""
    run("""
import ctypes as ct, atexit, numpy as np
a = ub.from_dlpack(np.arange(4.))
cap = a.__dlpack__(max_version=(1, 0))
ct.pythonapi.PyCapsule_GetPointer.restype = ct.c_void_p
ct.pythonapi.PyCapsule_GetPointer.argtypes = [ct.py_object, ct.c_char_p]
p = ct.pythonapi.PyCapsule_GetPointer(cap, b"dltensor_versioned")
ct.pythonapi.PyCapsule_SetName.argtypes = [ct.py_object, ct.c_char_p]
name = b"used_dltensor_versioned"
ct.pythonapi.PyCapsule_SetName(cap, name)
libc = ct.CDLL(None)
deleter = ct.c_void_p.from_address(p + 16).value
# void (*)(int, void *) of on_exit fits a deleter only by a shim: atexit order is enough here,
# the C library's exit handlers run after Py_FinalizeEx
libc.on_exit.argtypes = [ct.c_void_p, ct.c_void_p]
import mmap
m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
m.write(bytes([0x48, 0x89, 0xf7, 0x48, 0xb8]) + deleter.to_bytes(8, "little") + bytes([0xff, 0xe0]))  # mov rdi,rsi; mov rax,deleter; jmp rax
buf = (ct.c_char * 4096).from_buffer(m)
import builtins
builtins.kept = (m, buf, name)
ct.pythonapi.Py_IncRef(ct.py_object(m)); ct.pythonapi.Py_IncRef(ct.py_object(buf))
assert libc.on_exit(ct.addressof(buf), p) == 0
del a, cap
print("ok")
""")


def test_fork(np):
    out = run("""
import numpy as np, warnings
warnings.simplefilter("ignore")
x = np.arange(6.)
a, h = ub.from_dlpack(x), ub.zeros((2, 3), device="host")
u = None
if any(d.filter_string != "host" for d in ub.devices()):
    u = ub.zeros(4, usm_type="shared")
v = a[1:]
pid = os.fork()
if pid == 0:
    # functions in C alone still work
    assert np.from_dlpack(h).shape == (2, 3) and np.from_dlpack(a).tolist() == list(range(6))
    b = ub.from_dlpack(np.arange(3.)); b = b[::-1]; c = b.__dlpack__(max_version=(1, 0)); del b, c
    memoryview(h); h.__array_interface__;
    if u is not None:
        u.__dlpack_device__(); memoryview(u); np.from_dlpack(u, device="cpu")
    del v, a
    gc.collect()
    assert sys.getrefcount(x) == 2
    n = 0
    for f in (lambda: ub.empty(3, interprocess=True, device="host"), lambda: ub.devices(), lambda: ub.stats(), lambda: ub.trim()):
        try:
            f()
        except RuntimeError as e:
            assert "fork" in str(e)
            n += 1
    assert n == 4, n
    assert "Array" in repr(h) and h.asnumpy().shape == (2, 3) and h.tolist() == [[0.0] * 3] * 2 and h.item(0) == 0
    print("child", flush=True)
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
ub.empty(3)
print("parent")
""")
    assert out == "child\nparent\n"


def test_a_child_shares_interprocess_memory_only(np):
    out = run("""
import numpy as np, warnings
warnings.simplefilter("ignore")
mine, shared = ub.zeros(4, device="host"), ub.zeros(4, device="host", interprocess=True)
x, y = np.from_dlpack(mine), np.from_dlpack(shared)
pid = os.fork()
if pid == 0:
    x[0] = y[0] = 5
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(mine.tolist()[0], shared.tolist()[0])
""")
    assert out == "0.0 5.0\n"


def test_fork_exits_normally():
    run("""
import warnings
warnings.simplefilter("ignore")
a = ub.zeros(3)
pid = os.fork()
if pid == 0:
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
""")


def test_without_sycl():
    out = run("""
assert [d.filter_string for d in ub.devices()] == ["host"]
a = ub.zeros((2, 3))
assert a.usm_type is None and a.device == "host" and not hasattr(a, "__sycl_usm_array_interface__")
assert a.__dlpack_device__() == (1, 0)
for kw in (dict(device="opencl:cpu:0"), dict(device="gpu"), dict(usm_type="shared"), dict(usm_type="device", device="host")):
    for make in (lambda: ub.empty(2, **kw), lambda: ub.zeros(2, **kw), lambda: ub.asarray([1], **kw), lambda: ub.asarray(a, **kw)):
        try:
            make()
        except ValueError as e:
            assert ("SYCL is switched off" in str(e)) != ("device" in kw and "usm_type" in kw), e
            assert ("usm_type" in kw) == ("usm_type" in str(e)), e
        else:
            raise AssertionError(kw)
try: ub.set_default(usm_type="shared")
except ValueError as e: assert "SYCL" in str(e)
else: raise AssertionError
assert ub.zeros(2).usm_type is None and ub.asarray([1, 2]).usm_type is None and ub.zeros(2).dtype == "float64"
print(repr(a))
""", first="", USMBRIDGE_SYCL="off")
    assert "Array([[0., 0., 0.]" in out


def test_sycl_that_comes_later():
    """A SYCL library that Python loads later is found by the first tensor that needs it."""
    run("""
assert ub.devices()
try:
    import dpctl
    import dpnp.tensor as dpt
except ImportError:
    sys.exit(0)
if not dpctl.get_devices():
    sys.exit(0)
x = dpt.arange(3)
x.sycl_queue.wait()
a = ub.from_dlpack(x)
assert a.asnumpy().tolist() == [0, 1, 2]
""")
