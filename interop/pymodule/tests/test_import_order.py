"""Effects of an import on the process: the OpenCL driver is configured in any order of imports; nothing else changes."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import BUILT_IN, program

BARE = {name: None for name in os.environ if name.startswith("OCL_ICD_")}


def python(code, **env):
    return program("-c", code, **BARE | env).split("\n")


def test_both_orders(device, dpctl):
    for first, second in (("usmbridge", "dpctl"), ("dpctl", "usmbridge")):
        said = python(
            f"""
import os, {first}, {second}
import dpctl, usmbridge, subprocess
print(len(dpctl.get_devices()) > 0, len(usmbridge.devices()) > 1)
here = os.environ.get("OCL_ICD_FILENAMES")
print(here == (subprocess.run(["printenv", "OCL_ICD_FILENAMES"], capture_output=True, text=True).stdout.strip() or None))
"""
        )
        assert said[:2] == ["True True", "True"], (first, said)


def test_a_path_that_is_not_text(device, dpctl):
    """A folder whose name is not UTF-8 does not hide the other folders of sys.path, in which Go finds dpctl."""
    code = "import sys, os; sys.path[:0] = ['/no\\udcff', None, 5]; import usmbridge; print(os.environ.get('OCL_ICD_FILENAMES'), len(usmbridge.devices()))"
    env = {"VIRTUAL_ENV": "", "PATH": "/usr/bin:/bin"}  # Go finds dpctl by sys.path alone
    path = os.pathsep.join(sys.path)
    assert python(code, PYTHONPATH=path, **env) == python(code.replace("/no\\udcff", "/no"), PYTHONPATH=path, **env)


def test_a_configured_driver_stays(device):
    """Also if the Python program has configured it."""
    said = python(
        """
import os
os.environ["OCL_ICD_FILENAMES"] = "/nowhere/libx.so"
import usmbridge
print(os.environ["OCL_ICD_FILENAMES"], os.popen("printenv OCL_ICD_FILENAMES").read().strip())
"""
    )
    assert said[0] == "/nowhere/libx.so /nowhere/libx.so"
    assert python("import os, usmbridge; print(os.environ.get('OCL_ICD_FILENAMES'))", USMBRIDGE_SYCL="off", OCL_ICD_FILENAMES="")[0] in ("", "None")
    assert python("import os; os.environ['USMBRIDGE_SYCL'] = 'off'; import usmbridge; print(len(usmbridge.devices()))")[0] == "1"


def test_devices_listed_before(device, dpctl):
    """Some packages list devices when they are imported. It is too late then, and a warning says so."""
    if not os.path.exists(os.path.join(os.path.dirname(dpctl.__file__), "../../../libintelocl.so")):
        return  # the system configures the driver for every program
    said = python(
        """
import os
os.environ.pop("OCL_ICD_FILENAMES", None)
import dpctl, warnings
print(len(dpctl.get_devices()))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import usmbridge
print([str(w.message) for w in caught if w.category is RuntimeWarning])
try:
    usmbridge.zeros(3, usm_type="shared")
except ValueError as e:
    print(e)
"""
    )
    if said[0] == "0":
        assert "import usmbridge first" in said[1] and "OCL_ICD_FILENAMES=" in said[1], said
        assert "other code loaded SYCL, which lists its devices once" in said[2], said


def test_children_inherit_the_same_signals():
    """subprocess(restore_signals=False): children ignore the same signals with and without the module.

    Signals 32 and 33 belong to the C library: its posix_spawn, which Python uses from 3.13 on, makes children ignore
    them until their first thread starts."""
    said = python(
        """
import subprocess
def ignored():
    status = subprocess.run(["cat", "/proc/self/status"], restore_signals=False, capture_output=True, text=True).stdout
    lines = [l.split() for l in status.splitlines() if l.startswith(("SigIgn", "SigBlk"))]
    return [(name, hex(int(mask, 16) & ~(3 << 31))) for name, mask in lines]
before = ignored()
import usmbridge
at_import = ignored()
usmbridge.devices(); usmbridge.zeros(3).asnumpy
print(before == at_import == ignored(), before)
"""
    )
    assert said[0].startswith("True"), said


def test_an_idle_program_stays_idle():
    """No thread runs because of the import while the program sleeps."""
    said = python(
        """
import os, time, usmbridge
def switches():
    n = 0
    for t in os.listdir("/proc/self/task"):
        for line in open(f"/proc/self/task/{t}/status"):
            if line.startswith("voluntary_ctxt_switches"):
                n += int(line.split()[1])
    return n
def least():
    # Of several periods, the quietest: Go's runtime settles within some.
    best = 1 << 30
    for _ in range(20):
        before = switches()
        time.sleep(0.25)
        best = min(best, switches() - before)
        if best <= 2:
            break
    return best
print(least())
"""
    )
    assert int(said[0]) <= 2, said


def test_no_other_module_is_imported():
    """Modules that an import loads beside this package cost time in each process."""
    said = python("import sys; before = set(sys.modules)\nimport usmbridge\nprint(sorted(m for m in set(sys.modules) - before if m.partition('.')[0] not in ('usmbridge', *sys.builtin_module_names)))")
    assert said[0] == "[]"


def test_a_library_that_hides_the_driver_is_named(device, dpctl, tmp_path):
    """openvino, for instance, brings another libtbb."""
    if not os.path.exists(os.path.join(os.path.dirname(dpctl.__file__), "../../../libintelocl.so")) or not shutil.which("cc"):
        pytest.skip("needs the driver of the environment, whose libtbb another one replaces, and a C compiler")
    other = tmp_path / "libtbb.so.12"
    subprocess.run(["cc", "-shared", "-Wl,-soname,libtbb.so.12", "-x", "c", "/dev/null", "-o", other], check=True)
    said = python(
        f"""
import ctypes
ctypes.CDLL({str(other)!r})
import usmbridge
print(len(usmbridge.devices()))
try:
    usmbridge.zeros(3, usm_type="shared")
except ValueError as e:
    print(e)
print(usmbridge._native._info(False, "", "", "").replace("\\n", " "))
"""
    )
    assert said[0] == "1"
    for text in said[1:3]:
        assert f"has loaded {other}, which can hide the driver: open SYCL before" in text, text


def test_advice_names_the_running_python():
    """A kernel of Jupyter runs another Python than VIRTUAL_ENV and PATH name."""
    if not BUILT_IN:
        pytest.skip("the package must be found without site-packages")
    said = python(
        """
import os, sys
sys.path[:] = [p for p in sys.path if not p.endswith("-packages")] + ["/kernel/lib/python3/site-packages"]
os.environ["VIRTUAL_ENV"] = "/nowhere"
import usmbridge
try:
    usmbridge.zeros(3, usm_type="shared")
except ValueError as e:
    print(e)
print(usmbridge._native._info(False, "", "", "/kernel").replace("\\n", " "))
""",
        PATH="/nowhere",
        USMBRIDGE_SYCL="",
    )
    assert "this Python has its packages in /kernel/lib/python3/site-packages" in said[0]
    assert "in the environment /kernel" in said[1]
