"""Runs soak.py, many exchanges, in a process of its own."""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import HOST

HERE = Path(__file__).parent
COUNT = int(os.environ.get("USMBRIDGE_SOAK", 100_000))  # in each direction


def soaked(*args):
    r = subprocess.run([HOST, str(HERE / "soak.py"), *args], capture_output=True, text=True, timeout=7200)
    assert r.returncode in (0, 1) and r.stdout, (r.returncode, r.stderr[-3000:])
    print(r.stderr)
    reports = json.loads(r.stdout.splitlines()[-1])
    assert r.returncode == any(t["wrong"] for t in reports)
    return reports


@pytest.fixture(autouse=True)
def plain():
    if hasattr(ctypes.CDLL(None), "__asan_init"):
        pytest.skip("the address sanitizer keeps what is freed, so that memory grows")


def test_soak():
    reports = soaked(str(COUNT))
    assert [t["wrong"] for t in reports] == [[], []]
    assert all(t["exchanges"] >= COUNT and len(t["kinds"]) >= 5 for t in reports)


@pytest.mark.parametrize("mistake, said", [("leak", "resident memory grew"), ("lose", "counters were")])
def test_losses_are_found(mistake, said):
    out, back = soaked("20000", mistake)
    assert out["wrong"] == [] and any(said in w for w in back["wrong"]), back
