"""Helpers of the client tests. The addresses of the server are in the environment. Tests of a protocol
without an address are skipped."""

import os
import time

import numpy
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

ADDRESSES = {name: os.environ.get("SERVICE_" + name.upper()) for name in ("http", "grpc")}
ADDRESSES = {name: address for name, address in ADDRESSES.items() if address}
assert ADDRESSES, "SERVICE_HTTP and SERVICE_GRPC name no service"


def address(name):
    if name not in ADDRESSES:
        pytest.skip("no address for " + name)
    return ADDRESSES[name]


def patient(condition, message):
    """Waits until a condition holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.01)


class Protocol:
    """One of the two clients behind a common interface."""

    def __init__(self, name):
        self.name = name
        self.module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[name]

    def connect(self, **options):
        return self.module.InferenceServerClient(address(self.name), **options)

    def input(self, name, array, **options):
        tensor = self.module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        if self.name == "grpc":
            options.pop("binary_data", None)
        return tensor.set_data_from_numpy(array, **options)

    def output(self, name, **options):
        if self.name == "grpc":
            options.pop("binary_data", None)
        return self.module.InferRequestedOutput(name, **options)

    def dict(self, answer):
        """Converts metadata and other answers to a dict with the names of the protocol."""
        if isinstance(answer, (dict, list)):
            return answer
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(answer, preserving_proto_field_name=True)

    def refuses(self, call, *statuses):
        """Checks that a call fails with a status (of HTTP, then of gRPC), and returns the message."""
        with pytest.raises(InferenceServerException) as e:
            call()
        http, grpc = statuses
        want = str(http) if self.name == "http" else "StatusCode." + grpc
        assert e.value.status() == want, e.value
        return e.value.message()


@pytest.fixture(params=list(ADDRESSES))
def protocol(request):
    return Protocol(request.param)


@pytest.fixture
def client(protocol):
    with protocol.connect() as c:
        yield c


@pytest.fixture
def grpc_client():
    with Protocol("grpc").connect() as c:
        yield c


def numbers(n, dtype=numpy.float32):
    return (numpy.arange(n) % 251).astype(dtype)
