"""The same function behind grpc.aio: ModelInfer with raw contents, as the service has it."""

import asyncio

import grpc
import numpy
from sobel_kernel import sobel
from tritonclient.grpc import service_pb2

INLINE = 128 << 10


def compute(request):
    (height, width) = request.inputs[0].shape
    edges = numpy.empty((height, width), numpy.uint8)
    sobel(numpy.frombuffer(request.raw_input_contents[0], numpy.float32).reshape(height, width), edges)
    answer = service_pb2.ModelInferResponse(model_name="sobel", raw_output_contents=[edges.tobytes()])
    answer.outputs.add(name="edges", datatype="UINT8", shape=[height, width])
    return answer


async def infer(request, context):
    if len(request.raw_input_contents[0]) <= INLINE:
        return compute(request)
    return await asyncio.get_running_loop().run_in_executor(None, compute, request)


async def main():
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    handler = grpc.unary_unary_rpc_method_handler(
        infer, service_pb2.ModelInferRequest.FromString, service_pb2.ModelInferResponse.SerializeToString
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


asyncio.run(main())
