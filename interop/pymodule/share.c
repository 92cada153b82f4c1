/* share.c: arrays sent to and received from other processes. Go has the servers and the connections. No
   function waits with the GIL held. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "handover.h"
#include "module.h"
#include "storage.h"
#include "support.h"

/* ---- arguments ------------------------------------------------------------------- */

/* Reads seconds; None means no limit. */
static int parse_time(PyObject *o, int64_t *ns)
{
	*ns = -1;
	if (!usmb_given(o)) return 0;
	double seconds = PyFloat_AsDouble(o);
	if (seconds == -1 && PyErr_Occurred()) return -1;
	if (isnan(seconds) || seconds < 0) {
		usmb_raise(PyExc_ValueError, "timeout is seconds, 0 or more, or None to wait forever");
		return -1;
	}
	if (seconds < 9e9) *ns = (int64_t)(seconds * 1e9);
	return 0;
}

static int parse_text(PyObject *o, const char *what, char **s, Py_ssize_t *n)
{
	char type[64];
	if (!PyUnicode_Check(o)) {
		usmb_raise(PyExc_TypeError, "%s must be a str, not %s", what, usmb_type_name(o, type, sizeof type));
		return -1;
	}
	*s = (char *)PyUnicode_AsUTF8AndSize(o, n);
	return *s ? 0 : -1;
}

static usmb_array *parse_array(PyObject *o)
{
	char type[64];
	if (usmb_is_array(o)) {
		usmb_array *a = (usmb_array *)o;
		return usmb_array_alive(a) && usmb_array_begin(a) == 0 ? a : NULL;
	}
	usmb_raise(PyExc_TypeError, "a usmbridge.Array can be shared, not %s", usmb_type_name(o, type, sizeof type));
	return NULL;
}

/* Common start of all entries. */
static int enter(PyObject *time, int64_t *ns)
{
	usmb_owner_drain();
	if (usmb_go_allowed() < 0) return -1;
	return time ? parse_time(time, ns) : 0;
}

#define GO(call) \
	PyThreadState *saved = PyEval_SaveThread(); \
	int r = call; \
	PyEval_RestoreThread(saved); \
	if (r < 0) usmb_raise_go(&err)

/* ---- arrays ------------------------------------------------------------------------ */

/* Makes the Array of memory that Go opened; takes over its reference. */
static PyObject *received(const usmb_handover *h)
{
	usmb_array *a = usmb_array_raw(h->ndim);
	if (!a) {
		usmb_cell_drop_gil(h->cell);
		return NULL;
	}
	for (int32_t i = 0; i < h->ndim; i++) {
		usmb_shape(a)[i] = h->shape[i];
		usmb_strides(a)[i] = h->strides[i];
	}
	usmb_array_settle(a, h->cell, (char *)h->first, h->dtype, h->flags);
	return (PyObject *)a;
}

/* The handle is also appended to the list before a signal can interrupt the call, so that the
   caller can always revoke it. */
PyObject *usmb_py_share_export(PyObject *m, PyObject *args)
{
	PyObject *o, *time, *made = NULL, *out = NULL;
	int64_t ns, n = 0;
	usmb_goerr err;
	char *handle = NULL;
	(void)m;
	if (!PyArg_ParseTuple(args, "OO|O:_share_export", &o, &time, &made)) return NULL;
	usmb_owner_drain();
	if (usmb_is_array(o) && usmb_py_in_child() && !(((usmb_array *)o)->flags & USMB_ARR_INTERPROCESS))
		Py_RETURN_NONE; /* sent by value, which needs no Go */
	if (enter(time, &ns) < 0) return NULL;
	usmb_array *a = parse_array(o);
	if (!a) return NULL;
	/* Go does not know the work of other libraries on their queues. */
	if (usmb_array_wait(a) == 0) {
		GO(usmb_go_share_export(a, ns, &handle, &n, &err));
		if (r == 0) out = handle ? PyBytes_FromStringAndSize(handle, (Py_ssize_t)n) : Py_NewRef(Py_None);
		if (out && handle && made && PyList_Append(made, out) < 0) {
			Py_DECREF(out);
			out = NULL;
		}
		if (!out && handle) usmb_go_share_revoke(handle, n); /* the caller does not get the handle */
		free(handle);
	}
	usmb_array_unhold(a);
	return out;
}

/* Revokes one handle or a list of handles. Allocates no Python memory, because there may be none
   left. */
PyObject *usmb_py_share_revoke(PyObject *m, PyObject *handles)
{
	char *handle;
	Py_ssize_t n, all = PyList_Check(handles) ? PyList_Size(handles) : 1;
	(void)m;
	if (enter(NULL, NULL) < 0) return NULL;
	for (Py_ssize_t i = 0; i < all; i++) {
		PyObject *bytes = PyList_Check(handles) ? PyList_GetItem(handles, i) : handles;
		if (!bytes) return NULL;
		if (!PyBytes_Check(bytes))
			return usmb_raise(PyExc_TypeError, "_share_revoke takes the bytes of handles");
		if (PyBytes_AsStringAndSize(bytes, &handle, &n) < 0) return NULL;
		Py_INCREF(bytes); /* other code can change the list while the GIL is dropped */
		PyThreadState *saved = PyEval_SaveThread();
		usmb_go_share_revoke(handle, n);
		PyEval_RestoreThread(saved);
		Py_DECREF(bytes);
	}
	Py_RETURN_NONE;
}

