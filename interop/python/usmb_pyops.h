/*
 * usmb_pyops.h: one C function per operation that Go asks of Python. Each takes
 * the GIL (nestable), does its work, and turns an exception into a result, so that
 * an operation is one cgo call and may come from any goroutine.
 */
#ifndef USMB_PYOPS_H
#define USMB_PYOPS_H

#include "usmb_pystate.h"

typedef struct usmb_pyret {
	void *val;   /* a new reference, or memory to free, as the operation says */
	int64_t num; /* an integer result */
	double re, im;
	void *exc;    /* code USMB_PYE_EXCEPTION: the exception, owned by the caller */
	int32_t code; /* USMB_PYE_* */
	int32_t kind; /* usmb_pyop_view: USMB_PYK_* */
} usmb_pyret;

/* What a value is, to Go. */
enum {
	USMB_PYK_OTHER = 0,
	USMB_PYK_NONE,
	USMB_PYK_BOOL,    /* num */
	USMB_PYK_INT,     /* num */
	USMB_PYK_BIGINT,  /* does not fit int64 */
	USMB_PYK_FLOAT,   /* re */
	USMB_PYK_COMPLEX, /* re, im */
	USMB_PYK_STR,
	USMB_PYK_BYTES,     /* val: the bytes inside the object, num: how many */
	USMB_PYK_BYTEARRAY, /* the same */
	USMB_PYK_LIST,      /* num: length, as for the next two */
	USMB_PYK_TUPLE,
	USMB_PYK_DICT
};

/* What usmb_pyop_text makes a text of. */
enum { USMB_PYT_VALUE = 0, USMB_PYT_STR, USMB_PYT_REPR, USMB_PYT_TYPE };

/* What usmb_pyop_error_part tells about an exception. */
enum { USMB_PYX_TYPE = 0, USMB_PYX_MESSAGE, USMB_PYX_TRACEBACK, USMB_PYX_LINEAGE };

usmb_pyret usmb_pyop_enter(void); /* num: the state for leave */
void usmb_pyop_leave(int64_t state);
usmb_pyret usmb_pyop_suspend(void); /* val: thread state, NULL when the GIL was not held */
void usmb_pyop_resume(void *ts);
int usmb_pyop_held(void);

usmb_pyret usmb_pyop_incref(void *o);
void usmb_pyop_decref(void *o); /* leaks when Python is gone */

usmb_pyret usmb_pyop_getattr(void *o, const char *name, size_t n);
usmb_pyret usmb_pyop_setattr(void *o, const char *name, size_t n, void *v); /* v NULL: delete */
usmb_pyret usmb_pyop_getitem(void *o, void *key);
usmb_pyret usmb_pyop_setitem(void *o, void *key, void *v); /* v NULL: delete */
usmb_pyret usmb_pyop_len(void *o);
usmb_pyret usmb_pyop_truth(void *o);
usmb_pyret usmb_pyop_isinstance(void *o, void *cls);
usmb_pyret usmb_pyop_compare(void *a, void *b, int op);
usmb_pyret usmb_pyop_iter(void *o);
usmb_pyret usmb_pyop_next(void *it); /* val NULL without error: the end */
/* args: positional ones, then the values of kwnames (a tuple, or NULL) */
usmb_pyret usmb_pyop_call(void *f, void **args, size_t npos, void *kwnames);
/* args[0] is the object, npos counts it */
usmb_pyret usmb_pyop_method(const char *name, size_t n, void **args, size_t npos, void *kwnames);

usmb_pyret usmb_pyop_text(void *o, int what); /* val: malloc'ed UTF-8, num: length */
usmb_pyret usmb_pyop_view(void *o);
usmb_pyret usmb_pyop_items(void *o, void **out, size_t n);      /* of a list or tuple: n new references */
usmb_pyret usmb_pyop_dict_items(void *o, void **out, size_t n); /* key, value, ...: 2n new references */
usmb_pyret usmb_pyop_index(void *o);                            /* num by __index__ */
usmb_pyret usmb_pyop_float(void *o);                            /* re by __float__ */

usmb_pyret usmb_pyop_from_int(int64_t v);
usmb_pyret usmb_pyop_from_uint(uint64_t v);
usmb_pyret usmb_pyop_from_digits(const char *text); /* NUL-ended, base 10 */
usmb_pyret usmb_pyop_from_float(double v);
usmb_pyret usmb_pyop_from_complex(double re, double im);
usmb_pyret usmb_pyop_from_text(const char *s, size_t n);
usmb_pyret usmb_pyop_from_bytes(const void *p, size_t n);
/* take over the references in items, also on failure */
usmb_pyret usmb_pyop_from_list(void **items, size_t n, int tuple);
usmb_pyret usmb_pyop_from_dict(void **keys_values, size_t n);

usmb_pyret usmb_pyop_import(const char *name);
usmb_pyret usmb_pyop_builtins(void); /* val: new reference */
usmb_pyret usmb_pyop_run(const char *code, const char *filename, int start, void *globals);
usmb_pyret usmb_pyop_argv(void **items, size_t n); /* sys.argv; takes the items over */

usmb_pyret usmb_pyop_capsule(void *p, const char *name); /* name must live for ever */
usmb_pyret usmb_pyop_capsule_pointer(void *o, const char *name);

usmb_pyret usmb_pyop_error_part(void *exc, int what); /* val: malloc'ed UTF-8, num: length */
void usmb_pyop_clear_frames(void *exc);
/* GIL held by the caller: sets the error indicator to exc (reference kept by caller). */
void usmb_pyop_raise(void *exc);
/* An exception object of the class named "ValueError" or "module.Class", with a
   message and, when not 0, the handle of the Go error behind it; cause may be NULL. */
usmb_pyret usmb_pyop_new_error(const char *cls, const char *msg, size_t n, uintptr_t handle, void *cause);
/* num: the handle, 0 when there is none */
usmb_pyret usmb_pyop_error_handle(void *exc);

usmb_pyret usmb_pyop_function(uintptr_t handle, const char *name, const char *doc);

#endif /* USMB_PYOPS_H */
