/* device.c: the type Device and devices(). */
#include <stdlib.h>
#include <string.h>

#include "docstrings.h"
#include "usmb_device.h"
#include "usmb_support.h"

typedef struct {
	PyObject_HEAD PyObject *filter; /* str */
	usmb_device_info info;
} device;

static PyTypeObject *device_type;
/* Devices by filter string, made when first asked for. */
static PyObject *by_filter;

static void device_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	Py_XDECREF(((device *)self)->filter);
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *device_repr(PyObject *self)
{
	device *d = (device *)self;
	return PyUnicode_FromFormat("Device(\"%s\", \"%s\")", d->info.filter, d->info.name);
}

static PyObject *device_str(PyObject *self)
{
	return Py_NewRef(((device *)self)->filter);
}

/* Equal to another Device of the same filter string, and to that string. */
static PyObject *device_compare(PyObject *a, PyObject *b, int op)
{
	PyObject *other = Py_TYPE(b) == device_type ? ((device *)b)->filter : PyUnicode_Check(b) ? b : NULL;
	if (!other || (op != Py_EQ && op != Py_NE)) return Py_NewRef(Py_NotImplemented);
	return PyObject_RichCompare(((device *)a)->filter, other, op);
}

static Py_hash_t device_hash(PyObject *self)
{
	return PyObject_Hash(((device *)self)->filter);
}

#define GETTER(name) static PyObject *get_##name(PyObject *self, void *closure __attribute__((unused)))
#define INFO(self) (&((device *)(self))->info)

GETTER(filter_string)
{
	return Py_NewRef(((device *)self)->filter);
}
GETTER(name)
{
	usmb_device_info *i = INFO(self);
	return PyUnicode_DecodeUTF8(i->name, (Py_ssize_t)strlen(i->name), "replace");
}
GETTER(backend)
{
	usmb_device_info *i = INFO(self);
	return PyUnicode_FromString(i->backend);
}
GETTER(device_type)
{
	usmb_device_info *i = INFO(self);
	return PyUnicode_FromString(i->type);
}
GETTER(dlpack_device)
{
	usmb_device_info *i = INFO(self);
	int64_t pair[2] = {i->dl_type, i->dl_id};
	if (!i->has_dl) Py_RETURN_NONE;
	return usmb_tuple_i64(pair, 2);
}
GETTER(global_mem_size)
{
	usmb_device_info *i = INFO(self);
	return PyLong_FromUnsignedLongLong(i->memory);
}

static PyGetSetDef getset[] = {
        {"filter_string", get_filter_string, NULL, doc_Device_filter_string, NULL},
        {"name", get_name, NULL, doc_Device_name, NULL},
        {"backend", get_backend, NULL, doc_Device_backend, NULL},
        {"device_type", get_device_type, NULL, doc_Device_device_type, NULL},
        {"dlpack_device", get_dlpack_device, NULL, doc_Device_dlpack_device, NULL},
        {"global_mem_size", get_global_mem_size, NULL, doc_Device_global_mem_size, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot slots[] = {
        {Py_tp_dealloc, device_dealloc}, {Py_tp_repr, device_repr},
        {Py_tp_str, device_str},         {Py_tp_richcompare, device_compare},
        {Py_tp_hash, device_hash},       {Py_tp_getset, getset},
        {Py_tp_doc, (void *)doc_Device}, {0, NULL},
};
static PyType_Spec spec = {"usmbridge.Device", sizeof(device), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int usmb_device_register(PyObject *module)
{
	device_type = (PyTypeObject *)PyType_FromSpec(&spec);
	by_filter = PyDict_New();
	if (!device_type || !by_filter) return -1;
	return PyModule_AddObjectRef(module, "Device", (PyObject *)device_type);
}

PyObject *usmb_device_filter(PyObject *o)
{
	return Py_TYPE(o) == device_type ? ((device *)o)->filter : NULL;
}

/* The Device of an entry, the same object each time. */
static PyObject *device_for(const usmb_device_info *info)
{
	PyObject *key = PyUnicode_FromString(info->filter);
	if (!key) return NULL;
	PyObject *known = PyDict_GetItemWithError(by_filter, key);
	if (known || PyErr_Occurred()) {
		Py_DECREF(key);
		Py_XINCREF(known);
		return known;
	}
	device *d = PyObject_Malloc(sizeof *d);
	if (!d) {
		Py_DECREF(key);
		return PyErr_NoMemory();
	}
	PyObject_Init((PyObject *)d, device_type);
	d->filter = key;
	d->info = *info;
	if (PyDict_SetItem(by_filter, key, (PyObject *)d) == 0) return (PyObject *)d;
	Py_DECREF(d);
	return NULL;
}

PyObject *usmb_py_devices(PyObject *m, PyObject *unused)
{
	usmb_device_info *list = NULL;
	int64_t n = 0;
	usmb_goerr err;
	(void)m;
	(void)unused;
	err.kind = USMB_ERR_NONE;
	if (usmb_go_allowed() < 0) return NULL;
	PyThreadState *saved = PyEval_SaveThread();
	int r = usmb_go_devices(&list, &n, &err);
	PyEval_RestoreThread(saved);
	if (r < 0) {
		usmb_raise_go(&err);
		return NULL;
	}
	PyObject *out = PyList_New((Py_ssize_t)n);
	for (int64_t i = 0; i < n && out; i++) {
		PyObject *d = device_for(&list[i]);
		if (d)
			PyList_SetItem(out, (Py_ssize_t)i, d);
		else
			Py_CLEAR(out);
	}
	free(list);
	return out;
}

static PyObject *device_named(const char *filter)
{
	PyObject *d = PyDict_GetItemString(by_filter, filter);
	if (d) return Py_NewRef(d);
	PyObject *all = usmb_py_devices(NULL, NULL); /* fills the dictionary */
	if (!all) return NULL;
	Py_DECREF(all);
	d = PyDict_GetItemString(by_filter, filter);
	if (d) return Py_NewRef(d);
	return usmb_raise(PyExc_RuntimeError, "the device \"%s\" is not in the list of devices any more", filter);
}

PyObject *usmb_device_of_place(usmb_place *place)
{
	return device_named(place && place->filter ? place->filter : "host");
}
