"""The Python half: the luminance by a SYCL kernel or by NumPy, and the Sobel edges by Numba or by NumPy.

Each step takes two Arrays and writes the second. It returns the imported second buffer, the names of the
library and of the device, the address and the nanoseconds of each import, and the nanoseconds of
compiling and of computing.
"""

import math
import time


def _timed(function, *args):
    start = time.perf_counter_ns()
    result = function(*args)
    return result, time.perf_counter_ns() - start


def _run(library, device, take, address, make, source, target):
    """Imports both buffers by take, and calls the function that make compiles for the first."""
    source, took = _timed(take, source)
    target, took_target = _timed(take, target)
    function, compiled = _timed(make, source)
    _, computed = _timed(function, source, target)
    return target, library, device(source), address(source), took, address(target), took_target, compiled, computed


def _on_host(library, make, source, target):
    import numpy

    def take(array):
        return numpy.from_dlpack(array, device="cpu")

    return _run(library, lambda _: "host", take, lambda array: array.ctypes.data, make, source, target)


def luminance_by_dpctl(rgb, grey, text):
    """Computes Y = 0.299 R + 0.587 G + 0.114 B on the SYCL device of both buffers, which are USM of one queue.

    rgb is float32 (h, w, 3), grey float32 (h, w); text is OpenCL C.
    """
    import ctypes

    import dpctl.memory
    import dpctl.program

    pixels = grey.size

    def make(rgb):
        queue = rgb.sycl_queue
        kernel = dpctl.program.create_program_from_source(queue, text).get_sycl_kernel("luminance")
        return lambda rgb, grey: queue.submit(kernel, [rgb, grey, ctypes.c_ulonglong(pixels)], [pixels]).wait()

    def device(memory):
        return memory.sycl_queue.sycl_device.filter_string

    return _run("dpctl", device, dpctl.memory.as_usm_memory, lambda memory: memory._pointer, make, rgb, grey)


def luminance_by_numpy(rgb, grey):
    """Is luminance_by_dpctl without SYCL."""
    import numpy

    weights = numpy.array([0.299, 0.587, 0.114], dtype=numpy.float32)
    return _on_host("NumPy", lambda _: lambda rgb, grey: numpy.matmul(rgb, weights, out=grey), rgb, grey)


def edges(grey, out):
    """Computes the Sobel magnitude (3 x 3, edges replicated), rounded, at most 255.

    grey is float32 (h, w), out uint8 (h, w), both in memory that the host can access.
    """
    try:
        import numba  # noqa: F401
    except ImportError:
        return _on_host("NumPy", lambda _: _sobel_of_numpy, grey, out)
    return _on_host("Numba", _sobel_of_numba, grey, out)


def _sobel_of_numba(_):
    """Compiles the function for the types of the arrays."""
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


def _sobel_of_numpy(grey, edges):
    import numpy

    p = numpy.pad(grey, 1, mode="edge")
    gx = (p[:-2, 2:] + 2 * p[1:-1, 2:] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[1:-1, :-2] + p[2:, :-2])
    gy = (p[2:, :-2] + 2 * p[2:, 1:-1] + p[2:, 2:]) - (p[:-2, :-2] + 2 * p[:-2, 1:-1] + p[:-2, 2:])
    edges[...] = numpy.minimum(numpy.rint(numpy.sqrt(gx * gx + gy * gy)), 255).astype(numpy.uint8)
