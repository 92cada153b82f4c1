"""Arrays in Dask clusters without SYCL, and behind TLS."""

import os
import shutil
import subprocess

import pytest
from conftest import HOST, peer

distributed = peer("distributed")
peer("cloudpickle")

import dask_everywhere as every
from test_dask_cluster import places, start, workers


def test_host_backend():
    """With USMBRIDGE_SYCL=off the client and its workers have plain memory only."""
    env = {k: v for k, v in os.environ.items() if k != "USMBRIDGE_REQUIRE_SYCL"}
    env |= dict(USMBRIDGE_SYCL="off", PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), *filter(None, [env.get("PYTHONPATH")])]))
    program = "import dask_everywhere\nif __name__ == '__main__':\n    dask_everywhere.on_the_host_backend()\n"
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
        every.arrays_arrive(client, kinds)
        assert every.allocations(client, "shared") == 1
        # A client without the certificate is refused, and the cluster continues.
        with pytest.raises((OSError, TypeError)):
            distributed.Client(client.scheduler.address, timeout="3s", set_as_default=False)  # it would stay the default client
        assert client.submit(sum, [1, 2], pure=False).result() == 3
