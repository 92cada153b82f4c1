/*
 * usmb_dpctl.h: dpctl, where this process has loaded it.
 */
#ifndef USMB_DPCTL_H
#define USMB_DPCTL_H

#include "usmb_support.h"

int usmb_dpctl_register(void);
/* 1 when o is exactly a dpctl.SyclQueue or dpctl.SyclContext: its reference, borrowed
   from o, and which of them it is. Never an exception. */
int usmb_dpctl_ref(PyObject *o, int *is_queue, void **ref);
/* 1 when o is exactly one of dpctl.memory's objects: its memory. What its dictionary
   says follows from it. Never an exception. */
int usmb_dpctl_memory(PyObject *o, uint64_t *address, uint64_t *bytes);
/* A class of dpctl's, "SyclQueue" or "SyclContext"; NULL without an exception where
   dpctl is not loaded, or not yet. */
PyObject *usmb_dpctl_class(const char *name);
/* The one queue that dpctl keeps for the context and device of a SyclQueue, the same
   object each time; NULL without an exception where dpctl has no such store. */
PyObject *usmb_dpctl_kept_queue(PyObject *queue);

#endif
