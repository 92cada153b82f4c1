"""The loops that the Go service calls: one through Python, one as a C function."""

import numba
import numpy


@numba.njit
def energy(signal):
    total = 0.0
    for x in signal:
        total += x * x
    return total


@numba.cfunc(numba.float64(numba.types.CPointer(numba.float64), numba.int64))
def energy_at(start, count):
    total = 0.0
    for x in numba.carray(start, count):
        total += x * x
    return total


def through_numpy(signal):
    return energy(numpy.asarray(signal))


address = energy_at.address
