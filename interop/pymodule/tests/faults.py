"""Processes in which calls of the SYCL library fail; the library is internal/testenv/testfaults/testdata/faults.c."""

import importlib.util
import mmap
import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "internal" / "testenv" / "testfaults" / "testdata" / "faults.c"
BYTES = 128 * 64  # of struct control


def environment(directory, seed=1, first=""):
    """Builds the library and returns the variables of a process with it. The first call of a function can be made to
    fail. Skips the test without a C compiler."""
    if shutil.which("cc") is None or platform.machine() != "x86_64":
        pytest.skip("needs a C compiler and x86-64")
    real = Path(importlib.util.find_spec("dpctl").origin).with_name("libDPCTLSyclInterface.so")
    library, control = directory / "libusmbfaults.so", directory / "control"
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-I", ROOT / "syclobj", "-o", library, SOURCE], check=True)
    control.write_bytes(struct.pack("=16xQ", seed).ljust(BYTES, b"\0"))
    names = dict(USMBRIDGE_SYCL=library, USMBRIDGE_FAULTS_LIBRARY=real, USMBRIDGE_FAULTS=control, USMBRIDGE_FAULTS_FIRST=first)
    return os.environ | {name: str(value) for name, value in names.items()}


class Faults:
    """Controls the library of this process, which SYCL's first use loads."""

    def __init__(self):
        with open(os.environ["USMBRIDGE_FAULTS"], "r+b") as f:
            self.control = mmap.mmap(f.fileno(), BYTES)

    def fail(self, function, n):
        """Makes the n-th call of the function from now on fail; 0 cancels this."""
        struct.pack_into("=q", self.control, self._row(function) + 48, n)

    def _row(self, function):
        at = self.control.find(function.encode() + b"\0")
        assert at >= 0, function
        return at

    def calls(self, function):
        """Returns the number of calls of the function so far."""
        return struct.unpack_from("=q", self.control, self._row(function) + 56)[0]

    def rate(self, per_million):
        """Makes so many calls in a million fail at random."""
        struct.pack_into("=I", self.control, 0, per_million)

    def failed(self):
        """Returns the number of calls that have failed."""
        return struct.unpack_from("=Q", self.control, 8)[0]
