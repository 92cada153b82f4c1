"""System shared memory, with tritonclient's own helpers."""

import os

import numpy
import pytest
import tritonclient.utils.shared_memory as shm

from conftest import Protocol, numbers


@pytest.fixture
def region(request):
    """Creates shared memory of this process, and removes it at the end."""
    made = []

    def make(name, size):
        key = f"usmbridge_clients_{os.getpid()}_{len(made)}_{name}"
        handle = shm.create_shared_memory_region(name, key, size, create_only=True)
        made.append(handle)
        return handle, key

    yield make
    for handle in made:
        shm.destroy_shared_memory_region(handle)


def status(protocol, client, name=""):
    regions = protocol.dict(client.get_system_shared_memory_status(name))
    if protocol.name == "grpc":
        regions = list(regions.get("regions", {}).values())
    return {r["name"]: r for r in regions}


@pytest.mark.parametrize("n", [1, 1000, 3_000_000])
def test_input_and_output(protocol, client, region, n):
    client.unregister_system_shared_memory()
    x = numbers(n)
    given, given_key = region("given", x.nbytes + 64)
    taken, taken_key = region("taken", x.nbytes + 128)
    shm.set_shared_memory_region(given, [x], offset=64)
    client.register_system_shared_memory("given", given_key, x.nbytes, offset=64)
    client.register_system_shared_memory("taken", taken_key, x.nbytes + 128)
    regions = status(protocol, client)
    assert set(regions) == {"given", "taken"}
    assert (regions["given"]["key"], int(regions["given"]["offset"]), int(regions["given"]["byte_size"])) == (given_key, 64, x.nbytes)
    assert set(status(protocol, client, "taken")) == {"taken"}

    tensor = protocol.module.InferInput("x", [n], "FP32")
    tensor.set_shared_memory("given", x.nbytes)
    wanted = protocol.output("y")
    wanted.set_shared_memory("taken", x.nbytes, offset=128)
    answer = client.infer("identity", [tensor], outputs=[wanted])
    out = protocol.dict(answer.get_output("y"))
    assert out["datatype"] == "FP32" and [int(i) for i in out["shape"]] == [n]
    assert numpy.array_equal(shm.get_contents_as_numpy(taken, numpy.float32, [n], offset=128), x)

    # One tensor in shared memory, the other not.
    assert numpy.array_equal(client.infer("identity", [tensor]).as_numpy("y"), x)
    client.infer("identity", [protocol.input("x", x + 1)], outputs=[wanted])
    assert numpy.array_equal(shm.get_contents_as_numpy(taken, numpy.float32, [n], offset=128), x + 1)
    client.unregister_system_shared_memory("given")
    client.unregister_system_shared_memory()
    assert not status(protocol, client)


def test_refused(protocol, client, region):
    client.unregister_system_shared_memory()
    _, key = region("mine", 4096)
    refuses = protocol.refuses

    def register(name, key, size, offset=0):
        return lambda: client.register_system_shared_memory(name, key, size, offset)

    client.register_system_shared_memory("mine", key, 4096)
    refuses(register("mine", key, 4096), 400, "INVALID_ARGUMENT")
    for bad in ("no_such_memory", "../etc/passwd", "/dev/shm/x", ".", "", "a/b"):
        message = refuses(register("other", bad, 8), 400, "INVALID_ARGUMENT")
        assert "errno" not in message and "/dev/shm" not in message.replace(repr(bad), "").replace('"%s"' % bad, "")
    refuses(register("other", key, 8192), 400, "INVALID_ARGUMENT")
    refuses(register("other", key, 8, 1 << 62), 400, "INVALID_ARGUMENT")

    def infer(name, size, offset=0):
        tensor = protocol.module.InferInput("x", [16], "FP32")
        tensor.set_shared_memory(name, size, offset)
        return lambda: client.infer("identity", [tensor])

    refuses(infer("none", 64), 404, "NOT_FOUND")
    for size, offset in [(63, 0), (65, 0), (64, 4096), (64, 4090), (64, (1 << 63) - 8)]:
        refuses(infer("mine", size, offset), 400, "INVALID_ARGUMENT")
    wanted = protocol.output("y")
    wanted.set_shared_memory("mine", 8)
    refuses(lambda: client.infer("identity", [protocol.input("x", numbers(16))], outputs=[wanted]), 400, "INVALID_ARGUMENT")
    refuses(lambda: client.unregister_system_shared_memory("none"), 404, "NOT_FOUND")
    assert infer("mine", 64)().as_numpy("y").shape == (16,)
    client.unregister_system_shared_memory("mine")


def test_one_for_both_protocols(region):
    """A region that one protocol registers can be used by the other."""
    x = numbers(100)
    handle, key = region("both", x.nbytes)
    shm.set_shared_memory_region(handle, [x])
    with Protocol("http").connect() as http, Protocol("grpc").connect() as grpc:
        http.register_system_shared_memory("both", key, x.nbytes)
        tensor = Protocol("grpc").module.InferInput("x", [100], "FP32")
        tensor.set_shared_memory("both", x.nbytes)
        assert numpy.array_equal(grpc.infer("identity", [tensor]).as_numpy("y"), x)
        grpc.unregister_system_shared_memory("both")
        assert http.get_system_shared_memory_status() == []
