"""Checks that hold on any cluster, with any network and backend. test_dask_everywhere.py names the clusters."""

import os
import signal
import sys

import cloudpickle
from test_dask_cluster import DTYPES, facts, samples, there, where, workers

import usmbridge as ub

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def allocated():
    return ub.stats()["requested_bytes.all.allocated"]


def one_array(kind):
    return ub.ones(8 << 20, "uint8", **where(kind))


def part(i, kind):
    return ub.full(1 << 20, i + 1, "int32", **where(kind))


def total(*parts):
    return sum(int(p.asnumpy().sum()) for p in parts)


def arrays_arrive(client, kinds):
    """Arrays of every type and layout go from worker to worker, to the client and back."""
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
    """Counts the allocations of 8 MiB that a worker makes for an Array of that size."""
    one, two = workers(client)
    made = client.submit(one_array, kind, workers=[one], pure=False)
    made.result()
    before = client.run(allocated, workers=[two])[two]
    assert client.submit(lambda a: a[-1].item(), made, workers=[two], pure=False).result() == 1
    return (client.run(allocated, workers=[two])[two] - before) >> 23


def survives_a_killed_worker(client, kind):
    one, two = workers(client)
    made = [client.submit(part, i, kind, workers=[one, two][i % 2], allow_other_workers=True, pure=False) for i in range(6)]
    client.gather(client.map(len, made, pure=False))
    os.kill(client.run(os.getpid)[two], signal.SIGKILL)
    assert client.submit(total, *made, pure=False).result(timeout=300) == sum(range(1, 7)) << 20
    del made
    client.wait_for_workers(2, timeout=300)


def on_the_host_backend():
    """The main program of a process without SYCL, whose workers have none either."""
    from test_dask_cluster import start

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
