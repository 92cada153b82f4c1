/* share.c: arrays sent to and received from other processes. Go has the servers and the connections. No
   function waits with the GIL held. The functions that wait for other processes handle signals meanwhile. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "handover.h"
#include "module.h"
#include "order.h"
#include "storage.h"
#include "support.h"

/* ---- arguments ------------------------------------------------------------------- */

/* Converters for PyArg_ParseTuple. */

typedef struct {
	char *s;
	Py_ssize_t n;
} text;

/* Reads seconds as nanoseconds; None means no limit, which is -1. */
static int to_time(PyObject *o, void *ns)
{
	int64_t *out = ns;
	*out = -1;
	if (o == Py_None) return 1;
	double seconds = PyFloat_AsDouble(o);
	if (seconds == -1 && PyErr_Occurred()) return 0;
	if (isnan(seconds) || seconds < 0) {
		usmb_raise(PyExc_ValueError, "timeout is seconds, 0 or more, or None to wait forever");
		return 0;
	}
	if (seconds < 9e9) *out = (int64_t)(seconds * 1e9);
	return 1;
}

static int to_text(PyObject *o, void *out)
{
	char type[64];
	text *t = out;
	if (!PyUnicode_Check(o)) {
		usmb_raise(PyExc_TypeError, "a path, name or label must be a str, not %s",
		           usmb_type_name(o, type, sizeof type));
		return 0;
	}
	t->s = (char *)PyUnicode_AsUTF8AndSize(o, &t->n);
	return t->s != NULL;
}

/* Reads the bytes of handles. */
static int to_handle(PyObject *o, void *out)
{
	char type[64];
	text *t = out;
	if (PyBytes_Check(o)) return PyBytes_AsStringAndSize(o, &t->s, &t->n) == 0;
	usmb_raise(PyExc_TypeError, "a handle must be bytes, not %s", usmb_type_name(o, type, sizeof type));
	return 0;
}

static int to_array(PyObject *o, void *out)
{
	char type[64];
	if (usmb_is_array(o)) {
		*(usmb_array **)out = (usmb_array *)o;
		return usmb_array_alive((usmb_array *)o);
	}
	usmb_raise(PyExc_TypeError, "a usmbridge.Array can be shared, not %s", usmb_type_name(o, type, sizeof type));
	return 0;
}

int usmb_py_signals(PyThreadState *saved)
{
	PyEval_RestoreThread(saved);
	int r = PyErr_CheckSignals();
	PyEval_SaveThread();
	return r;
}

/* Common start of the entries that call Go. */
static int enter(void)
{
	usmb_owner_drain();
	return usmb_go_allowed();
}

/* Holds an array for Go, unless the conversion of later arguments released it, and waits for the work of
   other libraries on it, which Go does not know. */
static int begin(usmb_array *a)
{
	if (!usmb_array_alive(a) || usmb_array_begin(a) < 0) return -1;
	if (usmb_array_wait(a) == 0) return 0;
	usmb_array_unhold(a);
	return -1;
}

/* ---- arrays ------------------------------------------------------------------------ */

/* Makes the Array of memory that Go opened; takes over its reference. */
static PyObject *received(const usmb_handover *h)
{
	usmb_array *a = usmb_array_laid_out(h->ndim, h->shape, h->strides);
	if (a)
		usmb_array_settle(a, h->cell, (char *)h->first, h->dtype, h->flags);
	else
		usmb_cell_drop_gil(h->cell);
	return (PyObject *)a;
}

/* The handle is also appended to the list before a signal can interrupt the call, so that the
   caller can always revoke it. */
PyObject *usmb_py_share_export(PyObject *m, PyObject *args)
{
	PyObject *made = NULL, *out = NULL;
	usmb_array *a;
	int64_t ns, n = 0;
	char *handle = NULL;
	(void)m;
	if (!PyArg_ParseTuple(args, "O&O&|O:_share_export", to_array, &a, to_time, &ns, &made)) return NULL;
	usmb_owner_drain();
	if (usmb_py_in_child() && !(a->flags & USMB_ARR_INTERPROCESS))
		Py_RETURN_NONE; /* sent by value, which needs no Go */
	if (enter() < 0 || begin(a) < 0) return NULL;
	USMB_GO(usmb_go_share_export(a, ns, saved, &handle, &n, &err));
	if (r == 0) out = handle ? PyBytes_FromStringAndSize(handle, (Py_ssize_t)n) : Py_NewRef(Py_None);
	if (out && handle && made && PyList_Append(made, out) < 0) Py_CLEAR(out);
	if (!out && handle) usmb_go_share_revoke(handle, n); /* the caller does not get the handle */
	free(handle);
	usmb_array_unhold(a);
	return out;
}

/* Revokes one handle or a list of handles. Allocates no Python memory, because there may be none
   left. */
PyObject *usmb_py_share_revoke(PyObject *m, PyObject *handles)
{
	Py_ssize_t all = PyList_Check(handles) ? PyList_Size(handles) : 1;
	(void)m;
	if (enter() < 0) return NULL;
	for (Py_ssize_t i = 0; i < all; i++) {
		text handle;
		PyObject *bytes = PyList_Check(handles) ? PyList_GetItem(handles, i) : handles;
		if (!bytes || !to_handle(bytes, &handle)) return NULL;
		Py_INCREF(bytes); /* other code can change the list while the GIL is dropped */
		PyThreadState *saved = usmb_py_release_gil();
		usmb_go_share_revoke(handle.s, handle.n);
		usmb_py_acquire_gil(saved);
		Py_DECREF(bytes);
	}
	Py_RETURN_NONE;
}

