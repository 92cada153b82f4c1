//go:build linux && cgo

/* Calls with a context, and their interrupts. */
#include "usmb_pycall.h"

/* How many exceptions back an interrupt is looked for behind the one that ended a call. */
#define MAX_CHAIN 64

/* The calls that a thread is in, innermost first: a function of Go's that Python calls
   may call Python again. On the stacks of their functions. */
struct frame {
	usmb_call *call;
	struct frame *outer;
};
static __thread struct frame *innermost;

usmb_call *usmb_py_call_current(void)
{
	return innermost ? innermost->call : NULL;
}

/*
 * The class of the exception, made once: a KeyboardInterrupt, because that is what
 * libraries let through as a wish to stop (asyncio's loop, for one, logs and drops every
 * other BaseException of a callback), and a class of its own, so that it is told from
 * one that the code raised. GIL; NULL with an exception.
 */
static PyObject *interrupted(void)
{
	static PyObject *class;
	if (!class)
		class = usmb_py.PyErr_NewExceptionWithDoc("usmbridge.Interrupted",
		                                          "The context of a call from Go has ended. Not to be caught, "
		                                          "except to clean up and raise it again.",
		                                          usmb_py.PyExc_KeyboardInterrupt, NULL);
	return class;
}

void usmb_pyop_interrupt(usmb_call *c)
{
	PyGILState_STATE st;
	if (usmb_py_enter(&st)) return;
	/* The state cannot change now, so the exception meets this call or none. */
	if (c->state == USMB_CALL_RUNS && !c->asked) {
		PyObject *class = interrupted();
		if (!class)
			usmb_py.PyErr_Clear();
		else if (usmb_py.PyThreadState_SetAsyncExc((unsigned long)c->thread, class))
			c->asked = 1;
	}
	usmb_py_leave(st);
}

/*
 * The exception that is still to be raised in this thread is taken back. Whether there
 * was one is told by the reference that it had of the class. A thread has room for one:
 * that of a call around this one was replaced by it, and is put again.
 */
static int take_back(const usmb_call *c)
{
	PyObject *class = interrupted();
	Py_ssize_t before = class->ob_refcnt;
	usmb_py.PyThreadState_SetAsyncExc((unsigned long)c->thread, NULL);
	if (class->ob_refcnt == before) return 0;
	for (struct frame *f = innermost; f; f = f->outer) {
		if (!f->call->asked) continue;
		usmb_py.PyThreadState_SetAsyncExc((unsigned long)c->thread, class);
		break;
	}
	return 1;
}

/* Whether exc is an interrupt, or was raised because of one or while one was handled, so
   many exceptions back. */
static int stopped(PyObject *exc, int chain)
{
	PyObject *class = interrupted();
	int found = 0;
	if (!class) usmb_py.PyErr_Clear();
	if (!class) return 0;
	Py_INCREF(exc);
	for (int i = 0; exc && !found && i < chain; i++) {
		found = usmb_py_type_check(exc, (PyTypeObject *)class);
		PyObject *next = usmb_py.PyException_GetCause(exc);
		if (!next) next = usmb_py.PyException_GetContext(exc);
		Py_DECREF(exc);
		exc = next;
	}
	Py_XDECREF(exc);
	return found;
}

usmb_pyret usmb_pyop_call_context(usmb_call *c, void *f, void **args, size_t npos, void *kwnames)
{
	USMB_PY_BEGIN(r);
	if (!usmb_py_alive()) { /* it ended while this thread waited for the GIL */
		r.code = USMB_PYE_GONE;
		usmb_py_leave(st);
		return r;
	}
	struct frame frame = {c, innermost};
	innermost = &frame;
	c->thread = usmb_py.PyThread_get_thread_ident();
	c->state = USMB_CALL_RUNS;
	r.val = usmb_py.PyObject_Vectorcall(f, (PyObject *const *)args, npos, kwnames);
	c->state = USMB_CALL_ENDED;
	innermost = frame.outer;
	int unseen = c->asked && take_back(c);
	if (!r.val) usmb_py_take_exception(&r);
	if (c->asked) r.num = USMB_CALL_ASKED | (unseen ? USMB_CALL_UNSEEN : 0);
	/* One that was put to a call around this one may have come up in here. */
	if (r.exc && !unseen && stopped(r.exc, c->asked ? MAX_CHAIN : 1)) r.num |= USMB_CALL_STOPPED;
	usmb_py_leave(st);
	return r;
}
