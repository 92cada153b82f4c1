"""Tasks on the host that need the GIL: dpnp leaves them, and no function of this library makes dpnp wait for them with the
GIL held. host_tasks.py has the steps and runs in processes of its own."""

import json
import os
import subprocess

import pytest
from conftest import HOST, peer, program, sycl_device

import faults

ROOT = os.path.dirname(__file__)
SECONDS = float(os.environ.get("USMB_HOST_TASKS_SECONDS", 0))
QUEUES = ("default", "out-of-order", "in-order")
# Steps whose memory users or consumers have seen, and functions of dpnp that wait for the queue: they wait for a barrier.
WAITING = ("export/", "end/", "fork/", "user/", "read/", "copy/", "fft/", "linalg/")


@pytest.fixture(scope="module", autouse=True)
def needs():
    peer("dpctl"), peer("dpnp.tensor")
    if sycl_device().backend != "opencl":
        pytest.skip("the steps need kernels in OpenCL C and of dpnp")


def test_several_processes():
    """All steps end, also in several processes at once on a busy machine."""
    command = [HOST, os.path.join(ROOT, "host_tasks.py")]
    queues = 4 * QUEUES if SECONDS else QUEUES
    running = [subprocess.Popen([*command, queue, str(SECONDS)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for queue in queues]
    ends = [(p.communicate(), p.returncode) for p in running]
    for (out, problem), code in ends:
        assert code == 0, problem[-4000:]
        assert json.loads(out.splitlines()[-1]) == {}


@pytest.mark.parametrize("queue", QUEUES)
def test_barriers(queue, tmp_path):
    """Functions of this library that compute submit no barrier, unless a user has seen the memory."""
    environment = faults.environment(tmp_path)
    out = program(os.path.join(ROOT, "host_tasks.py"), queue, **environment)
    counts = json.loads(out.splitlines()[-1])
    barriers = {name: n for name, n in counts.items() if n}
    assert "export/capsule" in barriers or "end/trim" in barriers
    assert {name for name in barriers if not name.startswith(WAITING)} == set()