PyObject *usmb_py_share_open(PyObject *m, PyObject *args)
{
	text handle;
	int usm;
	int64_t ns;
	usmb_handover h;
	(void)m;
	if (!PyArg_ParseTuple(args, "O&pO&:_share_open", to_handle, &handle, &usm, to_time, &ns)) return NULL;
	if (usmb_py_in_child()) return usmb_array_unreachable();
	if (enter() < 0) return NULL;
	USMB_GO(usmb_go_share_open(handle.s, handle.n, usm, ns, saved, &h, &err));
	return r < 0 ? NULL : received(&h);
}

/* With a number as the last argument, waits for an array with a higher one. Returns the array and its number. */
PyObject *usmb_py_share_attach(PyObject *m, PyObject *args)
{
	PyObject *after = NULL;
	text path, name;
	int64_t ns;
	uint64_t sequence = 0;
	usmb_handover h;
	(void)m;
	if (!PyArg_ParseTuple(args, "O&O&O&|O:_share_attach", to_text, &path, to_text, &name, to_time, &ns, &after) ||
	    enter() < 0)
		return NULL;
	if (after) sequence = PyLong_AsUnsignedLongLong(after); /* format K does not check its range */
	if (sequence == (uint64_t)-1 && PyErr_Occurred()) return NULL;
	USMB_GO(usmb_go_share_attach(path.s, path.n, name.s, name.n, ns, saved, after ? &sequence : NULL, &h, &err));
	PyObject *a = r < 0 ? NULL : received(&h);
	return a ? Py_BuildValue("(NK)", a, (unsigned long long)sequence) : NULL;
}

/* ---- servers ------------------------------------------------------------------------ */

PyObject *usmb_py_share_names(PyObject *m, PyObject *args)
{
	text path;
	char *names = NULL;
	int64_t ns, n = 0;
	(void)m;
	if (!PyArg_ParseTuple(args, "O&O&:_share_names", to_text, &path, to_time, &ns) || enter() < 0) return NULL;
	USMB_GO(usmb_go_share_names(path.s, path.n, ns, saved, &names, &n, &err));
	PyObject *list = r < 0 ? NULL : PyList_New(0);
	const char *p = names;
	for (int64_t i = 0; i < n && list; i++) { /* a length in 8 bytes, then the name */
		uint64_t length;
		memcpy(&length, p, sizeof length);
		PyObject *s = PyUnicode_DecodeUTF8(p + sizeof length, (Py_ssize_t)length, "surrogateescape");
		p += sizeof length + length;
		if (!s || PyList_Append(list, s) < 0) Py_CLEAR(list);
		Py_XDECREF(s);
	}
	free(names);
	return list;
}

PyObject *usmb_py_share_listen(PyObject *m, PyObject *args)
{
	text path;
	char *where = NULL;
	int64_t ns, n = 0;
	long long l[USMB_SHARE_LIMITS];
	int64_t limits[USMB_SHARE_LIMITS];
	uint64_t number = 0;
	(void)m;
	if (!PyArg_ParseTuple(args, "O&O&(LLLLL):_share_listen", to_text, &path, to_time, &ns, &l[0], &l[1], &l[2],
	                      &l[3], &l[4]) ||
	    enter() < 0)
		return NULL;
	for (int i = 0; i < USMB_SHARE_LIMITS; i++) limits[i] = l[i];
	USMB_GO(usmb_go_share_listen(path.s, path.n, ns, saved, limits, &number, &where, &n, &err));
	PyObject *s = r < 0 ? NULL : PyUnicode_DecodeUTF8(where, (Py_ssize_t)n, "surrogateescape");
	free(where);
	return s ? Py_BuildValue("(KN)", (unsigned long long)number, s) : NULL;
}

PyObject *usmb_py_share_publish(PyObject *m, PyObject *args)
{
	unsigned long long number;
	text name;
	usmb_array *a;
	int64_t ns;
	(void)m;
	if (!PyArg_ParseTuple(args, "KO&O&O&:_share_publish", &number, to_text, &name, to_array, &a, to_time, &ns) ||
	    enter() < 0 || begin(a) < 0)
		return NULL;
	USMB_GO(usmb_go_share_publish(number, name.s, name.n, a, ns, saved, &err));
	usmb_array_unhold(a);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *usmb_py_share_withdraw(PyObject *m, PyObject *args)
{
	unsigned long long number;
	text name;
	(void)m;
	if (!PyArg_ParseTuple(args, "KO&:_share_withdraw", &number, to_text, &name) || enter() < 0) return NULL;
	USMB_GO(usmb_go_share_withdraw(number, name.s, name.n, &err));
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *usmb_py_share_close(PyObject *m, PyObject *args)
{
	unsigned long long number;
	(void)m;
	if (!PyArg_ParseTuple(args, "K:_share_close", &number) || enter() < 0) return NULL;
	USMB_GO(usmb_go_share_close(number, &err));
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *usmb_py_share_end_with(PyObject *m, PyObject *args)
{
	long long pid;
	text handles;
	(void)m;
	if (!PyArg_ParseTuple(args, "LO&:_share_end_with", &pid, to_handle, &handles) || enter() < 0) return NULL;
	USMB_GO(usmb_go_share_end_with(pid, handles.s, handles.n, &err));
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *usmb_py_share_stats(PyObject *m, PyObject *unused)
{
	(void)m;
	(void)unused;
	usmb_owner_drain();
	return usmb_counters(usmb_go_share_stats);
}
