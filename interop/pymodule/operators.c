/* operators.c: comparison, membership and arithmetic. Array computes nothing: what
   another array library would answer element by element is refused with the way to
   such a library, so that no answer is silently another one. */
#include "usmb_array.h"
#include "usmb_asarray.h"
#include "usmb_operators.h"
#include "usmb_support.h"

static PyObject *refuse(const char *operator)
{
	return usmb_raise(PyExc_TypeError,
	                  "an Array computes nothing, so it has no %s; use numpy.asarray(a), where the host may read "
	                  "the memory (a.asnumpy() copies it there), or dpnp.tensor.from_dlpack(a)",
	                  operator);
}

/* Whether array libraries would work with o element by element. */
static int is_operand(PyObject *o)
{
	if (usmb_is_array(o) || PyList_Check(o) || PyTuple_Check(o) || PyNumber_Check(o)) return 1;
	if (PyUnicode_Check(o) || PyBytes_Check(o)) return 0;
	return PyObject_CheckBuffer(o) || usmb_is_exporter(o);
}

/* ---- comparison ----------------------------------------------------------------- */

PyObject *usmb_array_richcompare(PyObject *self, PyObject *other, int op)
{
	static const char *const texts[] = {"<", "<=", "==", "!=", ">", ">="};
	if (self == other && (op == Py_EQ || op == Py_NE)) return PyBool_FromLong(op == Py_EQ);
	if (is_operand(other)) return refuse(texts[op]);
	return Py_NewRef(Py_NotImplemented);
}

Py_hash_t usmb_array_hash(PyObject *self)
{
	uintptr_t p = (uintptr_t)self;
	return (Py_hash_t)(p >> 4 | p << (8 * sizeof p - 4)); /* never -1: objects are aligned */
}

int usmb_array_contains(PyObject *self, PyObject *other)
{
	(void)self;
	(void)other;
	refuse("\"in\"");
	return -1;
}

/* ---- arithmetic ------------------------------------------------------------------ */

static PyObject *refuse_both(PyObject *a, PyObject *b, const char *operator)
{
	if (is_operand(usmb_is_array(a) ? b : a)) return refuse(operator);
	return Py_NewRef(Py_NotImplemented);
}

#define X(slot, text) \
	PyObject *usmb_array_##slot(PyObject *a, PyObject *b) \
	{ \
		return refuse_both(a, b, text); \
	}
USMB_BINARY_OPERATORS(X)
#undef X

#define X(slot, text) \
	PyObject *usmb_array_##slot(PyObject *a) \
	{ \
		(void)a; \
		return refuse(text); \
	}
USMB_UNARY_OPERATORS(X)
#undef X

PyObject *usmb_array_power(PyObject *a, PyObject *b, PyObject *modulus)
{
	(void)modulus;
	return refuse_both(a, b, "**");
}
