"""Arrays in Dask clusters without SYCL, and behind TLS."""

import os
import shutil
import subprocess
import sys

import pytest
from conftest import HOST, peer

import usmbridge as ub

distributed = peer("distributed")
cloudpickle = peer("cloudpickle")

from test_dask_cluster import allocations, arrays_arrive, places, start, survives_a_killed_worker, workers

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def on_the_host_backend():
    """The main program of a process without SYCL, whose workers have none either."""
    from usmbridge import dask

    assert [d.filter_string for d in ub.devices()] == ["host"]
    keep, client = start()
    with keep:
        assert set(map(tuple, client.run(lambda: [d.filter_string for d in ub.devices()]).values())) == {("host",)}
        dask.setup(client, limit="1 GiB")
        arrays_arrive(client, [None])
        assert allocations(client, None) == 0  # it stays in the memory of the message
        # Arrays that were USM at the sender are plain memory here.
        header, frames = client.run(sent_from_usm, workers=workers(client)[:1]).popitem()[1]
        assert client.submit(received_here, header, frames, pure=False).result() == (None, "host", [3] * 5)
        survives_a_killed_worker(client, None)
    print("done")


def sent_from_usm():
    from usmbridge import _dask_frames

    header, frames = _dask_frames.dumps(ub.full(5, 3, "int16", device="host"))
    return header | dict(usm_type="device", device="opencl:gpu:7"), [bytes(f) for f in frames]


def received_here(header, frames):
    from usmbridge import _dask_frames

    a = _dask_frames.loads(header, frames)
    return a.usm_type, a.device.filter_string, a.tolist()


def test_host_backend():
    """With USMBRIDGE_SYCL=off the client and its workers have plain memory only."""
    env = {k: v for k, v in os.environ.items() if k != "USMBRIDGE_REQUIRE_SYCL"}
    env |= dict(USMBRIDGE_SYCL="off", PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), *filter(None, [env.get("PYTHONPATH")])]))
    program = "import test_dask_everywhere\nif __name__ == '__main__':\n    test_dask_everywhere.on_the_host_backend()\n"
    done = subprocess.run([HOST, "-c", program], env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0 and done.stdout.splitlines()[-1:] == ["done"], done.stdout + done.stderr


@pytest.fixture
def security(tmp_path):
    """A certificate for one cluster, which trusts no other."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl command to make a certificate with")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=cluster", "-days", "2", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )
    files = {f"tls_{who}_{what}": str(file) for who in ("client", "worker", "scheduler") for what, file in (("key", key), ("cert", cert))}
    return distributed.Security(tls_ca_file=str(cert), require_encryption=True, **files)


def test_behind_tls(security):
    """Messages over TLS are received like those over TCP."""
    from usmbridge import dask

    kinds = places()
    keep, client = start(protocol="tls://", security=security)
    with keep:
        assert all(address.startswith("tls://") for address in [client.scheduler.address, *workers(client)])
        dask.setup(client, limit=0)
        arrays_arrive(client, kinds)
        assert allocations(client, "shared") == 1
        # A client without the certificate is refused, and the cluster continues.
        with pytest.raises((OSError, TypeError)):
            distributed.Client(client.scheduler.address, timeout="3s", set_as_default=False)  # it would stay the default client
        assert client.submit(sum, [1, 2], pure=False).result() == 3
