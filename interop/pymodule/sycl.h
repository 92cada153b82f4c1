/*
 * sycl.h: SYCL devices, queues and contexts as Python objects.
 */
#ifndef USMB_PYMODULE_SYCL_H
#define USMB_PYMODULE_SYCL_H

#include "support.h"
#include "usmb_sycl.h"

/* ---- device ---- */

/* Returns the Device of a place, always the same object for a filter string; "host" if place is NULL. */
PyObject *usmb_device_of_place(usmb_place *place);
PyObject *usmb_py_devices(PyObject *m, PyObject *unused);
int usmb_device_register(PyObject *module);

/* A device as Go describes it. The caller frees the array with free. */
typedef struct {
	char filter[96], name[256], backend[32], type[32];
	uint64_t memory;
	int32_t dl_type, dl_id;
	int32_t has_dl; /* whether DLPack has a number for the device */
	int32_t reserved;
} usmb_device_info;
int usmb_go_devices(usmb_device_info **out, int64_t *n, usmb_goerr *err);

/* ---- dpctl ---- */

int usmb_dpctl_register(void);
/* Returns 1 if o is exactly one of dpctl.memory's objects, with its memory, which determines its dictionary.
   Never sets an exception. */
int usmb_dpctl_memory(PyObject *o, uint64_t *address, uint64_t *bytes);

/* ---- syclref ---- */

enum { USMB_FORM_NONE = 0, USMB_FORM_FILTER, USMB_FORM_QUEUE, USMB_FORM_CONTEXT };

/* A syclobj in any of its six forms. */
typedef struct {
	int form;           /* USMB_FORM_* */
	void *ref;          /* sycl::queue* or sycl::context*, borrowed from keep */
	void *context;      /* sycl::context*, if it is known without a call of the runtime; borrowed from keep */
	const char *filter; /* filter string, borrowed from keep */
	Py_ssize_t nfilter; /* its length */
	PyObject *keep;     /* owned: the object that ref or filter belongs to */
	int capsule;        /* keep is a capsule to rename when it is used */
} usmb_syclref;

/* Reads a syclobj. Raises TypeError that begins with what for any other object. */
int usmb_syclref_get(PyObject *o, usmb_syclref *out, const char *what);
/* Reads an object that names a device: a filter string, a Device, a dpctl.SyclDevice (all of form FILTER
   then), a queue, dpnp's Device (form QUEUE). Raises TypeError that begins with what for any other object,
   and ValueError for a sub-device. */
int usmb_syclref_device(PyObject *o, usmb_syclref *out, const char *what);
/* Reports whether o is a Device of this module, of dpctl or of dpnp. Never sets an exception. */
int usmb_is_device(PyObject *o);
/* Returns the queue that r names, borrowed: its own, or the default queue of the device of a filter string;
   loads SYCL if necessary. NULL for a context and for the host backend. Raises ValueError that begins with
   what if there is no such device. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue);
/* Returns the context that r names if it is known without a call of the runtime, else NULL. Borrowed until
   other Python code runs. */
void *usmb_syclref_context(const usmb_syclref *r);
/* Releases r. used: rename its capsule to used_... first. */
void usmb_syclref_release(usmb_syclref *r, int used);

/* Return the queue and context that users see of memory without a given queue: the queue that dpctl keeps for
   the context and device, and a context of dpctl; light objects of this file if dpctl is not loaded. The
   queue is noted as the place's consumer. */
PyObject *usmb_public_queue(usmb_place *place);
PyObject *usmb_public_context(usmb_place *place);
/* Returns in *out, as a new reference, the object by which memory at place names the queue in r: the given
   SyclQueue; for a capsule, or an object that only has one, a SyclQueue made of it; NULL if r names no queue. */
int usmb_queue_of(const usmb_syclref *r, usmb_place *place, PyObject **out);
/* Reports whether r, a queue, a context or a filter string, names the context of place. */
int usmb_syclref_in_context(const usmb_syclref *r, usmb_place *place);
/* Returns the sycl::queue of such an object, borrowed from it. */
void *usmb_queue_ref(PyObject *queue);
void usmb_syclref_clear(void);
int usmb_syclref_register(PyObject *module);

/* Returns the default queue of the device of a filter string, borrowed; NULL for the host backend. */
int usmb_go_queue_of(char *filter, uint64_t nfilter, void **queue, usmb_goerr *err);

#endif
