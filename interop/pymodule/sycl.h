/*
 * sycl.h: SYCL devices, queues and contexts as Python objects.
 */
#ifndef USMB_PYMODULE_SYCL_H
#define USMB_PYMODULE_SYCL_H

#include "support.h"
#include "usmb_sycl.h"

/* ---- device ---- */

/* A Device, the same object each time for one filter string; "host" for no place. */
PyObject *usmb_device_of_place(usmb_place *place);
PyObject *usmb_py_devices(PyObject *m, PyObject *unused);
int usmb_device_register(PyObject *module);

/* What Go knows of a device; the array is freed with free. */
typedef struct {
	char filter[96], name[256], backend[32], type[32];
	uint64_t memory;
	int32_t dl_type, dl_id;
	int32_t has_dl; /* DLPack can name the device */
	int32_t reserved;
} usmb_device_info;
int usmb_go_devices(usmb_device_info **out, int64_t *n, usmb_goerr *err);

/* ---- dpctl ---- */

int usmb_dpctl_register(void);
/* 1 when o is exactly one of dpctl.memory's objects: its memory. What its dictionary
   says follows from it. Never an exception. */
int usmb_dpctl_memory(PyObject *o, uint64_t *address, uint64_t *bytes);

/* ---- syclref ---- */

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
/* Recognises what names a device: a filter string, a Device of ours, a dpctl.SyclDevice
   (all of form FILTER then), a queue, dpnp's Device (form QUEUE). TypeError that names
   what for anything else, ValueError for a part of a device. */
int usmb_syclref_device(PyObject *o, usmb_syclref *out, const char *what);
/* Whether o is a Device of ours, of dpctl or of dpnp; never an exception. */
int usmb_is_device(PyObject *o);
/* The queue that it names, borrowed: its own, or the default queue of the device of a
   filter string, loading SYCL if that was not done. NULL for a context and for the
   host backend. ValueError that begins with what when no device answers. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue);
/* The context that it names, borrowed until other code of Python's runs, where that is
   known without asking the runtime; else NULL. */
void *usmb_syclref_context(const usmb_syclref *r);
/* Gives back what it holds; used: rename the capsule to used_... first. */
void usmb_syclref_release(usmb_syclref *r, int used);

/* What users see of memory for which nobody named a queue: the queue that dpctl itself
   keeps for the context and device, and a context of dpctl's, where dpctl is loaded,
   else light objects of this file. The queue is noted as the place's consumer. */
PyObject *usmb_public_queue(usmb_place *place);
PyObject *usmb_public_context(usmb_place *place);
/* The object by which memory at place names the queue in r: the SyclQueue that was
   given; for a capsule, and for what only gives one, a SyclQueue made of it. *out: a
   new reference, NULL where r names no queue. */
int usmb_queue_of(const usmb_syclref *r, usmb_place *place, PyObject **out);
/* Whether r, a queue, a context or a filter string, names the context of place. */
int usmb_syclref_in_context(const usmb_syclref *r, usmb_place *place);
/* The sycl::queue of such an object, borrowed from it. */
void *usmb_queue_ref(PyObject *queue);
void usmb_syclref_clear(void);
int usmb_syclref_register(PyObject *module);

/* The default queue of the device that answers to a filter string, borrowed; NULL for
   the host backend. */
int usmb_go_queue_of(char *filter, uint64_t nfilter, void **queue, usmb_goerr *err);

#endif