PyObject *usmb_py_share_open(PyObject *m, PyObject *args)
{
	PyObject *bytes, *time;
	char *handle;
	Py_ssize_t n;
	int usm;
	int64_t ns;
	usmb_handover h;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "OpO:_share_open", &bytes, &usm, &time)) return NULL;
	if (usmb_py_in_child()) return usmb_array_unreachable();
	if (enter(time, &ns) < 0) return NULL;
	if (!PyBytes_Check(bytes)) return usmb_raise(PyExc_TypeError, "_share_open takes the bytes of a handle");
	if (PyBytes_AsStringAndSize(bytes, &handle, &n) < 0) return NULL;
	GO(usmb_go_share_open(handle, n, usm, ns, &h, &err));
	return r < 0 ? NULL : received(&h);
}

PyObject *usmb_py_share_attach(PyObject *m, PyObject *args)
{
	PyObject *at, *what, *time;
	char *address, *name;
	Py_ssize_t naddress, nname;
	int64_t ns;
	usmb_handover h;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "OOO:_share_attach", &at, &what, &time) || enter(time, &ns) < 0 ||
	    parse_text(at, "path", &address, &naddress) < 0 || parse_text(what, "name", &name, &nname) < 0)
		return NULL;
	GO(usmb_go_share_attach(address, naddress, name, nname, ns, NULL, &h, &err));
	return r < 0 ? NULL : received(&h);
}

/* Waits for an array with a number above the given one. Returns the array and its number, or None
   after the timeout, so that the caller can handle signals and wait again. */
PyObject *usmb_py_share_wait(PyObject *m, PyObject *args)
{
	PyObject *at, *what, *number, *time;
	char *address, *name;
	Py_ssize_t naddress, nname;
	int64_t ns;
	usmb_handover h;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "OOOO:_share_wait", &at, &what, &number, &time) || enter(time, &ns) < 0 ||
	    parse_text(at, "path", &address, &naddress) < 0 || parse_text(what, "name", &name, &nname) < 0)
		return NULL;
	uint64_t sequence = PyLong_AsUnsignedLongLong(number);
	if (sequence == (uint64_t)-1 && PyErr_Occurred()) return NULL;
	PyThreadState *saved = PyEval_SaveThread();
	int r = usmb_go_share_attach(address, naddress, name, nname, ns, &sequence, &h, &err);
	PyEval_RestoreThread(saved);
	if (r < 0) {
		if (err.kind == USMB_ERR_TIMEOUT) Py_RETURN_NONE;
		usmb_raise_go(&err);
		return NULL;
	}
	PyObject *a = received(&h);
	PyObject *out = a ? Py_BuildValue("(OK)", a, (unsigned long long)sequence) : NULL;
	Py_XDECREF(a);
	return out;
}

/* ---- servers ------------------------------------------------------------------------ */

PyObject *usmb_py_share_names(PyObject *m, PyObject *args)
{
	PyObject *at, *time, *list;
	char *address, *names = NULL;
	Py_ssize_t naddress;
	int64_t ns, n = 0;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "OO:_share_names", &at, &time) || enter(time, &ns) < 0 ||
	    parse_text(at, "path", &address, &naddress) < 0)
		return NULL;
	GO(usmb_go_share_names(address, naddress, ns, &names, &n, &err));
	list = r < 0 ? NULL : PyList_New(0);
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
	PyObject *at, *time;
	char *address, *where = NULL;
	Py_ssize_t naddress;
	int64_t ns, n = 0;
	long long l[USMB_SHARE_LIMITS];
	int64_t limits[USMB_SHARE_LIMITS];
	int receive;
	uint64_t number = 0;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "OO(LLLLLL)p:_share_listen", &at, &time, &l[0], &l[1], &l[2], &l[3], &l[4], &l[5],
	                      &receive) ||
	    enter(time, &ns) < 0 || parse_text(at, "path", &address, &naddress) < 0)
		return NULL;
	for (int i = 0; i < USMB_SHARE_LIMITS; i++) limits[i] = l[i];
	GO(usmb_go_share_listen(address, naddress, ns, limits, receive, &number, &where, &n, &err));
	if (r < 0) return NULL;
	PyObject *s = PyUnicode_DecodeUTF8(where, (Py_ssize_t)n, "surrogateescape");
	free(where);
	PyObject *out = s ? Py_BuildValue("(KO)", (unsigned long long)number, s) : NULL;
	Py_XDECREF(s);
	return out;
}

