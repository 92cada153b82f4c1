/*
 * usmb_syclref.h: the forms of a syclobj, and the light objects that carry one to others.
 */
#ifndef USMB_SYCLREF_H
#define USMB_SYCLREF_H

#include "usmb_support.h"
#include "usmb_sycl.h"

enum { USMB_FORM_NONE = 0, USMB_FORM_FILTER, USMB_FORM_QUEUE, USMB_FORM_CONTEXT };

/* A syclobj, whichever of its six forms it came in. */
typedef struct {
	int form;           /* USMB_FORM_* */
	void *ref;          /* sycl::queue* or sycl::context*, borrowed from keep */
	void *context;      /* sycl::context*, where it is known without asking; likewise */
	const char *filter; /* filter string, borrowed from keep */
	Py_ssize_t nfilter; /* its length */
	PyObject *keep;     /* owned: what ref or filter belongs to */
	int capsule;        /* keep is a capsule that is to be renamed when used */
} usmb_syclref;

/* Recognises a syclobj; TypeError that names what for anything else. */
int usmb_syclref_get(PyObject *o, usmb_syclref *out, const char *what);
/* The queue that it names, borrowed: its own, or the default queue of the device of a
   filter string, loading SYCL if that was not done. NULL for a context and for the
   host backend. ValueError that begins with what when no device answers. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue);
/* Gives back what it holds; used: rename the capsule to used_... first. */
void usmb_syclref_release(usmb_syclref *r, int used);

/* The light objects that carry a queue or a context to others; cached by place. */
PyObject *usmb_syclqueue_of(usmb_place *place);
PyObject *usmb_syclcontext_of(usmb_place *place);
/* What users see: dpctl's own objects where dpctl is loaded, else the light ones. */
PyObject *usmb_public_queue(usmb_place *place);
PyObject *usmb_public_context(usmb_place *place);
int usmb_syclref_register(PyObject *module);

/* The default queue of the device that answers to a filter string, borrowed; NULL for
   the host backend. */
int usmb_go_queue_of(char *filter, uint64_t nfilter, void **queue, usmb_goerr *err);

#endif
