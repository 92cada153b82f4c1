/*
 * The table of root devices, built when the first Runtime opens and dropped
 * when the last one closes. Private to this package.
 */
#ifndef USMB_SYCL_DEVICETABLE_H
#define USMB_SYCL_DEVICETABLE_H

#include "usmb_sycl.h"

#include <stdatomic.h>

typedef struct usmb_root {
	void *device;                    /* owned */
	void *context;                   /* owned: default context of the platform */
	void *queue;                     /* owned: in-order queue; NULL when none could be made */
	char *filter;                    /* owned: "opencl:cpu:0" */
	uint32_t kinds;                  /* bit 1<<kind */
	_Atomic(usmb_place *) places[4]; /* by kind, each with one reference; filled on first use */
} usmb_root;

typedef struct usmb_device_table {
	int32_t n;
	usmb_root roots[];
} usmb_device_table;

/*
 * The table for the length of a call, NULL while no Runtime is open. Every
 * non-NULL answer is paired with usmb_device_table_leave; closing waits for that.
 */
usmb_device_table *usmb_device_table_enter(void);
void usmb_device_table_leave(void);

/* For Go, under its lock. */
int usmb_device_table_open(void);
void usmb_device_table_close(void);
/* Borrowed row of the table for the Go side; NULL past its end. */
const usmb_root *usmb_device_table_row(int32_t index);

/* Bits 1<<kind of USM kinds that a device supports, and USMB_DEVICE_DOUBLE. */
uint32_t usmb_device_kinds(void *device);
/* Index of the device or of its closest ancestor among the roots, -1 when none. */
int32_t usmb_root_of(usmb_device_table *t, void *device, int32_t *is_subdevice);

/* Interned place; queue_or_null is copied if the place is new. *out is retained. */
int usmb_place_intern(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue_or_null,
                      usmb_place **out);

#endif