PyObject *usmb_py_share_publish(PyObject *m, PyObject *args)
{
	PyObject *what, *o, *time;
	unsigned long long number;
	char *name;
	Py_ssize_t n;
	int64_t ns;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "KOOO:_share_publish", &number, &what, &o, &time) || enter(time, &ns) < 0 ||
	    parse_text(what, "a name", &name, &n) < 0)
		return NULL;
	usmb_array *a = parse_array(o);
	if (!a) return NULL;
	int done = 0;
	if (usmb_array_wait(a) == 0) {
		GO(usmb_go_share_publish(number, name, n, a, ns, &err));
		done = r == 0;
	}
	usmb_array_unhold(a);
	if (!done) return NULL;
	Py_RETURN_NONE;
}

PyObject *usmb_py_share_give(PyObject *m, PyObject *args)
{
	PyObject *at, *what, *o, *time;
	char *address, *label;
	Py_ssize_t naddress, nlabel;
	int64_t ns;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "OOOO:_share_give", &at, &what, &o, &time) || enter(time, &ns) < 0 ||
	    parse_text(at, "path", &address, &naddress) < 0 || parse_text(what, "label", &label, &nlabel) < 0)
		return NULL;
	usmb_array *a = parse_array(o);
	if (!a) return NULL;
	int done = 0;
	if (usmb_array_wait(a) == 0) {
		GO(usmb_go_share_give(address, naddress, label, nlabel, a, ns, &err));
		done = r == 0;
	}
	usmb_array_unhold(a);
	if (!done) return NULL;
	Py_RETURN_NONE;
}

/* Returns a label and an array, or None after the timeout, so that the caller can handle signals and
   wait again. */
PyObject *usmb_py_share_receive(PyObject *m, PyObject *args)
{
	PyObject *time;
	unsigned long long number;
	char *label = NULL;
	int64_t ns, n = 0;
	usmb_handover h;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "KO:_share_receive", &number, &time) || enter(time, &ns) < 0) return NULL;
	PyThreadState *saved = PyEval_SaveThread();
	int r = usmb_go_share_receive(number, ns, &label, &n, &h, &err);
	PyEval_RestoreThread(saved);
	if (r < 0) {
		if (err.kind == USMB_ERR_TIMEOUT) Py_RETURN_NONE;
		usmb_raise_go(&err);
		return NULL;
	}
	PyObject *a = received(&h);
	PyObject *s = a ? PyUnicode_DecodeUTF8(label, (Py_ssize_t)n, "surrogateescape") : NULL;
	PyObject *out = s ? PyTuple_Pack(2, s, a) : NULL;
	Py_XDECREF(s);
	Py_XDECREF(a);
	free(label);
	return out;
}

PyObject *usmb_py_share_withdraw(PyObject *m, PyObject *args)
{
	PyObject *what;
	unsigned long long number;
	char *name;
	Py_ssize_t n;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "KO:_share_withdraw", &number, &what) || enter(NULL, NULL) < 0 ||
	    parse_text(what, "a name", &name, &n) < 0)
		return NULL;
	GO(usmb_go_share_withdraw(number, name, n, &err));
	if (r < 0) return NULL;
	Py_RETURN_NONE;
}

PyObject *usmb_py_share_close(PyObject *m, PyObject *args)
{
	unsigned long long number;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "K:_share_close", &number) || enter(NULL, NULL) < 0) return NULL;
	GO(usmb_go_share_close(number, &err));
	if (r < 0) return NULL;
	Py_RETURN_NONE;
}

PyObject *usmb_py_share_end_with(PyObject *m, PyObject *args)
{
	PyObject *bytes;
	long long pid;
	char *handles;
	Py_ssize_t n;
	usmb_goerr err;
	(void)m;
	if (!PyArg_ParseTuple(args, "LO:_share_end_with", &pid, &bytes) || enter(NULL, NULL) < 0) return NULL;
	if (!PyBytes_Check(bytes)) return usmb_raise(PyExc_TypeError, "_share_end_with takes the bytes of handles");
	if (PyBytes_AsStringAndSize(bytes, &handles, &n) < 0) return NULL;
	GO(usmb_go_share_end_with(pid, handles, n, &err));
	if (r < 0) return NULL;
	Py_RETURN_NONE;
}

PyObject *usmb_py_share_stats(PyObject *m, PyObject *unused)
{
	static const char *const names[USMB_SHARE_STATS] = {"peers",  "unopened", "leases",
	                                                    "opened", "mapped",   "mapped_bytes"};
	int64_t v[USMB_SHARE_STATS];
	(void)m;
	(void)unused;
	if (enter(NULL, NULL) < 0) return NULL;
	PyThreadState *saved = PyEval_SaveThread();
	usmb_go_share_stats(v);
	PyEval_RestoreThread(saved);
	PyObject *dict = PyDict_New();
	for (int i = 0; i < USMB_SHARE_STATS && dict; i++) {
		PyObject *n = PyLong_FromLongLong(v[i]);
		if (!n || PyDict_SetItemString(dict, names[i], n) < 0) Py_CLEAR(dict);
		Py_XDECREF(n);
	}
	return dict;
}
