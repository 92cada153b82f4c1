"""The protocol with the unmodified tritonclient, over HTTP and gRPC; the server has the model
"identity", x: FP32 [-1] to y."""

import asyncio
import queue
import threading

import numpy
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

from conftest import Protocol, address, numbers

SIZES = [0, 1, 5, 1023, 1024, 1025, 100_000, 3_000_000]


def test_health(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("identity") and client.is_model_ready("identity", "1")


def test_ready_of_nothing(protocol, client):
    for name, version in [("none", ""), ("identity", "2")]:
        try:
            assert not client.is_model_ready(name, version)
        except InferenceServerException as e:
            assert protocol.name == "grpc" and e.status() == "StatusCode.NOT_FOUND"


def test_metadata(protocol, client):
    server = protocol.dict(client.get_server_metadata())
    assert server["name"] and server["version"]
    assert {"binary_tensor_data", "system_shared_memory", "statistics"} <= set(server["extensions"])
    model = protocol.dict(client.get_model_metadata("identity"))
    assert model["name"] == "identity" and model["versions"] == ["1"]
    (x,) = model["inputs"]
    assert (x["name"], x["datatype"], [int(n) for n in x["shape"]]) == ("x", "FP32", [-1])
    protocol.refuses(lambda: client.get_model_metadata("none"), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda c: c.get_model_config("identity"), "ModelConfig"),
        (lambda c: c.get_trace_settings(), "TraceSetting"),
        (lambda c: c.update_trace_settings(settings={"trace_level": "OFF"}), "TraceSetting"),
        (lambda c: c.get_log_settings(), "LogSettings"),
        (lambda c: c.update_log_settings({"log_info": True}), "LogSettings"),
    ],
)
def test_limitations(protocol, client, call, method):
    """The texts are those of docs/serving.md."""
    with pytest.raises(InferenceServerException) as error:
        call(client)
    assert str(error.value) == {
        "http": "[404] this path is not served; those of the protocol begin with /v2",
        "grpc": f"[StatusCode.UNIMPLEMENTED] unknown method {method} for service inference.GRPCInferenceService",
    }[protocol.name]


def test_statistics(protocol, client):
    def count():
        stats = protocol.dict(client.get_inference_statistics("identity"))["model_stats"]
        return int(stats[0].get("inference_count", 0)), int(stats[0]["inference_stats"]["success"].get("ns", 0))

    before = count()
    x = numbers(10)
    client.infer("identity", [protocol.input("x", x)])
    after = count()
    assert after[0] > before[0] and after[1] > before[1]
    assert protocol.dict(client.get_inference_statistics())["model_stats"]
    protocol.refuses(lambda: client.get_inference_statistics("none"), 404, "NOT_FOUND")


def test_repository(protocol, client):
    index = protocol.dict(client.get_model_repository_index())
    models = index["models"] if isinstance(index, dict) else index
    assert {"identity"} <= {m["name"] for m in models if m["state"] == "READY"}
    assert "-model-control" in protocol.refuses(lambda: client.load_model("identity"), 400, "UNIMPLEMENTED")
    assert "-model-control" in protocol.refuses(lambda: client.unload_model("identity"), 400, "UNIMPLEMENTED")
    for parameters in {"config": "{}"}, {"config": "{}", "files": {"file:1/model.py": b"x"}}:
        assert "of load is not supported" in protocol.refuses(lambda: client.load_model("identity", **parameters), 400, "UNIMPLEMENTED")


def test_settings_are_refused(protocol, client):
    protocol.refuses(lambda: client.update_trace_settings(settings={"trace_level": "OFF"}), 404, "UNIMPLEMENTED")
    protocol.refuses(lambda: client.get_trace_settings(), 404, "UNIMPLEMENTED")
    protocol.refuses(lambda: client.update_log_settings({"log_verbose_level": 1}), 404, "UNIMPLEMENTED")
    protocol.refuses(lambda: client.get_log_settings(), 404, "UNIMPLEMENTED")


def test_cuda(protocol, client):
    client.unregister_cuda_shared_memory()  # clients do this first
    assert not protocol.dict(client.get_cuda_shared_memory_status()).get("regions") if protocol.name == "grpc" else client.get_cuda_shared_memory_status() == []
    protocol.refuses(lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 64), 404, "UNIMPLEMENTED")


@pytest.mark.parametrize("n", SIZES)
def test_infer(protocol, client, n):
    x = numbers(n)
    answer = client.infer("identity", [protocol.input("x", x)], request_id="an id")
    y = answer.as_numpy("y")
    assert y.dtype == x.dtype and numpy.array_equal(x, y)
    response = protocol.dict(answer.get_response())
    assert response["model_name"] == "identity" and response["model_version"] == "1" and response["id"] == "an id"


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_json(given, wanted):
    """HTTP carries tensors in JSON and in binary, in both directions."""
    protocol = Protocol("http")
    with protocol.connect() as client:
        for n in (0, 1, 3000):
            x = numbers(n) / numpy.float32(3)
            answer = client.infer(
                "identity", [protocol.input("x", x, binary_data=given)], outputs=[protocol.output("y", binary_data=wanted)]
            )
            assert numpy.array_equal(answer.as_numpy("y"), x)
            assert ("data" in answer.get_output("y")) == (not wanted)


