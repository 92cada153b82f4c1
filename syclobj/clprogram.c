//go:build linux && cgo

#define _GNU_SOURCE
#include "clprogram.h"
#include "signals.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Types and numbers of OpenCL's C interface (CL/cl.h, OpenCL 3.0). */
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bits;
typedef intptr_t cl_property;

enum {
	CL_DEVICE_NAME = 0x102B,
	CL_DRIVER_VERSION = 0x102D,
	CL_CONTEXT_PLATFORM = 0x1084,
	CL_PROGRAM_KERNEL_NAMES = 0x1168,
	CL_PROGRAM_BUILD_LOG = 0x1183,
	CL_KERNEL_ARG_ADDRESS_QUALIFIER = 0x1196,
	CL_KERNEL_ARG_TYPE_NAME = 0x1198,
	CL_KERNEL_ARG_TYPE_QUALIFIER = 0x1199,
	CL_KERNEL_ARG_NAME = 0x119A,
	CL_ADDRESS_GLOBAL = 0x119B,
	CL_ADDRESS_LOCAL = 0x119C,
	CL_ADDRESS_CONSTANT = 0x119D,
	CL_ADDRESS_PRIVATE = 0x119E,
	CL_TYPE_CONST = 1,
	CL_TYPE_PIPE = 8
};
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

enum { MOST = 64, LONGEST = 16 << 20 };

#define OPENCL(X) \
	X(cl_int, clGetPlatformIDs, (cl_uint, void **, cl_uint *)) \
	X(cl_int, clGetDeviceIDs, (void *, cl_bits, cl_uint, void **, cl_uint *)) \
	X(cl_int, clGetDeviceInfo, (void *, cl_uint, size_t, void *, size_t *)) \
	X(void *, clCreateContext, (const cl_property *, cl_uint, void **, void *, void *, cl_int *)) \
	X(cl_int, clReleaseContext, (void *)) \
	X(void *, clCreateProgramWithSource, (void *, cl_uint, const char **, const size_t *, cl_int *)) \
	X(void *, clCreateProgramWithIL, (void *, const void *, size_t, cl_int *)) \
	X(cl_int, clBuildProgram, (void *, cl_uint, void **, const char *, void *, void *)) \
	X(cl_int, clGetProgramInfo, (void *, cl_uint, size_t, void *, size_t *)) \
	X(cl_int, clGetProgramBuildInfo, (void *, void *, cl_uint, size_t, void *, size_t *)) \
	X(cl_int, clReleaseProgram, (void *)) \
	X(void *, clCreateKernel, (void *, const char *, cl_int *)) \
	X(cl_int, clGetKernelArgInfo, (void *, cl_uint, cl_uint, size_t, void *, size_t *)) \
	X(cl_int, clReleaseKernel, (void *))

struct opencl {
#define X(ret, name, args) ret(*name) args;
	OPENCL(X)
#undef X
};

struct usmb_clprogram {
	struct opencl cl;
	void *device, *context, *program;
	int result;
	cl_int code;
};

static int load(struct opencl *cl)
{
	void *lib = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

	if (lib == NULL) return 0;
#define X(ret, name, args) *(void **)&cl->name = dlsym(lib, #name);
	OPENCL(X)
#undef X
	(void)dlclose(lib); /* drops the reference of this lookup; the process holds another */
#define X(ret, name, args) \
	if (cl->name == NULL) return 0;
	OPENCL(X)
#undef X
	return 1;
}

static int is(struct opencl *cl, void *device, cl_uint what, const char *text)
{
	char found[256] = "";

	return cl->clGetDeviceInfo(device, what, sizeof found - 1, found, NULL) == 0 && strcmp(found, text) == 0;
}

static int find(usmb_clprogram *p, const char *name, const char *driver, void **platform)
{
	void *platforms[MOST], *devices[MOST];
	cl_uint np = 0, nd;

	p->code = p->cl.clGetPlatformIDs(MOST, platforms, &np);
	if (p->code != 0) return 0;
	for (cl_uint i = 0; i < np && i < MOST; i++) {
		nd = 0;
		if (p->cl.clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST, devices, &nd) != 0) continue;
		for (cl_uint k = 0; k < nd && k < MOST; k++) {
			if (!is(&p->cl, devices[k], CL_DEVICE_NAME, name) ||
			    !is(&p->cl, devices[k], CL_DRIVER_VERSION, driver))
				continue;
			p->device = devices[k];
			*platform = platforms[i];
			return 1;
		}
	}
	return 0;
}

