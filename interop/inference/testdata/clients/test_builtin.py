"""The built-in models."""

import numpy
import pytest


def sobel(grey):
    g = numpy.pad(grey.astype(numpy.float64), 1, mode="edge")
    above, here, below = g[:-2], g[1:-1], g[2:]
    gx = (above[:, 2:] + 2 * here[:, 2:] + below[:, 2:]) - (above[:, :-2] + 2 * here[:, :-2] + below[:, :-2])
    gy = (below[:, :-2] + 2 * below[:, 1:-1] + below[:, 2:]) - (above[:, :-2] + 2 * above[:, 1:-1] + above[:, 2:])
    return numpy.clip(numpy.rint(numpy.hypot(gx, gy)), 0, 255)


@pytest.mark.parametrize("height,width", [(1, 1), (2, 7), (64, 48)])
def test_pictures(protocol, client, height, width):
    rng = numpy.random.default_rng(height)
    picture = rng.integers(0, 256, (height, width, 3)).astype(numpy.float32)
    grey = client.infer("luminance", [protocol.input("picture", picture)]).as_numpy("luminance")
    assert grey.shape == (height, width)
    assert numpy.allclose(grey, picture @ numpy.array([0.299, 0.587, 0.114]), atol=1e-3)
    edges = client.infer("sobel", [protocol.input("luminance", grey)]).as_numpy("edges")
    assert edges.dtype == numpy.uint8 and edges.shape == (height, width)
    assert numpy.abs(edges - sobel(grey)).max() <= 1  # single precision, rounded


def test_index(protocol, client):
    index = protocol.dict(client.get_model_repository_index())
    models = index["models"] if isinstance(index, dict) else index
    assert {m["name"] for m in models} == {"identity", "luminance", "sobel"}
