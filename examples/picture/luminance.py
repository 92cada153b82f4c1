"""Computes the luminance, by a SYCL kernel or by NumPy."""

import ctypes
import time


def with_dpctl(rgb, grey, source):
    """Computes Y = 0.299 R + 0.587 G + 0.114 B on the SYCL device of both buffers.

    rgb is float32 (h, w, 3), grey float32 (h, w), both USM of one queue;
    source is OpenCL C. Returns a dictionary and dpctl's object for grey. The
    dictionary has the device, the hand-overs as (address, nanoseconds), and the
    times of compiling and of computing in nanoseconds.
    """
    import dpctl.memory
    import dpctl.program

    start = time.perf_counter_ns()
    rgb_memory = dpctl.memory.as_usm_memory(rgb)
    middle = time.perf_counter_ns()
    grey_memory = dpctl.memory.as_usm_memory(grey)
    end = time.perf_counter_ns()
    handovers = [(rgb_memory._pointer, middle - start), (grey_memory._pointer, end - middle)]

    queue = rgb_memory.sycl_queue
    start = time.perf_counter_ns()
    kernel = dpctl.program.create_program_from_source(queue, source).get_sycl_kernel("luminance")
    compiled = time.perf_counter_ns()
    pixels = grey.size
    queue.submit(kernel, [rgb_memory, grey_memory, ctypes.c_ulonglong(pixels)], [pixels]).wait()
    done = time.perf_counter_ns()
    facts = {
        "device": queue.sycl_device.filter_string,
        "engine": "dpctl",
        "handovers": handovers,
        "compiled": compiled - start,
        "computed": done - compiled,
    }
    return facts, grey_memory


def with_numpy(rgb, grey):
    """Is with_dpctl without SYCL: NumPy imports the memory by DLPack."""
    import numpy

    start = time.perf_counter_ns()
    rgb_array = numpy.from_dlpack(rgb, device="cpu")
    middle = time.perf_counter_ns()
    grey_array = numpy.from_dlpack(grey, device="cpu")
    end = time.perf_counter_ns()
    handovers = [(rgb_array.ctypes.data, middle - start), (grey_array.ctypes.data, end - middle)]

    weights = numpy.array([0.299, 0.587, 0.114], dtype=numpy.float32)
    start = time.perf_counter_ns()
    numpy.matmul(rgb_array, weights, out=grey_array)
    done = time.perf_counter_ns()
    facts = {
        "device": "host",
        "engine": "NumPy",
        "handovers": handovers,
        "compiled": 0,
        "computed": done - start,
    }
    return facts, grey_array
