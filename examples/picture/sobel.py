"""Computes Sobel edges, by Numba or by NumPy."""

import math
import time


def _numba_kernel():
    """Compiles the kernel for the types of the arrays before the first picture."""
    import numba
    import numpy

    two, limit = numpy.float32(2), numpy.float32(255)

    @numba.njit("void(float32[:, ::1], uint8[:, ::1])", nogil=True)
    def sobel(grey, edges):
        height, width = grey.shape
        for i in range(height):
            above, below = max(i - 1, 0), min(i + 1, height - 1)
            for j in range(width):
                left, right = max(j - 1, 0), min(j + 1, width - 1)
                gx = (grey[above, right] + two * grey[i, right] + grey[below, right]) - (
                    grey[above, left] + two * grey[i, left] + grey[below, left]
                )
                gy = (grey[below, left] + two * grey[below, j] + grey[below, right]) - (
                    grey[above, left] + two * grey[above, j] + grey[above, right]
                )
                edges[i, j] = numpy.uint8(min(limit, numpy.rint(math.sqrt(gx * gx + gy * gy))))

    # The first call takes longer, because Numba initializes itself.
    sobel(numpy.zeros((1, 1), numpy.float32), numpy.zeros((1, 1), numpy.uint8))
    return sobel


def _numpy_kernel():
    import numpy

    def sobel(grey, edges):
        p = numpy.pad(grey, 1, mode="edge")
        gx = (p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2])
        gy = (p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:])
        edges[...] = numpy.minimum(numpy.rint(numpy.sqrt(gx * gx + gy * gy)), 255).astype(numpy.uint8)

    return sobel


def run(grey, edges):
    """Computes the Sobel magnitude (3 x 3, edges replicated), rounded, at most 255.

    grey is float32 (h, w), edges uint8 (h, w); both are imported by DLPack as
    memory of the host. Returns a dictionary and NumPy's array of the edges. The
    dictionary has the library, the hand-overs as (address, nanoseconds), and the
    times of compiling and of computing in nanoseconds.
    """
    import numpy

    start = time.perf_counter_ns()
    try:
        kernel, engine = _numba_kernel(), "Numba"
    except ImportError:
        kernel, engine = _numpy_kernel(), "NumPy"
    compiled = time.perf_counter_ns() - start

    start = time.perf_counter_ns()
    grey_array = numpy.from_dlpack(grey, device="cpu")
    middle = time.perf_counter_ns()
    edges_array = numpy.from_dlpack(edges, device="cpu")
    end = time.perf_counter_ns()
    handovers = [(grey_array.ctypes.data, middle - start), (edges_array.ctypes.data, end - middle)]

    start = time.perf_counter_ns()
    kernel(grey_array, edges_array)
    done = time.perf_counter_ns()
    facts = {
        "device": "host",
        "engine": engine,
        "handovers": handovers,
        "compiled": compiled,
        "computed": done - start,
    }
    return facts, edges_array
