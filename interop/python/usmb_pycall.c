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
	int in_go; /* so many functions of Go's deep, which may swallow what is raised in them */
	int due;   /* an exception was put before the last of them, or during it */
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

static void put(void)
{
	PyThreadState_SetAsyncExc((unsigned long)innermost->call->thread, usmb_py_interrupted());
}

/*
 * Takes back the exception that is still to be raised in this thread, and says whether
 * there was one, as told by the reference that it had of the class. GIL, and one was put,
 * so the class is there.
 */
static int take(void)
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
	return any_owed(innermost) && take();
}

void usmb_py_call_unhold(int held)
{
	if (held) put();
}

/* Whether one is to be raised. If not, the innermost call has had its own. */
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
		f->call->owed = 0; /* it goes on from here: once is enough */
		take();
	} else if (f->due && !pending()) {
		put();
	}
	f->due = outer & 1;
	f->call->owed |= outer >> 1;
}

/* Puts the exception to the thread of a call that runs. */
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
			in->call->owed = 0; /* none was there: the one before was raised */
		c->asked = c->owed = 1;
	}
}

void usmb_pyop_interrupt(usmb_call *c)
{
	PyGILState_STATE st;
	if (usmb_py_enter(&st)) return;
	/* The state cannot change now, so the exception meets this call or none. */
	if (c->state == USMB_CALL_WAITS)
		c->early = 1;
	else if (c->state == USMB_CALL_RUNS && !c->asked)
		ask(c);
	usmb_py_leave(st);
}

/*
 * The end of the innermost call: says whether its own exception was still to be raised.
 * A thread has room for one: those that calls around this one are owed were replaced by
 * its own, or raised in it, and one for all of them is put again.
 */
static int end_innermost(void)
{
	usmb_call *c = innermost->call;
	int unseen = usmb_py_call_hold() && c->owed;
	c->owed = 0;
	struct frame *outer = innermost->outer;
	if (any_owed(outer)) {
		put();
		outer->due = outer->in_go > 0;
	}
	innermost = outer;
	return unseen;
}

/* Whether exc is an interrupt, or was raised because of one or while one was handled, so
   many exceptions back. */
static int stopped(PyObject *exc, int chain)
{
	PyObject *class = usmb_py_interrupted();
	int found = 0;
	if (!class) PyErr_Clear();
	if (!class) return 0;
	Py_INCREF(exc);
	for (int i = 0; exc && !found && i < chain; i++) {
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
	if (!usmb_py_alive()) { /* it ended while this thread waited for the GIL */
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
	if (c->asked) r.num = USMB_CALL_ASKED | (unseen ? USMB_CALL_UNSEEN : 0);
	/* One that was put to a call around this one may have come up in here. */
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
