"""Luminance of an RGB picture, Y = 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601): on the SYCL
device of the picture, or by NumPy without SYCL."""

import ctypes

import numpy

INPUTS = {"picture": ("FP32", (-1, -1, 3))}
OUTPUTS = {"luminance": ("FP32", (-1, -1))}
WRITES_ALL = True
# The OpenCL CPU driver fails when many threads submit work at the same time.
SERIAL = True

_KERNEL = """
/* One work item a pixel. */
__kernel void luminance(__global const float *rgb, __global float *grey, ulong pixels)
{
  size_t i = get_global_id(0);
  if (i < pixels)
    grey[i] = 0.299f * rgb[3 * i] + 0.587f * rgb[3 * i + 1] + 0.114f * rgb[3 * i + 2];
}
"""
_WEIGHTS = numpy.array([0.299, 0.587, 0.114], dtype=numpy.float32)

try:
    import dpctl.memory
    import dpctl.program
except ImportError:
    dpctl = None

_kernels = {}  # by queue; calls of this model run one at a time


def _kernel(queue):
    if queue not in _kernels:
        program = dpctl.program.create_program_from_source(queue, _KERNEL)
        _kernels[queue] = program.get_sycl_kernel("luminance")
    return _kernels[queue]


def infer(picture, *, outputs):
    grey = outputs["luminance"]
    pixels = grey.size
    if not pixels:
        return
    if dpctl is None or picture.usm_type is None or grey.usm_type is None:
        numpy.matmul(numpy.asarray(picture), _WEIGHTS, out=numpy.asarray(grey))
        return
    rgb_memory, grey_memory = dpctl.memory.as_usm_memory(picture), dpctl.memory.as_usm_memory(grey)
    queue = grey_memory.sycl_queue
    queue.submit(_kernel(queue), [rgb_memory, grey_memory, ctypes.c_ulonglong(pixels)], [pixels]).wait()
