/*
 * usmb_device.h: the type Device of Python.
 */
#ifndef USMB_DEVICE_H
#define USMB_DEVICE_H

#include "usmb_support.h"
#include "usmb_sycl.h"

/* A Device, the same object each time for one filter string; "host" for no place. */
PyObject *usmb_device_of_place(usmb_place *place);
PyObject *usmb_py_devices(PyObject *m, PyObject *unused);
PyObject *usmb_device_filter(PyObject *device); /* str of a Device, borrowed; NULL if it is none */
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

#endif
