/*
 * usmb_buffer.h: the buffer protocol and NumPy's array interface.
 */
#ifndef USMB_BUFFER_H
#define USMB_BUFFER_H

#include "usmb_pyapi.h"

int usmb_array_getbuffer(PyObject *self, Py_buffer *view, int flags);
void usmb_array_releasebuffer(PyObject *self, Py_buffer *view);
PyObject *usmb_array_interface(PyObject *self, void *closure);
/* A host array on obj's buffer, without a copy; -1 and TypeError without one. */
PyObject *usmb_import_buffer(PyObject *obj);

#endif
