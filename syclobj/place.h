/*
 * The table of root devices, built when the first Runtime opens and freed when the last one closes, and
 * the interned places. Private to this package.
 */
#ifndef USMB_SYCL_PLACE_H
#define USMB_SYCL_PLACE_H

#include "usmb_sycl.h"

#include <stdatomic.h>

typedef struct usmb_root {
	void *device;                    /* owned */
	void *context;                   /* owned: default context of the platform */
	void *queue;                     /* owned: in-order queue; NULL if none could be created */
	char *filter;                    /* owned: "opencl:cpu:0" */
	uint32_t kinds;                  /* bit 1<<kind */
	_Atomic(usmb_place *) places[4]; /* by kind, each with one reference; filled on first use */
	_Atomic int shown;               /* the queue was shown: see usmb_place_show */
	int32_t ordinal;                 /* CUDA's number of the device, -1 on other backends */
} usmb_root;

typedef struct usmb_device_table {
	int32_t n;
	usmb_root roots[];
} usmb_device_table;

/*
 * Returns the table for the duration of a call, NULL while no Runtime is open. Every non-NULL result needs
 * a call of usmb_device_table_leave; closing waits for it.
 */
usmb_device_table *usmb_device_table_enter(void);
void usmb_device_table_leave(void);

/* For Go, which serializes the calls with a lock. */
int usmb_device_table_open(void);
void usmb_device_table_close(void);
/* Returns a row of the table, borrowed; NULL past its end. */
const usmb_root *usmb_device_table_row(int32_t index);

/* Returns bit 1<<kind for each USM kind that a device supports, and USMB_DEVICE_DOUBLE. */
uint32_t usmb_device_kinds(void *device);
/* The same, but for a root device as it was when the table, which may be NULL, was made. */
uint32_t usmb_kinds_of(usmb_device_table *t, void *device);
/* Returns the index of the device or of its closest ancestor among the roots, or -1. */
int32_t usmb_root_of(usmb_device_table *t, void *device, int32_t *is_subdevice);

/* Counts the devices of the CUDA backend (usmb_cuda_devices), and finds their ordinals. t may be NULL. */
void usmb_cuda_count(usmb_device_table *t);

/* Returns the interned place, retained. A new place copies queue_or_null. */
int usmb_place_intern(usmb_device_table *t, void *ctx, void *device, int32_t kind, void *queue_or_null,
                      usmb_place **out);

#endif
