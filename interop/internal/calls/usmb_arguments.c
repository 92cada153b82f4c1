//go:build linux && cgo

/* Arguments: Python's objects of what Go wrote down. */
#include <stdlib.h>
#include <string.h>

#include "usmb_calls.h"
#include "handover.h"

static double number_of(uint64_t word)
{
	double d;
	memcpy(&d, &word, sizeof d);
	return d;
}

/* Notes memory that is to be waited for; 0 with an exception. */
static int note(usmb_waits *w, usmb_cell *cell)
{
	if (w->n == w->room) {
		usmb_cell **more = malloc(2 * (size_t)w->room * sizeof *more);
		if (!more) {
			PyErr_NoMemory();
			return 0;
		}
		memcpy(more, w->cells, w->n * sizeof *more);
		if (w->cells != w->few) free(w->cells);
		w->cells = more;
		w->room *= 2;
	}
	usmb_cell_retain(cell);
	w->cells[w->n++] = cell;
	return 1;
}

static PyObject *array_of(usmb_item *item, uint32_t ndim, usmb_waits *waits)
{
	uint64_t *words = item->code + item->at + 1;
	usmb_dl_dtype dtype;
	memcpy(&dtype, words + 2, sizeof dtype);
	uint32_t flags = (uint32_t)words[3];
	PyObject *a = usmb_handover_array((usmb_cell *)(uintptr_t)words[0], (uintptr_t)words[1], dtype,
	                                  flags & ~USMB_ARG_WAIT, (int32_t)ndim, (int64_t *)words + 4,
	                                  (int64_t *)words + 4 + ndim);
	/* After a failure the reference of the cell is still the row's, and this the value at
	   which usmb_item_clear goes on. */
	if (!a) return NULL;
	item->at += 5 + 2 * ndim;
	if (!(flags & USMB_ARG_WAIT) || note(waits, (usmb_cell *)(uintptr_t)words[0])) return a;
	Py_DECREF(a);
	return NULL;
}

static PyObject *sequence(usmb_item *item, Py_ssize_t n, int tuple, usmb_waits *waits)
{
	PyObject *list = tuple ? PyTuple_New(n) : PyList_New(n);
	for (Py_ssize_t i = 0; list && i < n; i++) {
		PyObject *v = usmb_argument(item, waits);
		if (!v) {
			Py_CLEAR(list);
		} else if (tuple) {
			PyTuple_SetItem(list, i, v);
		} else {
			PyList_SetItem(list, i, v);
		}
	}
	return list;
}

static PyObject *dict(usmb_item *item, Py_ssize_t n, usmb_waits *waits)
{
	PyObject *d = PyDict_New();
	for (Py_ssize_t i = 0; d && i < n; i++) {
		PyObject *key = usmb_argument(item, waits);
		PyObject *v = key ? usmb_argument(item, waits) : NULL;
		if (!v || PyDict_SetItem(d, key, v) < 0) Py_CLEAR(d);
		Py_XDECREF(key);
		Py_XDECREF(v);
	}
	return d;
}

PyObject *usmb_argument(usmb_item *item, usmb_waits *waits)
{
	uint64_t word = item->code[item->at], n = word >> USMB_ARG_BITS;
	uint32_t kind = word & ((1u << USMB_ARG_BITS) - 1);
	if (kind == USMB_ARG_ARRAY) return array_of(item, (uint32_t)n, waits);
	const uint64_t *in = item->code + ++item->at;
	switch (kind) {
	case USMB_ARG_NONE: return Py_NewRef(Py_None);
	case USMB_ARG_BOOL: return Py_NewRef(n ? Py_True : Py_False);
	case USMB_ARG_INT: item->at++; return PyLong_FromLongLong((int64_t)*in);
	case USMB_ARG_UINT: item->at++; return PyLong_FromUnsignedLongLong(*in);
	case USMB_ARG_FLOAT: item->at++; return PyFloat_FromDouble(number_of(*in));
	case USMB_ARG_COMPLEX: item->at += 2; return PyComplex_FromDoubles(number_of(in[0]), number_of(in[1]));
	case USMB_ARG_TEXT:
		item->at += (uint32_t)(n / 8 + 1);
		return PyUnicode_FromStringAndSize((const char *)in, (Py_ssize_t)n);
	case USMB_ARG_BYTES:
		item->at += (uint32_t)(n / 8 + 1);
		return PyBytes_FromStringAndSize((const char *)in, (Py_ssize_t)n);
	case USMB_ARG_BORROWED: item->at++; return Py_NewRef((PyObject *)(uintptr_t)*in);
	case USMB_ARG_LIST:
	case USMB_ARG_TUPLE: return sequence(item, (Py_ssize_t)n, kind == USMB_ARG_TUPLE, waits);
	default: return dict(item, (Py_ssize_t)n, waits);
	}
}
