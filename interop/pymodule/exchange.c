/* exchange.c: the C exchange API of DLPack 1.2 and 1.3 on the type Array. */
#include <stdio.h>

#include "usmb_array.h"
#include "usmb_export.h"
#include "usmb_import.h"
#include "usmb_support.h"
#include "usmb_tensor.h"

/* Allocates like the prototype. May run without the GIL; errors go through
   set_error, as the standard wants. */
static int allocate(usmb_dl_tensor *proto, usmb_dl_versioned **out, void *error_ctx, usmb_dl_set_error set_error)
{
	usmb_goerr err;
	err.kind = USMB_ERR_NONE;
	usmb_cell *cell = NULL;
	void *managed = NULL;
	usmb_dl_tensor asked = *proto;
	usmb_dl_snapshot s;
	char text[512];
	asked.strides = NULL;
	asked.byte_offset = 0;
	/* The layout is checked on a stand-in address before memory is asked for. */
	asked.data = (void *)(uintptr_t)4096;
	int code = usmb_dl_read(&asked, 0, &s);
	if (code != USMB_DL_OK) {
		set_error(error_ctx, "BufferError", usmb_dl_explain_snapshot(code, &s, text, sizeof text));
		return -1;
	}
	usmb_dl_tensor t = s.t;
	if (usmb_py_in_child()) {
		set_error(error_ctx, "RuntimeError",
		          "usmbridge: cannot allocate in a forked child process; start it afresh (spawn)");
		return -1;
	}
	/* Memory may have to be waited for, and be others' to give back with the GIL. */
	PyThreadState *saved = usmb_py_holds_gil() ? PyEval_SaveThread() : NULL;
	int r = usmb_go_alloc_for(t.device.type, t.device.id, s.span.hi, &cell, &err);
	if (saved) PyEval_RestoreThread(saved);
	if (r < 0) {
		set_error(error_ctx, err.kind == USMB_ERR_MEMORY ? "MemoryError" : "BufferError", err.message);
		return -1;
	}
	t.data = cell->data;
	code = usmb_dl_export(&t, 0, 1, usmb_cell_drop, cell, &managed);
	if (code != USMB_DL_OK) {
		usmb_cell_drop(cell);
		set_error(error_ctx, code == USMB_DL_ENOMEM ? "MemoryError" : "BufferError",
		          usmb_dl_explain(code, &t, text, sizeof text));
		return -1;
	}
	*out = managed;
	return 0;
}

static int wrong_type(void *o)
{
	char type[64];
	usmb_raise(PyExc_TypeError, "the exchange API of usmbridge.Array was given a %s",
	           usmb_type_name(o, type, sizeof type));
	return -1;
}

static int from_object(void *o, usmb_dl_versioned **out)
{
	usmb_dl_device dev;
	usmb_array *a = o;
	void *managed;
	if (!usmb_is_array(o)) return wrong_type(o);
	if (!usmb_array_alive(a)) return -1;
	if (usmb_array_device(a, &dev) < 0 || usmb_array_export(a, dev, usmb_array_dlflags(a), 1, &managed) < 0)
		return -1;
	*out = managed;
	return 0;
}

/* Takes the tensor on success; on failure it stays the caller's, as other
   implementations of this function and their callers have it. */
static int to_object(usmb_dl_versioned *tensor, void **out)
{
	*out = usmb_import_managed(tensor, 1);
	return *out ? 0 : -1;
}

static int borrow(void *o, usmb_dl_tensor *out)
{
	usmb_array *a = o;
	usmb_dl_device dev;
	if (!usmb_is_array(o)) return wrong_type(o);
	if (!usmb_array_alive(a)) return -1;
	if (usmb_array_check_aligned(a) < 0 || usmb_array_device(a, &dev) < 0) return -1;
	int64_t lo = 0, hi;
	if (dev.type == USMB_DL_ONEAPI) {
		usmb_array_range(a, &lo, &hi);
		usmb_array_note_async(a);
	}
	out->data = a->nelem == 0 && dev.type == USMB_DL_CPU ? NULL : a->first + lo;
	out->device = dev;
	out->ndim = a->ndim;
	out->dtype = a->dtype;
	out->shape = a->ndim ? usmb_shape(a) : NULL;
	out->strides = a->ndim ? usmb_strides(a) : NULL;
	out->byte_offset = (uint64_t)-lo; /* kDLOneAPI: data is the lowest address */
	usmb_array_show(a);
	return 0;
}

/* The queue of kDLOneAPI work is the one this library uses for the device. */
static int work_stream(int32_t device_type, int32_t device_id, void **out)
{
	*out = NULL;
	if (device_type != USMB_DL_ONEAPI) return 0;
	int code = usmb_sycl_current_queue(device_id, out);
	if (code == USMB_SYCL_OK) return 0;
	usmb_raise(PyExc_BufferError, "no queue for DLPack device (14, %d): %s", device_id, usmb_sycl_strerror(code));
	return -1;
}

static usmb_dl_exchange_api api = {
        {{USMB_DL_MAJOR, USMB_DL_MINOR}, NULL}, allocate, from_object, to_object, borrow, work_stream,
};

int usmb_exchange_register(void)
{
	PyObject *capsule = PyCapsule_New(&api, usmb_dl_name_exchange_api, NULL);
	if (!capsule) return -1;
	int r = PyObject_SetAttr((PyObject *)usmb_array_type, usmb_name.__dlpack_c_exchange_api__, capsule);
	Py_DECREF(capsule);
	return r;
}
