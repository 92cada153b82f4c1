/*
 * usmb_numba.h: Arrays in and out of functions that Numba compiles.
 */
#ifndef USMB_NUMBA_H
#define USMB_NUMBA_H

#include <stdint.h>

#include "usmb_pyapi.h"

/* Fills Numba's structure of an array (out) from an Array. Returns a new object that holds
   the Array and its memory, whatever releases it: the caller makes the owner of the
   structure's meminfo of it. kind, bits: the elements as NumPy names them; layout: 'C',
   'F' or 'A'. */
PyObject *usmb_numba_take(PyObject *obj, void *out, int32_t kind, int32_t bits, int32_t ndim, int32_t layout,
                          int32_t writable);
/* The Array that a structure was filled from, a new reference; NULL, without an
   exception, when there is none or the structure is not of all of it. */
PyObject *usmb_numba_box(void *in, int32_t ndim);
/* Tells the addresses of both to Python. */
int usmb_numba_register(PyObject *module);

#endif
