"""The same function as a runtime of MLServer."""

import numpy
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.codecs import NumpyCodec
from sobel_kernel import sobel


class Sobel(MLModel):
    async def load(self):
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        grey = numpy.ascontiguousarray(NumpyCodec.decode_input(payload.inputs[0]), numpy.float32)
        edges = numpy.empty(grey.shape, numpy.uint8)
        sobel(grey, edges)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("edges", edges)])
