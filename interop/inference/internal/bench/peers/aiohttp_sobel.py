"""The same function behind aiohttp: the body is the array, its shape is in the path.

Small arrays are computed where they arrive, which is quickest for them; large ones on
threads, since the function needs no GIL.
"""

import asyncio

import numpy
from aiohttp import web
from sobel_kernel import sobel

INLINE = 128 << 10


def compute(body, height, width):
    edges = numpy.empty((height, width), numpy.uint8)
    sobel(numpy.frombuffer(body, numpy.float32).reshape(height, width), edges)
    return edges


async def infer(request):
    body = await request.read()
    height, width = int(request.match_info["height"]), int(request.match_info["width"])
    if len(body) <= INLINE:
        edges = compute(body, height, width)
    else:
        edges = await asyncio.get_running_loop().run_in_executor(None, compute, body, height, width)
    return web.Response(body=memoryview(edges).cast("B"), content_type="application/octet-stream")


async def main():
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/sobel/{height}/{width}", infer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("listening on", "%s:%d" % runner.addresses[0], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
