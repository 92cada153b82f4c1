/*
 * usmb_assign.h: writing elements.
 */
#ifndef USMB_ASSIGN_H
#define USMB_ASSIGN_H

#include "usmb_array.h"
#include "usmb_index.h"
#include "usmb_support.h"

int usmb_array_assign(PyObject *self, PyObject *key, PyObject *value); /* mp_ass_subscript */
int usmb_array_assign_item(PyObject *self, Py_ssize_t i, PyObject *value);
PyObject *usmb_array_fill(PyObject *self, PyObject *value);
/* Writes src, broadcast and converted, to a part of dst, whoever may write to it. */
int usmb_assign_array(usmb_array *dst, const usmb_region *part, usmb_array *src);
/* The same of all of dst with what value is. */
int usmb_assign_all(usmb_array *dst, PyObject *value);

int usmb_go_assign(usmb_array *dst, usmb_region *part, usmb_array *src, usmb_goerr *err);

#endif
