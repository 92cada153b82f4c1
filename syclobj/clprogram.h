/*
 * A program built by OpenCL itself, for information that the SYCL library does not provide: the compiler's
 * log, the names of the kernels, and their arguments. It uses the OpenCL loader that the process has
 * loaded, and loads none. Private to this package.
 */
#ifndef USMB_SYCL_CLPROGRAM_H
#define USMB_SYCL_CLPROGRAM_H

#include <stddef.h>
#include <stdint.h>

typedef struct usmb_clprogram usmb_clprogram;

/* Results of a build. */
enum {
	USMB_CL_BUILT,
	USMB_CL_REFUSED, /* by the compiler: there is a log */
	USMB_CL_NOLOADER,
	USMB_CL_NODEVICE, /* no OpenCL device has that name and driver version */
	USMB_CL_FAILED    /* a call before the build failed */
};

/*
 * Builds text, n bytes of OpenCL C or (il) SPIR-V, for the OpenCL device with that name and driver
 * version, which its sub-devices share. Owned, also if the build failed; NULL if out of memory.
 */
usmb_clprogram *usmb_clprogram_build(const char *device, const char *driver, const void *text, size_t n, int il,
                                     const char *options);
void usmb_clprogram_free(usmb_clprogram *p);

int usmb_clprogram_result(const usmb_clprogram *p);
/* Returns OpenCL's number of the last failed call, 0 for none. */
int usmb_clprogram_code(const usmb_clprogram *p);
/* Copies at most n bytes of the log, without a terminator. *total is its length. */
size_t usmb_clprogram_log(usmb_clprogram *p, char *log, size_t n, size_t *total);
/* Copies the names of the kernels, separated by semicolons, in the same way. */
size_t usmb_clprogram_kernels(usmb_clprogram *p, char *names, size_t n, size_t *total);

/* The driver's description of an argument. */
typedef struct usmb_clargument {
	int32_t address;  /* USMB_CL_ADDRESS_*, 0 if unknown */
	int32_t constant; /* 1: the pointer is to const */
	int32_t pipe;     /* 1: a pipe, of packets of the type */
	char type[64];    /* as written, without qualifiers: "float*", "uint4" */
	char name[64];
} usmb_clargument;

enum { USMB_CL_ADDRESS_GLOBAL = 1, USMB_CL_ADDRESS_LOCAL, USMB_CL_ADDRESS_CONSTANT, USMB_CL_ADDRESS_PRIVATE };

/* Returns how many of the n arguments of a kernel were described. */
size_t usmb_clprogram_arguments(usmb_clprogram *p, const char *kernel, usmb_clargument *out, size_t n);

#endif