static int build(usmb_clprogram *p, void *platform, const void *text, size_t n, int il, const char *options)
{
	cl_property properties[] = {CL_CONTEXT_PLATFORM, (cl_property)platform, 0};
	const char *source = text;

	p->context = p->cl.clCreateContext(properties, 1, &p->device, NULL, NULL, &p->code);
	if (p->context == NULL) return USMB_CL_FAILED;
	if (il)
		p->program = p->cl.clCreateProgramWithIL(p->context, text, n, &p->code);
	else
		p->program = p->cl.clCreateProgramWithSource(p->context, 1, &source, &n, &p->code);
	if (p->program == NULL) return USMB_CL_FAILED;
	p->code = p->cl.clBuildProgram(p->program, 1, &p->device, options, NULL, NULL);
	return p->code == 0 ? USMB_CL_BUILT : USMB_CL_REFUSED;
}

usmb_clprogram *usmb_clprogram_build(const char *device, const char *driver, const void *text, size_t n, int il,
                                     const char *options)
{
	usmb_clprogram *p = calloc(1, sizeof *p);
	usmb_signals signals;
	void *platform;

	if (p == NULL) return NULL;
	usmb_signals_save(&signals);
	if (!load(&p->cl))
		p->result = USMB_CL_NOLOADER;
	else if (!find(p, device, driver, &platform))
		p->result = USMB_CL_NODEVICE;
	else
		p->result = build(p, platform, text, n, il, options);
	usmb_signals_restore(&signals);
	return p;
}

void usmb_clprogram_free(usmb_clprogram *p)
{
	if (p == NULL) return;
	if (p->program != NULL) (void)p->cl.clReleaseProgram(p->program);
	if (p->context != NULL) (void)p->cl.clReleaseContext(p->context);
	free(p);
}

int usmb_clprogram_result(const usmb_clprogram *p)
{
	return p->result;
}

int usmb_clprogram_code(const usmb_clprogram *p)
{
	return p->code;
}

/* Copies a text of the program. OpenCL returns all of it or nothing. */
static size_t text_of(usmb_clprogram *p, int log, char *out, size_t n, size_t *total)
{
	char *all = NULL;
	cl_int err;

	*total = 0;
	if (p->program == NULL) return 0;
	for (int pass = 0; pass < 2; pass++) { /* the first pass reads the size */
		if (log)
			err = p->cl.clGetProgramBuildInfo(p->program, p->device, CL_PROGRAM_BUILD_LOG, *total, all,
			                                  total);
		else
			err = p->cl.clGetProgramInfo(p->program, CL_PROGRAM_KERNEL_NAMES, *total, all, total);
		if (err != 0 || *total == 0 || *total > LONGEST) break;
		if (pass == 0 && (all = calloc(1, *total)) == NULL) break;
	}
	if (err != 0 || all == NULL) {
		free(all);
		*total = 0;
		return 0;
	}
	*total = strnlen(all, *total); /* the size includes the terminator */
	n = n < *total ? n : *total;
	memcpy(out, all, n);
	free(all);
	return n;
}

size_t usmb_clprogram_log(usmb_clprogram *p, char *log, size_t n, size_t *total)
{
	return text_of(p, 1, log, n, total);
}

size_t usmb_clprogram_kernels(usmb_clprogram *p, char *names, size_t n, size_t *total)
{
	return text_of(p, 0, names, n, total);
}

static int describe_argument(usmb_clprogram *p, void *kernel, cl_uint i, usmb_clargument *a)
{
	cl_uint address = 0;
	cl_bits qualifiers = 0;

	memset(a, 0, sizeof *a);
	if (p->cl.clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL) != 0)
		return 0;
	switch (address) {
	case CL_ADDRESS_GLOBAL: a->address = USMB_CL_ADDRESS_GLOBAL; break;
	case CL_ADDRESS_LOCAL: a->address = USMB_CL_ADDRESS_LOCAL; break;
	case CL_ADDRESS_CONSTANT: a->address = USMB_CL_ADDRESS_CONSTANT; break;
	case CL_ADDRESS_PRIVATE: a->address = USMB_CL_ADDRESS_PRIVATE; break;
	}
	/* Without the qualifier it is unknown whether the kernel writes: report the argument as unknown. */
	if (p->cl.clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifiers, &qualifiers, NULL) !=
	    0)
		a->address = 0;
	a->constant = (qualifiers & CL_TYPE_CONST) != 0;
	a->pipe = (qualifiers & CL_TYPE_PIPE) != 0;
	/* A name that does not fit is left empty. */
	if (p->cl.clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof a->type - 1, a->type, NULL) != 0)
		a->type[0] = 0;
	if (p->cl.clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_NAME, sizeof a->name - 1, a->name, NULL) != 0)
		a->name[0] = 0;
	return 1;
}

size_t usmb_clprogram_arguments(usmb_clprogram *p, const char *name, usmb_clargument *out, size_t n)
{
	size_t told = 0;
	void *kernel;

	if (p->result != USMB_CL_BUILT) return 0;
	kernel = p->cl.clCreateKernel(p->program, name, &p->code);
	if (kernel == NULL) return 0;
	while (told < n && describe_argument(p, kernel, (cl_uint)told, &out[told])) told++;
	(void)p->cl.clReleaseKernel(kernel);
	return told;
}
