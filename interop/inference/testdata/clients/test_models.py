"""The models of ../models: every datatype, slow models, failing models."""

import queue
import threading
import time

import ml_dtypes
import numpy
import pytest
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from conftest import Protocol, numbers, patient

DATATYPES = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16"]


def every(shape=(2, 3)):
    for i, d in enumerate(DATATYPES):
        values = (numpy.arange(6).reshape(shape) * (i + 1)) % (2 if d == "BOOL" else 100)
        yield d, values.astype(triton_to_np_dtype(d))


def test_datatypes(protocol, client):
    inputs = [protocol.input(d, a) for d, a in every()]
    answer = client.infer("every", inputs)
    for d, a in every():
        got = answer.as_numpy(d)
        assert got.dtype == a.dtype and numpy.array_equal(got, a), d


def test_json_datatypes():
    """The datatypes that JSON has numbers for."""
    protocol = Protocol("http")
    with protocol.connect() as client:
        raw = ("FP16", "BF16")
        inputs = [protocol.input(d, a, binary_data=d in raw) for d, a in every()]
        outputs = [protocol.output(d, binary_data=d in raw) for d, _ in every()]
        answer = client.infer("every", inputs, outputs=outputs)
        for d, a in every():
            assert numpy.array_equal(answer.as_numpy(d), a), d


def test_some_outputs_in_another_order(protocol, client):
    inputs = [protocol.input(d, a) for d, a in every()]
    answer = client.infer("every", inputs[::-1], outputs=[protocol.output("INT8"), protocol.output("BOOL")])
    assert [o["name"] for o in protocol.dict(answer.get_response())["outputs"]] == ["INT8", "BOOL"]
    assert numpy.array_equal(answer.as_numpy("INT8"), dict(every())["INT8"])
    assert answer.as_numpy("FP32") is None


def test_model_that_fails(protocol, client):
    message = protocol.refuses(lambda: client.infer("failing", [protocol.input("x", numbers(1))]), 500, "INTERNAL")
    assert "secret" not in message and "failing" in message
    message = protocol.refuses(lambda: client.infer("choosy", [protocol.input("x", numbers(1))]), 400, "INVALID_ARGUMENT")
    assert "wants two numbers" in message


def seconds(n):
    return numpy.array([n], dtype=numpy.float32)


def test_timeouts(protocol):
    """The client's own timeout and the parameter of the request end a call."""
    slow = protocol.input("x", seconds(1000))
    if protocol.name == "grpc":
        with protocol.connect() as client:
            with pytest.raises(InferenceServerException) as e:
                client.infer("slow", [slow], client_timeout=0.2)
            # gRPC's server ends the stream at the same deadline. A client that sees this first says "cancelled".
            assert e.value.status() in ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED")
    else:
        with protocol.connect(network_timeout=0.2) as client, pytest.raises(Exception, match="timed out"):
            client.infer("slow", [slow])
    with protocol.connect() as client:
        protocol.refuses(lambda: client.infer("slow", [slow], timeout=200_000), 504, "DEADLINE_EXCEEDED")
        assert client.infer("slow", [protocol.input("x", seconds(0))]).as_numpy("y")[0] == 0


def test_cancel(grpc_client):
    protocol, answers = Protocol("grpc"), queue.Queue()
    call = grpc_client.async_infer("slow", [protocol.input("x", seconds(1000))], lambda result, error: answers.put(error))
    call.cancel()
    assert "ancel" in str(answers.get(timeout=60))
    grpc_client.start_stream(lambda result, error: answers.put(error))
    grpc_client.async_stream_infer("slow", [protocol.input("x", seconds(1000))])
    grpc_client.stop_stream(cancel_requests=True)
    assert "ancel" in str(answers.get(timeout=60))
    assert grpc_client.infer("slow", [protocol.input("x", seconds(0))]).as_numpy("y")[0] == 0


def test_region_in_use(protocol, client):
    """A region in use cannot be unregistered, and stays valid until the request ends."""
    import os

    import tritonclient.utils.shared_memory as shm

    key = f"usmbridge_clients_{os.getpid()}_used_{protocol.name}"
    handle = shm.create_shared_memory_region("used", key, 64, create_only=True)
    try:
        shm.set_shared_memory_region(handle, [seconds(1000)])
        client.register_system_shared_memory("used", key, 64)
        tensor = protocol.module.InferInput("x", [1], "FP32")
        tensor.set_shared_memory("used", 4)
        other = protocol.connect()
        over = threading.Event()

        def wait():
            with pytest.raises(InferenceServerException):
                other.infer("slow", [tensor], timeout=5_000_000)
            over.set()

        thread = threading.Thread(target=wait)
        thread.start()

        def in_use():
            try:
                client.unregister_system_shared_memory("used")
            except InferenceServerException as e:
                assert e.status() in ("409", "StatusCode.INVALID_ARGUMENT"), e
                return True
            client.register_system_shared_memory("used", key, 64)  # not yet
            return over.is_set()

        patient(in_use, "the request has not begun")
        thread.join()
        other.close()
        patient(lambda: freed(client), "the region stays in use")
    finally:
        shm.destroy_shared_memory_region(handle)


def freed(client):
    try:
        client.unregister_system_shared_memory("used")
    except InferenceServerException as e:
        return e.status() in ("404", "StatusCode.NOT_FOUND")
    return True
