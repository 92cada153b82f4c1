"""Sobel edges of a grey picture: 3 x 3, edges replicated, rounded, at most 255."""

import math

import numba
import numpy
from usmbridge.numba import ArrayType

INPUTS = {"luminance": ("FP32", (-1, -1))}
OUTPUTS = {"edges": ("UINT8", (-1, -1))}
WRITES_ALL = True

_grey = ArrayType(numba.float32, 2, "C", readonly=True)
_edges = ArrayType(numba.uint8, 2, "C")
_two, _limit = numpy.float32(2), numpy.float32(255)


# Compiled when the module is imported, for the types of arrays that requests bring: no request
# waits for the compiler, and no call looks for the types of its arguments.
@numba.njit(numba.void(_grey, _edges), nogil=True)
def _sobel(grey, edges):
    height, width = grey.shape
    for i in range(height):
        above, below = max(i - 1, 0), min(i + 1, height - 1)
        for j in range(width):
            left, right = max(j - 1, 0), min(j + 1, width - 1)
            gx = (grey[above, right] + _two * grey[i, right] + grey[below, right]) - (
                grey[above, left] + _two * grey[i, left] + grey[below, left]
            )
            gy = (grey[below, left] + _two * grey[below, j] + grey[below, right]) - (
                grey[above, left] + _two * grey[above, j] + grey[above, right]
            )
            edges[i, j] = numpy.uint8(min(_limit, numpy.rint(math.sqrt(gx * gx + gy * gy))))


def infer(luminance, *, outputs):
    _sobel(luminance, outputs["edges"])
