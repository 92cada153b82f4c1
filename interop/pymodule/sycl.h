/*
 * sycl.h: SYCL devices, queues and contexts as Python objects.
 */
#ifndef USMB_PYMODULE_SYCL_H
#define USMB_PYMODULE_SYCL_H

#include "support.h"
#include "usmb_sycl.h"

/* Whether a code reports a failure of the SYCL runtime, not an argument that it refuses. An import asks for
   the device only of memory that is USM, so that no device is a failure there. */
static inline int usmb_runtime_failed(int code)
{
	return code == USMB_SYCL_EFAILED || code == USMB_SYCL_EASYNC || code == USMB_SYCL_ECAPTURE ||
	       code == USMB_SYCL_ENOMEM || code == USMB_SYCL_ENODEVICE;
}

/* ---- device ---- */

/* The Device of a place, one object for each filter string; "host" for NULL. */
PyObject *usmb_device_of_place(usmb_place *place);
PyObject *usmb_py_devices(PyObject *m, PyObject *unused);
int usmb_device_register(PyObject *module);

/* The properties of a device. Free the array with free. */
typedef struct {
	char filter[96], name[256], backend[32], type[32];
	uint64_t memory;
	int32_t dl_type, dl_id;
	int32_t has_dl; /* 1: the device has a DLPack device id */
	int32_t reserved;
} usmb_device_info;
int usmb_go_devices(usmb_device_info **out, int64_t *n, usmb_goerr *err);

/* ---- dpctl ---- */

/* 1 if o is exactly one of dpctl.memory's types: its memory, from which its dictionary follows.
   Never an exception. */
int usmb_dpctl_memory(PyObject *o, uint64_t *address, uint64_t *bytes);

/* An attribute of a module; NULL without an exception if it is missing, which is possible while the module is being
   imported, or if the module is not loaded. */
PyObject *usmb_loaded_attribute(const char *module, const char *name);
/* The sycl::event of a dpctl.SyclEvent, borrowed; NULL without an exception for other objects. */
void *usmb_event_ref(PyObject *event);

/* ---- syclref ---- */

enum { USMB_FORM_NONE = 0, USMB_FORM_FILTER, USMB_FORM_QUEUE, USMB_FORM_CONTEXT };

/* A syclobj in any of its six forms. */
typedef struct {
	int form;           /* USMB_FORM_* */
	void *ref;          /* sycl::queue* or sycl::context*, borrowed from keep */
	void *context;      /* sycl::context*, borrowed from keep, if known without a call to SYCL */
	const char *filter; /* filter string, borrowed from keep */
	Py_ssize_t nfilter; /* its length */
	PyObject *keep;     /* owned: the owner of ref or filter */
	int capsule;        /* keep is a capsule to be renamed when used */
} usmb_syclref;

/* Reads a syclobj; TypeError that begins with what for anything else. */
int usmb_syclref_get(PyObject *o, usmb_syclref *out, const char *what);
/* Reads a device: a filter string, our Device and dpctl.SyclDevice become form FILTER; a queue and
   dpnp's Device become form QUEUE. TypeError that begins with what for anything else, ValueError
   for a sub-device. */
int usmb_syclref_device(PyObject *o, usmb_syclref *out, const char *what);
/* Whether o is our Device, or dpctl's or dpnp's; -1 with an exception that must end the call. */
int usmb_is_device(PyObject *o);
/* *queue: the queue of r, borrowed: its own, or the default queue of the device of a filter string,
   for which SYCL is loaded if needed. NULL for a context and for the host backend. ValueError that
   begins with what if no device matches. */
int usmb_syclref_queue(const usmb_syclref *r, const char *what, void **queue);
/* The context of r if it is known without a call to SYCL, borrowed until other Python code runs;
   else NULL. */
void *usmb_syclref_context(const usmb_syclref *r);
/* Drops the reference of r; used: rename the capsule to used_... first. */
void usmb_syclref_release(usmb_syclref *r, int used);

/* The queue and context that users see for memory without a queue of its own: the queue that dpctl
   keeps for the context and device, and a dpctl.SyclContext, if dpctl is loaded, else light objects
   of sycl.c. The place records that the queue was shown. */
PyObject *usmb_public_queue(usmb_place *place);
/* An object that stands for the queue of the place, even if dpctl is loaded. */
PyObject *usmb_place_queue(usmb_place *place);
/* The queue that dpctl keeps for the place, borrowed, if usmb_public_queue has found it; else NULL. */
PyObject *usmb_kept_queue(const usmb_place *place);
/* If dpctl is loaded, makes the place record the queue that dpctl keeps. Returns 1 if the place has it, 0
   if dpctl is not loaded, -1 with an exception. */
int usmb_note_dpctl_queue(usmb_place *place);
PyObject *usmb_public_context(usmb_place *place);
/* *out: the queue object for arrays at place with the queue in r: the SyclQueue that was given, or
   one made from the capsule. A new reference; NULL if r has no queue. */
int usmb_queue_of(const usmb_syclref *r, usmb_place *place, PyObject **out);
/* Whether r, a queue, a context or a filter string, is in the context of place. */
int usmb_syclref_in_context(const usmb_syclref *r, usmb_place *place);
/* The same, and if place has host USM and r is a queue, whether the queue is on the device of place. */
int usmb_syclref_of_place(const usmb_syclref *r, usmb_place *place);
/* The sycl::queue of such an object, borrowed. */
void *usmb_queue_ref(PyObject *queue);
void usmb_syclref_clear(void);
int usmb_syclref_register(PyObject *module);

/* The default queue of the device that matches a filter string, borrowed; NULL for the host
   backend. */
int usmb_go_queue_of(char *filter, uint64_t nfilter, void **queue, usmb_goerr *err);

#endif
