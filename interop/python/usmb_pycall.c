//go:build linux && cgo

/* Calls with a context, and interrupts of these calls. */
#include "usmb_pycall.h"

/* The longest chain of causes and contexts that is searched for an interrupt. */
#define MAX_CHAIN 64

/* The active calls of a thread, innermost first. Calls nest because a Go function that Python
   calls may call Python. Each frame is on the stack of usmb_py_call_with. */
struct frame {
	usmb_call *call;
	struct frame *outer;
	int in_go; /* number of active Go functions, which may discard exceptions */
	int due;   /* the exception was set before the innermost of them began, or during it */
};
static __thread struct frame *innermost;

usmb_call *usmb_py_call_current(void)
{
	return innermost ? innermost->call : NULL;
}

/*
 * The class is created once. It derives from KeyboardInterrupt, because libraries pass that
 * exception on as a request to stop (asyncio's loop logs and drops every other BaseException
 * of a callback). It is a separate class to distinguish it from exceptions of the code.
 */
PyObject *usmb_py_interrupted(void)
{
	static PyObject *class;
	if (!class)
		class = PyErr_NewExceptionWithDoc(USMB_PY_INTERRUPTED,
		                                  "The context of a call from Go has ended. Not to be caught, "
		                                  "except to clean up and raise it again.",
		                                  PyExc_KeyboardInterrupt, NULL);
	return class;
}

/* Sets the exception in this thread. */
static void set_exception(void)
{
	PyThreadState_SetAsyncExc((unsigned long)innermost->call->thread, usmb_py_interrupted());
}

/*
 * Removes the pending exception of this thread. Reports whether there was one: a pending
 * exception holds a reference to its class. The class exists, because an exception was set.
 */
static int remove_exception(void)
{
	PyObject *class = usmb_py_interrupted();
	Py_ssize_t before = class->ob_refcnt;
	PyThreadState_SetAsyncExc((unsigned long)innermost->call->thread, NULL);
	return class->ob_refcnt != before;
}

static int any_owed(const struct frame *f)
{
	while (f && !f->call->owed) f = f->outer;
	return f != NULL;
}

int usmb_py_call_hold(void)
{
	return any_owed(innermost) && remove_exception();
}

void usmb_py_call_unhold(int held)
{
	if (held) set_exception();
}

/* Reports whether an exception is pending. If not, that of the innermost call was raised. */
static int pending(void)
{
	int is = usmb_py_call_hold();
	usmb_py_call_unhold(is);
	return is;
}

int usmb_py_call_go_enter(void)
{
	struct frame *f = innermost;
	if (!f) return 0;
	int outer = f->in_go ? f->due | f->call->owed << 1 : 0;
	f->due = pending();
	if (!f->due) f->call->owed = 0;
	f->in_go++;
	return outer;
}

void usmb_py_call_go_leave(int outer, int failed)
{
	struct frame *f = innermost;
	if (!f) return;
	f->in_go--;
	if (f->due && failed && PyErr_ExceptionMatches(usmb_py_interrupted())) {
		f->call->owed = 0; /* The function raises it; do not raise it again. */
		remove_exception();
	} else if (f->due && !pending()) {
		set_exception();
	}
	f->due = outer & 1;
	f->call->owed |= outer >> 1;
}

/* Sets the exception in the thread of a running call. */
static void ask(usmb_call *c)
{
	PyObject *class = usmb_py_interrupted();
	Py_ssize_t before = class ? class->ob_refcnt : 0;
	if (!class) {
		PyErr_Clear();
	} else if (PyThreadState_SetAsyncExc((unsigned long)c->thread, class)) {
		struct frame *in = *(struct frame **)(uintptr_t)c->chain;
		if (in->in_go)
			in->due = 1;
		else if (class->ob_refcnt != before)
			in->call->owed = 0; /* None was pending: the previous one was raised. */
		c->asked = c->owed = 1;
	}
}

void usmb_pyop_interrupt(usmb_call *c)
{
	PyGILState_STATE st;
	if (usmb_py_enter(&st)) return;
	/* The state cannot change while this thread holds the GIL, so only this call can receive
	   the exception. */
	if (c->state == USMB_CALL_WAITS)
		c->early = 1;
	else if (c->state == USMB_CALL_RUNS && !c->asked)
		ask(c);
	usmb_py_leave(st);
}

/*
 * Removes the frame of the innermost call. Reports whether its exception was still pending. A
 * thread has one pending exception: the exceptions of enclosing calls were replaced by that of
 * this call or raised in it. If an enclosing call is owed one, it is set again, once for all.
 */
static int end_innermost(void)
{
	usmb_call *c = innermost->call;
	int unseen = usmb_py_call_hold() && c->owed;
	c->owed = 0;
	struct frame *outer = innermost->outer;
	if (any_owed(outer)) {
		set_exception();
		outer->due = outer->in_go > 0;
	}
	innermost = outer;
	return unseen;
}

/* Reports whether one of the first `limit` exceptions in the chain of causes and contexts of
   exc is an interrupt. */
static int stopped(PyObject *exc, int limit)
{
	PyObject *class = usmb_py_interrupted();
	int found = 0;
	if (!class) PyErr_Clear();
	if (!class) return 0;
	Py_INCREF(exc);
	for (int i = 0; exc && !found && i < limit; i++) {
		found = usmb_py_type_check(exc, (PyTypeObject *)class);
		PyObject *next = PyException_GetCause(exc);
		if (!next) next = PyException_GetContext(exc);
		Py_DECREF(exc);
		exc = next;
	}
	Py_XDECREF(exc);
	return found;
}

usmb_pyret usmb_py_call_with(usmb_call *c, void *f, void **args, size_t nargs, void *kwnames)
{
	usmb_pyret r = {0};
	if (!usmb_py_alive()) { /* Python ended while this thread waited for the GIL. */
		r.code = USMB_PYE_GONE;
		return r;
	}
	if (innermost && !innermost->in_go && !pending()) innermost->call->owed = 0;
	struct frame frame = {.call = c, .outer = innermost};
	innermost = &frame;
	c->chain = (uint64_t)(uintptr_t)&innermost;
	c->thread = PyThread_get_thread_ident();
	c->state = USMB_CALL_RUNS;
	if (c->early) ask(c);
	r.val = PyObject_Vectorcall(f, (PyObject *const *)args, nargs, kwnames);
	c->state = USMB_CALL_ENDED;
	int unseen = end_innermost();
	if (!r.val) usmb_py_take_exception(&r);
	if (usmb_py_in_child()) {
		Py_XDECREF(r.val);
		usmb_py_end_child(NULL); /* here, because more calls of a batch may follow */
	}
	if (c->asked) r.num = USMB_CALL_ASKED | (unseen ? USMB_CALL_UNSEEN : 0);
	/* The exception of an enclosing call may have been raised in this call. */
	if (r.exc && stopped(r.exc, c->asked ? MAX_CHAIN : 1)) r.num |= USMB_CALL_STOPPED;
	return r;
}

usmb_pyret usmb_pyop_call_context(usmb_call *c, void *f, void **args, size_t npos, void *kwnames)
{
	USMB_PY_BEGIN(r);
	r = usmb_py_call_with(c, f, args, npos, kwnames);
	usmb_py_leave(st);
	return r;
}
