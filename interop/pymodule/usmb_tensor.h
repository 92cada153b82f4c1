/*
 * usmb_tensor.h: DLPack tensors of others.
 */
#ifndef USMB_TENSOR_H
#define USMB_TENSOR_H

#include "usmb_support.h"
#include "usmb_owner.h"

/* Makes an object of a managed tensor; takes it on success, leaves it on failure. */
typedef PyObject *(*usmb_take_fn)(void *managed, int versioned, void *ctx);

/* Has x, an object or a capsule, give a tensor by any of DLPack's ways, and take make
   something of it. Nothing is waited for; an Array of ours is like any other object
   here. */
PyObject *usmb_tensor_take(PyObject *x, usmb_take_fn take, void *ctx);
/* The same of what __dlpack__ returned. versioned is the form that was asked for,
   which saves looking at the name where it is what came. */
PyObject *usmb_tensor_take_capsule(PyObject *capsule, int versioned, usmb_take_fn take, void *ctx);
/* The same with the tensor on the host, copied there by x itself; copy is passed on. */
PyObject *usmb_tensor_take_on_host(PyObject *x, PyObject *copy, usmb_take_fn take, void *ctx);
/* Whether x says that it lies where none of its memory can be taken; -1 on error. */
int usmb_tensor_is_far(PyObject *x);

/* The owner of a tensor on kDLCPU or kDLOneAPI, after all the checks of an import
   beyond those of s, which was read of it: the struct is not looked at again. Takes
   the tensor on success, leaves it on failure; NULL with an exception. An empty
   tensor without an address gets one in s. May drop the GIL. */
usmb_cell *usmb_tensor_cell(void *managed, int versioned, usmb_dl_snapshot *s);
int usmb_tensor_register(void);

/* Memory for a DLPack device; device memory for kDLOneAPI. */
int usmb_go_alloc_for(int32_t device_type, int32_t device_id, int64_t bytes, usmb_cell **out, usmb_goerr *err);

#endif
