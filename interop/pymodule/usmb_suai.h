/*
 * usmb_suai.h: __sycl_usm_array_interface__, out and in.
 */
#ifndef USMB_SUAI_H
#define USMB_SUAI_H

#include "usmb_array.h"
#include "usmb_dlpack.h"
#include "usmb_pyapi.h"
#include "usmb_support.h"

PyObject *usmb_array_suai(PyObject *self, void *closure);
/* Returns -1 with AttributeError if the array has no dictionary. */
int usmb_suai_check(usmb_array *a);
PyObject *usmb_from_suai(PyObject *module, PyObject *obj);
/* The array of obj's dictionary. iface: the dictionary (borrowed). */
PyObject *usmb_import_suai(PyObject *obj, PyObject *iface);
/* The array of one of dpctl.memory's objects, whose dictionary need not be asked for:
   the same facts, and the same checks. NULL without an exception for anything else. */
PyObject *usmb_import_memory(PyObject *obj);
int usmb_suai_register(void);
void usmb_suai_clear(void);
extern PyObject *usmb_suai_one; /* the integer 1 */

/* A __sycl_usm_array_interface__ taken apart; everything is borrowed. */
typedef struct {
	uint64_t data;
	int64_t offset;
	int64_t *shape;   /* ndim extents */
	int64_t *strides; /* NULL: C order */
	char *typestr;
	uint64_t ntypestr;
	char *fieldtype; /* of the first field of typedescr */
	uint64_t nfieldtype;
	uint64_t owner;      /* the owner's allocation, where its size is known */
	uint64_t owner_size; /* UINT64_MAX: unknown */
	int32_t ndim;
	int32_t nfields; /* fields of typedescr, 0 for none */
	int32_t named;   /* the first one has a name */
	int32_t shaped;  /* the first one has a shape */
	int32_t readonly;
} usmb_suai_in;
typedef struct {
	uint64_t first;  /* address of element [0, ..., 0] */
	uint64_t lo, hi; /* addresses used: [lo, hi) */
	usmb_dl_dtype dtype;
} usmb_suai_out;
int usmb_go_suai(usmb_suai_in *in, usmb_suai_out *out, usmb_goerr *err);

#endif
