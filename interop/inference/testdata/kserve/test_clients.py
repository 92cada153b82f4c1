"""KServe's REST and gRPC clients, unmodified."""

import asyncio

import httpx
import numpy
import pytest
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig
from kserve.protocol.infer_type import InferInput, InferRequest, RequestedOutput


def infer_request(x, model="identity", binary=True, outputs=None):
    given = InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x, binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=[given], request_outputs=outputs)


def rest(call):
    """Runs call with a REST client."""

    async def run():
        client = InferenceRESTClient(RESTConfig(protocol="v2"))
        try:
            return await call(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_rest_health(rest_url):
    assert rest(lambda c: c.is_server_live(rest_url)) is True
    assert rest(lambda c: c.is_server_ready(rest_url)) is True
    assert rest(lambda c: c.is_model_ready(rest_url, "identity")) is True
    assert rest(lambda c: c.is_model_ready(rest_url, "none")) is False


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
def test_rest_infer(rest_url, binary_input, binary_output):
    x = numpy.array([1.0, -0.0, 0.1, 16777216.0], numpy.float32)
    wanted = RequestedOutput("y", parameters={"binary_data": binary_output})
    request = infer_request(x, binary=binary_input, outputs=[wanted])
    response = rest(lambda c: c.infer(rest_url, request, model_name="identity"))
    y = response.outputs[0].as_numpy()
    assert y.dtype == numpy.float32 and y.tobytes() == x.tobytes()


def test_nan(rest_url):
    x = numpy.array([numpy.nan, numpy.inf], numpy.float32)
    wanted = RequestedOutput("y", parameters={"binary_data": True})
    response = rest(lambda c: c.infer(rest_url, infer_request(x, outputs=[wanted]), model_name="identity"))
    assert response.outputs[0].as_numpy().tobytes() == x.tobytes()
    # In JSON, this client sends null.
    with pytest.raises(httpx.HTTPStatusError) as error:
        rest(lambda c: c.infer(rest_url, infer_request(x, binary=False), model_name="identity"))
    assert error.value.response.status_code == 400
    assert 'input \\"x\\": element 0' in error.value.response.text and "null" in error.value.response.text


def test_grpc(grpc_url):
    async def run():
        client = InferenceGRPCClient(grpc_url)
        try:
            assert await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready("identity")
            assert not await client.is_model_ready("none")
            x = numpy.array([1.0, -0.0, numpy.nan], numpy.float32)
            response = await client.infer(infer_request(x))
            assert response.outputs[0].as_numpy().tobytes() == x.tobytes()
        finally:
            await client.close()

    asyncio.run(run())
