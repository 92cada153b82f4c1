/*
 * usmb_operators.h: what Array has no operators for.
 */
#ifndef USMB_OPERATORS_H
#define USMB_OPERATORS_H

#include "usmb_array.h"

PyObject *usmb_array_richcompare(PyObject *self, PyObject *other, int op);
Py_hash_t usmb_array_hash(PyObject *self);
int usmb_array_contains(PyObject *self, PyObject *other);

/* Every operator of Python's arithmetic, as X(slot, operator). */
#define USMB_BINARY_OPERATORS(X) \
	X(add, "+") \
	X(subtract, "-") \
	X(multiply, "*") \
	X(true_divide, "/") \
	X(floor_divide, "//") \
	X(remainder, "%") \
	X(divmod, "divmod()") \
	X(matrix_multiply, "@") \
	X(lshift, "<<") \
	X(rshift, ">>") \
	X(and, "&") \
	X(or, "|") \
	X(xor, "^")
#define USMB_UNARY_OPERATORS(X) \
	X(negative, "-") \
	X(positive, "+") \
	X(absolute, "abs()") \
	X(invert, "~")

#define X(slot, text) PyObject *usmb_array_##slot(PyObject *a, PyObject *b);
USMB_BINARY_OPERATORS(X)
#undef X
#define X(slot, text) PyObject *usmb_array_##slot(PyObject *a);
USMB_UNARY_OPERATORS(X)
#undef X
PyObject *usmb_array_power(PyObject *a, PyObject *b, PyObject *modulus);

#endif
