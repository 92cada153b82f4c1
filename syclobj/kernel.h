/*
 * Programs, kernels and launches for the Go side. Private to this package.
 */
#ifndef USMB_SYCL_KERNEL_H
#define USMB_SYCL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* The most arguments of a launch. A driver need not take more than 1024 bytes of them,
 * and a pointer has 8. */
enum { USMB_KERNEL_MAX_ARGS = 128 };

/* What an argument of a launch is; its number lies in usmb_launch.values. */
enum {
	USMB_KERNEL_ARG_SCALAR1, /* 1 byte: in the low ones of the number */
	USMB_KERNEL_ARG_SCALAR2,
	USMB_KERNEL_ARG_SCALAR4,
	USMB_KERNEL_ARG_SCALAR8,
	USMB_KERNEL_ARG_POINTER, /* an address */
	USMB_KERNEL_ARG_LOCAL,   /* bytes of memory of the work-group */
	USMB_KERNEL_ARG_RAW      /* what usmb_kernel_raw_new gave */
};

/* One launch: by itself 2 KiB, which the caller has on its stack. */
typedef struct usmb_launch {
	uint64_t values[USMB_KERNEL_MAX_ARGS];
	size_t global[3], local[3]; /* work-items, as the library orders them */
	uint32_t nargs, ndim;
	uint32_t grouped; /* 1: local is given */
	uint8_t kinds[USMB_KERNEL_MAX_ARGS];
} usmb_launch;

/* What a device can take. */
typedef struct usmb_work_limits {
	uint64_t local_bytes; /* of memory of a work-group; 0: the runtime did not tell, likewise below */
	size_t group;         /* work-items of a work-group */
	size_t extent[3];     /* of a work-group along each dimension */
} usmb_work_limits;

void usmb_work_limits_of(void *device, usmb_work_limits *out);

/* A program of OpenCL C (il 0; text ends with a NUL) or SPIR-V. Owned. EFAILED when the
 * library gives none. */
int usmb_program_new(void *ctx, void *device, const void *text, size_t n, int il, const char *options, void **out);
void usmb_program_delete(void *program);

/* A kernel of its own, and how many arguments it takes. Owned. EFAILED: there is none of
 * that name. */
int usmb_kernel_new(void *program, const char *name, void **out, size_t *nargs);
void usmb_kernel_delete(void *kernel);

/* 1 when the library takes arguments of any bytes. */
int usmb_kernel_raw_available(void);
/* An argument of n bytes, which are copied; NULL when the library cannot. Owned. */
void *usmb_kernel_raw_new(const void *bytes, size_t n);
void usmb_kernel_raw_delete(void *raw);

/* Submits a launch after the borrowed events of deps; *out_event is owned. */
int usmb_kernel_launch(void *queue, void *kernel, const usmb_launch *launch, void **deps, size_t n, void **out_event);

#endif
