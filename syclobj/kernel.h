/* Programs, kernels and launches for the Go side. Private to this package. */
#ifndef USMB_SYCL_KERNEL_H
#define USMB_SYCL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/*
 * The maximum number of arguments of a launch. Drivers need not support more than 1024 bytes of arguments,
 * and a pointer has 8.
 */
enum { USMB_KERNEL_MAX_ARGS = 128 };

/* The kind of an argument of a launch; its value is in usmb_launch.values. */
enum {
	USMB_KERNEL_ARG_SCALAR1, /* 1 byte: the low byte of the value */
	USMB_KERNEL_ARG_SCALAR2,
	USMB_KERNEL_ARG_SCALAR4,
	USMB_KERNEL_ARG_SCALAR8,
	USMB_KERNEL_ARG_POINTER, /* an address */
	USMB_KERNEL_ARG_LOCAL,   /* size of memory of the work-group in bytes */
	USMB_KERNEL_ARG_RAW      /* a result of usmb_kernel_raw_new */
};

/* One launch: 2 KiB on the caller's stack. */
typedef struct usmb_launch {
	uint64_t values[USMB_KERNEL_MAX_ARGS];
	size_t global[3], local[3]; /* work-items, as the library orders them */
	uint32_t nargs, ndim;
	uint32_t grouped; /* 1: local is given */
	uint8_t kinds[USMB_KERNEL_MAX_ARGS];
} usmb_launch;

/* The limits of a device; 0 means unknown. */
typedef struct usmb_work_limits {
	uint64_t local_bytes; /* memory of a work-group */
	size_t group;         /* work-items of a work-group */
	size_t extent[3];     /* of a work-group along each dimension */
} usmb_work_limits;

void usmb_work_limits_of(void *device, usmb_work_limits *out);

/*
 * Builds a program of OpenCL C (il 0; text ends with a NUL) or SPIR-V. Owned. EFAILED if the library
 * returns none.
 */
int usmb_program_new(void *ctx, void *device, const void *text, size_t n, int il, const char *options, void **out);
void usmb_program_delete(void *program);

/* Returns a new kernel, owned, and the number of its arguments. EFAILED if there is none of that name. */
int usmb_kernel_new(void *program, const char *name, void **out, size_t *nargs);
void usmb_kernel_delete(void *kernel);

/* Returns 1 if the library supports arguments of arbitrary bytes. */
int usmb_kernel_raw_available(void);
/* Creates an argument of n bytes, which are copied. Owned; NULL if the library cannot. */
void *usmb_kernel_raw_new(const void *bytes, size_t n);
void usmb_kernel_raw_delete(void *raw);

/* Submits a launch after the borrowed events of deps; *out_event is owned. */
int usmb_kernel_launch(void *queue, void *kernel, const usmb_launch *launch, void **deps, size_t n, void **out_event);

#endif
