"""Arrays in a Dask cluster with worker processes, network and disk, also without SYCL and behind TLS."""

import asyncio
import contextlib
import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import SOON, peer, program, soon, sycl_device

import usmbridge as ub

cloudpickle = peer("cloudpickle")
distributed = peer("distributed")
# Send the functions of this file to the workers by value: they cannot import pytest.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

DTYPES = ["bool", "int8", "uint64", "float16", "float32", "complex128", "bfloat16", "float8_e5m2", "float6_e2m3fn", "int4"]
KINDS = [None, "device", "shared", "host"]


def places():
    sycl_device()
    return KINDS


def start(**options):
    settings = {"distributed.admin.tick.limit": "1h", "distributed.worker.memory.terminate": False, "logging": {"distributed": "error"},
                "distributed.comm.timeouts.connect": f"{SOON}s", "distributed.comm.timeouts.tcp": f"{SOON}s"}
    options = dict(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") | options
    import dask.config

    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        cluster = stack.enter_context(distributed.LocalCluster(**options))
        client = stack.enter_context(distributed.Client(cluster))
        client.wait_for_workers(options["n_workers"], timeout=SOON)  # on a busy machine a worker may be reconnecting
        keep = stack.pop_all()
    return keep, client


@pytest.fixture(scope="module")
def cluster():
    keep, client = start()
    with keep:
        yield client


@pytest.fixture
def client(cluster):
    """A client of two workers that hold no Arrays before and after the test."""
    cluster.wait_for_workers(2, timeout=SOON)
    yield cluster
    gc.collect()
    soon(lambda: not any(cluster.run(held_by_worker).values()), lambda: f"workers hold memory after all results were released: {cluster.run(holders)}")


def patient():
    """Lets allocations of this worker wait for memory as long as the tests do."""
    from usmbridge import _dask_memory

    _dask_memory.PATIENCE = SOON


def held_by_worker():
    import gc

    import usmbridge as ub

    gc.collect()
    return ub.stats()["live_buffers.all.current"]


def holders(dask_worker):
    """Returns the objects that a worker still holds: the values of tasks, and other objects that refer to Arrays."""
    import gc

    arrays = [o for o in gc.get_objects() if type(o) is ub.Array]
    referrers = [f"{type(r).__name__} {str(r)[:200]}" for a in arrays for r in gc.get_referrers(a) if r is not arrays]
    return list(dask_worker.data), referrers


def where(kind):
    return dict(device="host") if kind is None else dict(usm_type=kind)


def samples(kind, dtypes):
    """Returns Arrays of every type, layout and size, always the same."""
    import usmbridge as ub

    out = []
    for dtype in dtypes:
        values = ub.asarray([i * 7 % 11 % 2 for i in range(48)], dtype=dtype, **where(kind)).reshape(6, 8)
        out += [values, values.T, values[::2], values[1], values[:0], values.as_readonly(), ub.asarray(1, dtype=dtype, **where(kind))]
    large = ub.asarray([i * 31 % 997 for i in range(300_000)], dtype="int32", **where(kind)).reshape(500, 600)
    return [*out, large, large.T, large[::2, 1:], large.as_readonly()]


def facts(arrays):
    import pickle

    def data(a):
        return a.tolist() if a.dtype in ("float6_e2m3fn", "int4") else pickle.dumps(a.copy().to_device("host"), 4)

    return [(a.shape, a.dtype.name, a.usm_type, a.device.filter_string, a.readonly, data(a)) for a in arrays]


def there(arrays):
    return distributed.get_worker().address, facts(arrays)


def workers(client):
    """Returns the addresses of both workers. On a busy machine one may be reconnecting, and single answers have none."""
    found = []

    def both():
        found[:] = sorted(addresses(client))
        return len(found) == 2

    soon(both, lambda: found)
    return found


def addresses(client):
    return set(client.scheduler_info(n_workers=-1)["workers"])


def arrays_arrive(client, kinds):
    """Checks that Arrays of every type and layout go from worker to worker, to the client and back."""
    one, two = workers(client)
    for kind in kinds:
        want = facts(samples(kind, DTYPES))
        made = client.submit(samples, kind, DTYPES, workers=[one], pure=False)
        assert client.submit(there, made, workers=[two], pure=False).result() == (two, want), kind
        got = made.result()
        assert facts(got) == want, kind
        back = client.scatter(got, workers=[two])
        assert client.submit(facts, back, workers=[one], pure=False).result() == want, kind
        del made, got, back


def allocations(client, kind):
    """Returns the number of allocations of 8 MiB that a worker makes for an Array of that size from the other one."""
    one, two = workers(client)

    def allocated():
        return ub.stats()["requested_bytes.all.allocated"]

    made = client.submit(lambda: ub.ones(8 << 20, "uint8", **where(kind)), workers=[one], pure=False)
    distributed.wait(made)
    before = client.run(allocated, workers=[two])[two]
    assert client.submit(lambda a: a[-1].item(), made, workers=[two], pure=False).result() == 1
    return (client.run(allocated, workers=[two])[two] - before) >> 23


def test_worker_to_worker(client):
    from usmbridge import dask

    settings = dask.setup(client, limit=0)
    assert set(settings) == set(workers(client)) and all(v == {"limit": None} for v in settings.values())
    arrays_arrive(client, places())


def test_received_with_one_allocation(client):
    assert [allocations(client, kind) for kind in ("shared", "host", "device", None)] == [1, 1, 1, 0]


def test_metrics_of_a_worker(client):
    from usmbridge import dask

    settings = dask.setup(client, limit="64 MiB")
    assert [v["limit"] for v in settings.values()] == [64 << 20] * 2
    whole = client.run(lambda dask_worker: dask_worker.memory_manager.memory_limit)
    assert {a: v["limit"] for a, v in dask.setup(client).items()} == whole
    settings = dask.setup(client, limit=0.25)
    assert {a: v["limit"] for a, v in settings.items()} == {a: int(0.25 * n) for a, n in whole.items()}

    def metrics(dask_worker):
        a = ub.empty(8 << 20, "uint8", device="host")
        said = dask_worker.metrics["usmbridge"](dask_worker)
        return said["allocated"] >= a.nbytes and said["reserved"] >= said["allocated"] and said["limit"]

    assert client.run(metrics) == {a: v["limit"] for a, v in settings.items()}
    keys = {"allocated", "reserved", "limit"}
    soon(lambda: all(keys == set(w["metrics"].get("usmbridge", ())) for w in client.scheduler_info(n_workers=-1)["workers"].values()))  # with the next heartbeats


def test_a_task_beyond_the_limit_fails_alone(client):
    from usmbridge import dask

    dask.setup(client, limit="64 MiB")
    one, _ = workers(client)
    with pytest.raises(MemoryError, match="limit 64 MiB"):
        client.submit(ub.empty, 100 << 20, "uint8", workers=[one], pure=False).result()
    assert client.submit(lambda: ub.ones(3).tolist(), workers=[one], pure=False).result() == [1, 1, 1]
    dask.setup(client, limit=0)


def test_setting_up_again_and_off(client):
    from usmbridge import dask

    def state(dask_worker):
        return "usmbridge" in dask_worker.metrics

    for _ in range(3):
        dask.setup(client)
    assert set(client.run(state).values()) == {True}
    client.unregister_worker_plugin("usmbridge")
    assert set(client.run(state).values()) == {False}


def test_asynchronous_client():
    from usmbridge import dask

    async def run():
        async with distributed.LocalCluster(n_workers=2, processes=False, asynchronous=True, dashboard_address=":0", memory_limit="1 GiB") as cluster:
            async with distributed.Client(cluster, asynchronous=True) as client:
                settings = await dask.setup(client)
                # One process: the pools have the sum of both workers' limits.
                refused = 0
                try:
                    await client.submit(ub.empty, 3 << 30, "uint8", device="host")
                except MemoryError as e:
                    refused = "limit 2 GiB" in str(e)
                return sorted(v["limit"] for v in settings.values()), refused

    assert asyncio.run(run()) == ([1 << 30] * 2, True)
    ub.trim()
    assert ub.zeros(1).tolist() == [0.0]


def test_spilling_and_back():
    """Values of four times the memory of a worker are returned unchanged, and spilled ones leave the pools."""
    from usmbridge import dask

    import dask.config as config

    each, n = 32 << 20, 24
    with config.set({"distributed.worker.memory.target": 0.5, "distributed.worker.memory.spill": False, "distributed.worker.memory.pause": False}):
        keep, client = start(n_workers=1, memory_limit="256 MiB")
    with keep:
        dask.setup(client, limit=0)

        def make(i, kind):
            return ub.full(each, i, "uint8", **where(kind))

        made = [client.submit(make, i, KINDS[i % 4], pure=False) for i in range(n)]
        distributed.wait(made)

        def state(dask_worker):
            data = dask_worker.data
            return len(data.memory), len(data.disk), ub.stats()["live_bytes.all.current"]

        def spilled():
            ((memory, disk, live),) = client.run(state).values()
            return memory + disk == n and memory <= 4 and live <= 5 * each

        soon(spilled)  # a thread of the worker can hold the last results a little longer
        right = [client.submit(lambda a, i=i: a.usm_type == KINDS[i % 4] and bytes(a.asnumpy()[:: 1 << 20]) == bytes([i]) * 32, a, pure=False) for i, a in enumerate(made)]
        assert client.gather(right) == [True] * n
        del made, right


def test_memory_of_spilled_arrays_is_trimmed():
    """Dask also spills by resident memory: idle memory in a pool must not make it spill everything. No setup is needed."""
    keep, client = start(n_workers=1, memory_limit="2 GiB")
    with keep:

        def look(dask_worker):
            from distributed.system_monitor import SystemMonitor

            plain = SystemMonitor.get_process_memory._usmbridge_original
            manager, monitor = dask_worker.memory_manager, dask_worker.monitor
            arrays = [ub.full(64 << 20, 1, "uint8", device="host") for _ in range(8)]
            held = plain(monitor)
            # Set the threshold to the present size.
            del arrays
            kept = ub.stats()["reserved_bytes.all.current"]
            limit, manager.memory_limit = manager.memory_limit, 1
            try:
                after = monitor.get_process_memory()
            finally:
                manager.memory_limit = limit
            return held, kept, after, ub.stats()["reserved_bytes.all.current"]

        ((held, kept, after, reserved),) = client.run(look).values()
        assert kept > 0, "the pool kept nothing, and this test shows nothing"
        assert reserved < kept and held - after >= (kept - reserved) // 2


def test_an_allocation_at_the_limit_waits_for_the_spill():
    """Tasks allocate more than the limit allows at once: the results of earlier ones are spilled, and no task fails."""
    from usmbridge import dask

    import dask.config as config

    with config.set({"distributed.worker.memory.target": False, "distributed.worker.memory.spill": 0.9, "distributed.worker.memory.pause": False}):
        keep, client = start(n_workers=1, threads_per_worker=2, memory_limit="2 GiB")
    with keep:
        dask.setup(client, limit="100 MiB")
        client.run(patient)
        made = [client.submit(ub.full, 24 << 20, i, "uint8", device="host", pure=False) for i in range(12)]
        distributed.wait(made)
        assert [f.status for f in made] == ["finished"] * 12
        soon(lambda: client.run(lambda dask_worker: (len(dask_worker.data), len(dask_worker.data.disk) >= 8)).popitem()[1] == (12, True))
        right = [client.submit(lambda a, i=i: a[-1].item() == i, a, pure=False) for i, a in enumerate(made)]
        assert client.gather(right) == [True] * 12
        # The event loop does not wait, nor does a task that nothing else could help.
        with pytest.raises(MemoryError):
            client.run(ub.empty, 200 << 20, "uint8", device="host")
        with pytest.raises(MemoryError):
            client.submit(ub.empty, 200 << 20, "uint8", device="host", pure=False).result(timeout=SOON)

        del made, right


def test_all_tasks_wait():
    """Tasks that wait for each other's memory end with MemoryError instead of waiting forever."""
    from usmbridge import dask

    keep, client = start(n_workers=1, threads_per_worker=2, memory_limit="2 GiB")
    with keep:
        dask.setup(client, limit="100 MiB")

        def hold(event, other):
            a = ub.zeros(48 << 20, "uint8", device="host")
            distributed.Event(event).set()
            distributed.Event(other).wait()
            try:
                b = ub.zeros(48 << 20, "uint8", device="host")
                return a.nbytes + b.nbytes
            except MemoryError:
                return 0

        got = [client.submit(hold, *names, pure=False) for names in (("one", "two"), ("two", "one"))]
        results = client.gather(got)
        assert 0 in results and set(results) <= {0, 96 << 20}, results


def survives_a_killed_worker(client, kind):
    """Checks that results are right, and that only the lost values are computed again."""
    one, two = workers(client)
    pids = client.run(os.getpid)
    runs = distributed.Queue("runs", client=client)

    def part(i):
        import distributed

        distributed.Queue("runs").put(i)
        return ub.full(1 << 20, i + 1, "int32", **where(kind))

    def total(*parts):
        return sum(int(p.asnumpy().sum()) for p in parts)

    made = [client.submit(part, i, workers=[one, two][i % 2], allow_other_workers=True, pure=False) for i in range(8)]
    distributed.wait(made)
    assert runs.qsize() == 8
    lost = [i for i, f in enumerate(made) if set(client.who_has(f)[f.key]) == {two}]
    os.kill(pids[two], signal.SIGKILL)
    result = client.submit(total, *made, pure=False).result(timeout=SOON)
    assert result == sum(range(1, 9)) << 20
    again = [runs.get() for _ in range(runs.qsize())][8:]
    assert lost and set(again) <= set(lost), "only what the dead worker had is computed again"
    runs.close()
    del made
    client.wait_for_workers(2, timeout=SOON)


def test_values_of_a_killed_worker_are_computed_again(client):
    survives_a_killed_worker(client, "shared")


def test_pickles_are_not_used(client):
    """An Array inside another object is pickled by protocol 5; an Array by itself uses its own frames."""
    header, frames = distributed.protocol.serialize(ub.zeros(1 << 18, usm_type="shared"))
    assert header["serializer"] == "dask" and len(frames) == 2

    class Box:
        def __init__(self, a):
            self.a = a

    box = Box(ub.ones(1 << 18, usm_type="shared"))
    one, two = workers(client)
    made = client.scatter(box, workers=[one])
    assert client.submit(lambda b: (b.a.usm_type, memoryview(b.a)[-1]), made, workers=[two], pure=False).result() == ("shared", 1.0)
    assert len(pickle.dumps(box.a, 5, buffer_callback=lambda b: None)) < 500
    del made, box


# ---- without SYCL, and behind TLS ------------------------------------------------------------------------


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
    code = "import test_dask_cluster\nif __name__ == '__main__':\n    test_dask_cluster.on_the_host_backend()\n"
    path = os.pathsep.join([os.path.dirname(__file__), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert program("-c", code, timeout=1800, USMBRIDGE_REQUIRE_SYCL="", USMBRIDGE_SYCL="off", PYTHONPATH=path).splitlines()[-1] == "done"


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
