/*
 * usmb_pytext.h: texts of objects, copied for Go.
 */
#ifndef USMB_PYTEXT_H
#define USMB_PYTEXT_H

#include "usmb_pyresult.h"

/* What usmb_pyop_text makes a text of. */
enum { USMB_PYT_VALUE = 0, USMB_PYT_STR, USMB_PYT_REPR, USMB_PYT_TYPE, USMB_PYT_HEX };

usmb_pyret usmb_pyop_text(void *o, int what); /* val: malloc'ed UTF-8, num: length */

/* GIL: a malloc'ed copy of a str in r, lone surrogates written as escapes unless
   strict. 1, or 0 with an exception. */
int usmb_py_copy_text(PyObject *s, int strict, usmb_pyret *r);

/* GIL: "Class" for built-in ones, else "module.Class". New reference. */
PyObject *usmb_py_class_name(PyTypeObject *t);

#endif /* USMB_PYTEXT_H */
