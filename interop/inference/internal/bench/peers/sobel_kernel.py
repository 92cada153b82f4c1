"""The function that all serve: the models' Sobel edges, for NumPy's arrays."""

import math

import numba
import numpy

_two, _limit = numpy.float32(2), numpy.float32(255)


@numba.njit("void(Array(float32, 2, 'C', readonly=True), uint8[:, ::1])", nogil=True)
def sobel(grey, edges):
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
