/*
 * dpnp.h: the work of dpnp on the memory of arrays.
 */
#ifndef USMB_PYMODULE_DPNP_H
#define USMB_PYMODULE_DPNP_H

#include <stddef.h>
#include <stdint.h>

#include "support.h"

/* Returns the number of a queue for usmb_cell_use, the same for equal queues. A queue can lose its number when its work has
   ended, so the caller holds the lock of computations until the work that follows is submitted. */
uint32_t usmb_dpnp_number(PyObject *queue);
/* Returns the number that a queue has, or USMB_USED_NO. */
uint32_t usmb_dpnp_find(PyObject *queue);

/* Events that the caller owns. */
typedef struct {
	void **all;
	size_t n, room;
} usmb_events;

/* Adds the events of the work that dpnp has submitted to the queue with a number, or to all queues for
   USMB_USED_SEVERAL, and that has not completed. dpnp runs its work on a queue in the order of submission. */
int usmb_dpnp_events(uint32_t used, usmb_events *out);
/* Waits for all work of dpnp and its tasks on the host, which keep memory alive, with the GIL released. Returns 1 if there
   were any, 0 if not, and -1 with an exception. Work that failed has ended. */
int usmb_dpnp_finish(void);
/* Adds the events of the tasks on the host and of the work of dpnp on all queues that has not completed. */
int usmb_dpnp_all(usmb_events *out);
/* Adds a reference to an event, which is copied; -1 if there is no memory. */
int usmb_events_add(usmb_events *events, void *event);
void usmb_events_drop(usmb_events *events);
/* Waits for the events and deletes them; returns a code of usmb_sycl.h. No GIL needed, and the caller does not hold it:
   tasks on the host need it. */
int usmb_events_wait(usmb_events *events);
/* The same with the GIL held, which is released during the wait. */
int usmb_events_finish(usmb_events *events);

/* _computes_under(lock): the lock under which usmbridge.array_api calls dpnp. */
PyObject *usmb_py_computes_under(PyObject *m, PyObject *lock);
/* Acquires that lock, for at most some seconds, or without a limit for -1. Returns a new reference of it, or NULL without
   an exception. */
PyObject *usmb_dpnp_lock(double seconds);
/* Releases it; takes over the reference. */
void usmb_dpnp_unlock(PyObject *held);
/* Makes it free in a forked child, whichever thread had it. */
void usmb_dpnp_renew_lock(void);
/* Makes the GIL the lock of usmb_sycl_set_host_lock. */
void usmb_dpnp_register(void);
void usmb_dpnp_clear(void);

#endif
