"""Failing allocations and interrupts: runs scarce.py in processes of its own."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HOST, program

# Distance between failing allocations; a hunt fails all of them.
STEP = 1 if "USMBRIDGE_HUNT" in os.environ else 13
HERE = Path(__file__).parent


def swept(way, step, **env):
    """Returns the reports of scarce.py, after checking that it found no failure."""
    reports = [json.loads(line) for line in program(HERE / "scarce.py", way, step, timeout=3600, **env).splitlines()]
    assert len(reports) >= 10
    assert [t for t in reports if t["failures"]] == []
    print(f"{sum(t['tried'] for t in reports)} tried, {sum(t['raised'] for t in reports)} raised")
    return reports


def test_allocations_of_python():
    try:
        import _testcapi

        _testcapi.set_nomemory
    except (ImportError, AttributeError):
        pytest.skip("this Python has no _testcapi.set_nomemory, which makes its allocations fail")
    if (3, 12) <= sys.version_info < (3, 14):
        pytest.skip("without memory, CPython 3.12 and 3.13 crash in Python code, such as repr of an ndarray")
    reports = swept("python", STEP)
    assert sum(t["raised"] for t in reports) > 10


def test_interrupts():
    reports = swept("interrupts", 1000 if "USMBRIDGE_HUNT" in os.environ else 20)
    assert sum(t["raised"] for t in reports) > 100


def places(host, to):
    """Returns the address ranges of this project's C code in a program that hosts Python. Allocations of Go and of
    its C runtime must not fail, because the program ends then."""
    symbols = subprocess.run(["nm", "-S", "--defined-only", host], capture_output=True, text=True, check=True).stdout
    found = []
    for line in symbols.splitlines():
        address, size, kind, name = (line.split() + [""] * 4)[:4]
        ours = kind in "tT" and "." not in name.split(".part")[0].split(".constprop")[0].split(".isra")[0].split(".cold")[0] and "/" not in name
        if ours and name and not name.startswith(("_cgo", "x_cgo", "crosscall", "thread", "_rt0", "runtime", "fatalf", "_")):
            found.append((int(address, 16), int(address, 16) + int(size, 16)))
    found.sort()
    to.write_text("".join(f"{first:x} {end:x}\n" for first, end in found))
    return len(found)


def test_allocations_of_c(tmp_path):
    if not os.path.basename(HOST).startswith("usmpython") or shutil.which("cc") is None or shutil.which("nm") is None:
        pytest.skip("for usmpython, with a C compiler and nm: the places of its C parts are found by their names")
    if hasattr(ctypes.CDLL(None), "__asan_init"):
        pytest.skip("the address sanitizer has a malloc of its own")
    library, where = tmp_path / "scarce.so", tmp_path / "places"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / "scarce.c")], check=True)
    if places(HOST, where) < 100:
        pytest.skip("the program has no names of its C parts")
    reports = swept("c", 1, LD_PRELOAD=str(library), USMB_SCARCE=str(where))
    assert sum(t["raised"] for t in reports) > 10
