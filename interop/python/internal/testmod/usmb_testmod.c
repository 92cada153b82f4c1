//go:build linux && cgo

/* A module with methods, a heap type and the buffer protocol, like the project's own modules. */
#include <pthread.h>
#include <string.h>

#include "usmb_pystate.h"
#include "usmb_testmod.h"

static _Atomic int drains, exits;

static void on_drain(void)
{
	drains++;
}
static void on_exit_of_python(void)
{
	exits++;
}

typedef struct {
	PyObject_VAR_HEAD double items[];
} vector;

static PyObject *vector_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	(void)kwargs;
	Py_ssize_t n = 0;
	if (!PyArg_ParseTuple(args, "n", &n)) return NULL;
	vector *v = (vector *)PyType_GenericAlloc(type, n);
	if (!v) return NULL;
	for (Py_ssize_t i = 0; i < n; i++) v->items[i] = (double)i;
	return (PyObject *)v;
}

static void vector_dealloc(PyObject *self)
{
	PyTypeObject *t = Py_TYPE(self);
	usmb_py_drain();
	((freefunc)PyType_GetSlot(t, Py_tp_free))(self);
	Py_DECREF(t);
}

static int vector_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
	vector *v = (vector *)self;
	return PyBuffer_FillInfo(view, self, v->items, Py_SIZE(v) * (Py_ssize_t)sizeof(double), 0, flags);
}

static PyObject *vector_sum(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	(void)args;
	(void)kwnames;
	double s = 0;
	if (PyVectorcall_NARGS((size_t)n) != 0)
		return PyErr_Format(PyExc_TypeError, "sum takes no arguments (%zd given)", n);
	for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) s += ((vector *)self)->items[i];
	return PyFloat_FromDouble(s);
}

static PyObject *vector_size(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromSsize_t(Py_SIZE(self));
}

static PyMethodDef vector_methods[] = {
        {"sum", USMB_PY_CFUNC(vector_sum), METH_FASTCALL | METH_KEYWORDS, "sum of the elements"},
        {NULL, NULL, 0, NULL}};
static PyGetSetDef vector_getset[] = {{"size", vector_size, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot vector_slots[] = {
        {Py_tp_new, vector_new},         {Py_tp_dealloc, vector_dealloc}, {Py_bf_getbuffer, vector_getbuffer},
        {Py_tp_methods, vector_methods}, {Py_tp_getset, vector_getset},   {0, NULL}};
static PyType_Spec vector_spec = {"usmb_testmod.Vector", sizeof(vector), sizeof(double),
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, vector_slots};

/* kick() requests a drain. */
static PyObject *kick(PyObject *self, PyObject *unused)
{
	(void)self;
	(void)unused;
	usmb_py_kick();
	Py_RETURN_NONE;
}

static int exec(PyObject *m)
{
	PyObject *t = PyType_FromModuleAndSpec(m, &vector_spec, NULL);
	if (!t) return -1;
	int rc = PyModule_AddType(m, (PyTypeObject *)t);
	Py_DECREF(t);
	if (usmb_py_add_drain(on_drain) || usmb_py_at_exit(on_exit_of_python)) return -1;
	return rc;
}

static PyMethodDef functions[] = {{"kick", kick, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec}, {0, NULL}};
static PyModuleDef def = {PyModuleDef_HEAD_INIT, "usmb_testmod", "for tests", 0, functions, slots, NULL, NULL, NULL};

static PyObject *init(void)
{
	return PyModuleDef_Init(&def);
}

void *usmb_testmod_init(void)
{
	PyObject *(*f)(void) = init;
	void *p;
	memcpy(&p, &f, sizeof p);
	return p;
}

int usmb_testmod_drains(void)
{
	return drains;
}
int usmb_testmod_exits(void)
{
	return exits;
}

static void *drop(void *object)
{
	usmb_py_decref_later(object);
	return NULL;
}

void usmb_testmod_drop_on_thread(void *object)
{
	pthread_t t;
	if (pthread_create(&t, NULL, drop, object) == 0) pthread_join(t, NULL);
}