def test_json_floats():
    """Whole floats stay floats in HTTP's JSON, and keep their sign."""
    protocol = Protocol("http")
    x = numpy.array([-0.0, 0.0, 1.0, -2.0, 1e6, 0.5], numpy.float32)
    with protocol.connect() as client:
        answer = client.infer("identity", [protocol.input("x", x, binary_data=False)], outputs=[protocol.output("y", binary_data=False)])
        assert numpy.array_equal(numpy.signbit(answer.as_numpy("y")), numpy.signbit(x))
        assert all(type(v) is float for v in answer.get_output("y")["data"])


@pytest.mark.parametrize("n", [0, 10, 1_000_000])
def test_compressed(protocol, client, n):
    x = numbers(n)
    options = (
        {"compression_algorithm": "gzip"}
        if protocol.name == "grpc"
        else {"request_compression_algorithm": "gzip", "response_compression_algorithm": "gzip"}
    )
    answer = client.infer("identity", [protocol.input("x", x)], **options)
    assert numpy.array_equal(answer.as_numpy("y"), x)


def test_errors(protocol, client):
    x = numbers(4)

    def refused(model, tensor, http=400, grpc="INVALID_ARGUMENT", **options):
        return protocol.refuses(lambda: client.infer(model, [tensor], **options), http, grpc)

    assert "none" in refused("none", protocol.input("x", x), 404, "NOT_FOUND")
    assert "2" in refused("identity", protocol.input("x", x), 404, "NOT_FOUND", model_version="2")
    assert "z" in refused("identity", protocol.input("z", x))
    assert "FP32" in refused("identity", protocol.input("x", x.astype(numpy.float64)))
    assert "shape" in refused("identity", protocol.input("x", x.reshape(2, 2)))
    assert "w" in refused("identity", protocol.input("x", x), outputs=[protocol.output("w")])
    refused("identity", protocol.input("x", x), 400, "UNIMPLEMENTED", outputs=[protocol.output("y", class_count=2)])
    refused("identity", protocol.input("x", numpy.array([b"a"], dtype=numpy.object_)))
    assert numpy.array_equal(client.infer("identity", [protocol.input("x", x)]).as_numpy("y"), x)


def test_parameters(protocol, client):
    """Parameters without an effect here are ignored. Those of unsupported extensions are refused."""
    x = numbers(4)
    answer = client.infer(
        "identity",
        [protocol.input("x", x)],
        priority=3,
        timeout=10_000_000,
        parameters={"mine": "text", "number": 3, "flag": True},
        headers={"x-of-mine": "a"},
    )
    assert numpy.array_equal(answer.as_numpy("y"), x)
    sequence = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
    message = protocol.refuses(lambda: client.infer("identity", [protocol.input("x", x)], **sequence), 400, "UNIMPLEMENTED")
    assert "sequences" in message


def test_stream(grpc_client):
    """A stream answers in order, reports errors, and continues after them."""
    protocol, answers = Protocol("grpc"), queue.Queue()
    for compression in (None, "gzip"):
        grpc_client.start_stream(lambda result, error: answers.put((result, error)), compression_algorithm=compression)
        x = [numbers(5000 * i) for i in range(20)]
        for i, a in enumerate(x):
            grpc_client.async_stream_infer(
                "none" if i % 5 == 3 else "identity", [protocol.input("x", a)], request_id=str(i), enable_empty_final_response=True
            )
        for i, a in enumerate(x):
            result, error = answers.get(timeout=60)
            if i % 5 == 3:
                assert "none" in error.message()
                continue
            assert error is None
            response = result.get_response()
            assert response.id == str(i) and response.parameters["triton_final_response"].bool_param
            assert numpy.array_equal(result.as_numpy("y"), a)
        grpc_client.stop_stream()
        assert answers.empty()


def test_asyncio_grpc():
    protocol = Protocol("grpc")

    async def run():
        async with tritonclient.grpc.aio.InferenceServerClient(address("grpc")) as client:
            assert await client.is_server_ready()
            x = [numbers(700 * i) for i in range(30)]
            answers = await asyncio.gather(*(client.infer("identity", [protocol.input("x", a)]) for a in x))
            assert all(numpy.array_equal(r.as_numpy("y"), a) for r, a in zip(answers, x))
            with pytest.raises(InferenceServerException) as e:
                await client.infer("none", [protocol.input("x", x[1])])
            assert e.value.status() == "StatusCode.NOT_FOUND"

            async def requests():
                for i, a in enumerate(x):
                    yield {"model_name": "identity", "inputs": [protocol.input("x", a)], "request_id": str(i)}

            i = 0
            async for result, error in client.stream_infer(requests()):
                assert error is None and numpy.array_equal(result.as_numpy("y"), x[i])
                i += 1
            assert i == len(x)

    asyncio.run(run())


def test_asyncio_http():
    protocol = Protocol("http")

    async def run():
        async with tritonclient.http.aio.InferenceServerClient(address("http")) as client:
            assert await client.is_server_ready()
            x = [numbers(700 * i) for i in range(30)]
            answers = await asyncio.gather(*(client.infer("identity", [protocol.input("x", a)]) for a in x))
            assert all(numpy.array_equal(r.as_numpy("y"), a) for r, a in zip(answers, x))
            with pytest.raises(InferenceServerException) as e:
                await client.infer("none", [protocol.input("x", x[1])])
            assert e.value.status() == "404"

    asyncio.run(run())


def test_threads(protocol):
    """Each of many threads gets the answers to its own requests."""
    wrong = []

    def work(seed):
        with protocol.connect() as client:
            for i in range(25):
                x = numbers(1 + (seed * 37 + i * 101) % 5000) + numpy.float32(seed)
                if not numpy.array_equal(client.infer("identity", [protocol.input("x", x)]).as_numpy("y"), x):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
