/*
 * usmb_typeinfo.h: what is remembered about the types of others.
 */
#ifndef USMB_TYPEINFO_H
#define USMB_TYPEINFO_H

#include "usmb_dlpack.h"
#include "usmb_pyapi.h"

enum {
	USMB_KIND_PLAIN = 0,
	USMB_KIND_DPCTL_MEMORY, /* dpctl.memory.MemoryUSM* : _pointer, nbytes */
	USMB_KIND_TENSOR,       /* usm_ndarray of dpctl or dpnp: usm_data */
	USMB_KIND_DPNP_ARRAY,   /* dpnp.ndarray: get_array() */
	USMB_KIND_QUEUE,        /* dpctl.SyclQueue */
	USMB_KIND_CONTEXT,      /* dpctl.SyclContext */
	USMB_KIND_DEVICE,       /* dpctl.SyclDevice: filter_string */
	USMB_KIND_ARRAY_DEVICE, /* the Device of dpnp's arrays: sycl_queue */
	USMB_KIND_LEGACY,       /* producers whose tensors have no flags, quicker without keywords */
	USMB_KIND_WRITABLE,     /* producers that give no read-only memory in a tensor without flags */
	USMB_KIND_TORCH,        /* exactly torch.Tensor or torch.nn.Parameter */
	USMB_KIND_TORCH_OTHER,  /* another subclass of torch.Tensor */
	USMB_KIND_ONEDAL        /* oneDAL's tables: data's second item means mutable */
};

typedef struct {
	PyTypeObject *type;              /* borrowed while weak lives */
	PyObject *weak;                  /* weak reference to it */
	const usmb_dl_exchange_api *api; /* exchange API of our major version, or NULL; see usmb_tensor_take */
	PyObject *method;                /* owned: its __dlpack__ where no instance can have another, or NULL */
	int kind;                        /* USMB_KIND_* */
} usmb_typeinfo;

/* What is known about o's type; NULL with an exception set on failure. */
const usmb_typeinfo *usmb_typeinfo_of(PyObject *o);
void usmb_typeinfo_clear(void);

#endif
