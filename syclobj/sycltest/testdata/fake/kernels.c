/*
 * Programs and kernels. The compiler finds kernels by "kernel void NAME(" and counts their
 * parameters by the commas. It refuses a text that contains #error. Two kernels have an
 * effect: increment adds one to the ints of its first argument, and copy copies the ints of
 * its first argument to its second, one for each work-item.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <stdlib.h>
#include <string.h>

enum { ARG_POINTER = 10 };

typedef struct kernel {
	char name[64];
	size_t nargs;
	context *ctx;
	device *dev;
} kernel;

typedef struct program {
	char *text;
	context *ctx;
	device *dev;
} program;

static void *build(const char *name, void *ctx, void *dev, const char *text, size_t n)
{
	program p = {.ctx = handle_object(CONTEXT, ctx), .dev = handle_object(DEVICE, dev)}, *kept;

	if (fake_entry(name)) return NULL;
	p.text = keep(n + 1);
	memcpy(p.text, text, n);
	for (size_t i = 0; i < n; i++)
		if (p.text[i] == 0) p.text[i] = ' ';
	if (memmem(text, n, "#error", 6) != NULL) return NULL;
	kept = keep(sizeof *kept);
	*kept = p;
	return handle_new(PROGRAM, kept);
}
void *DPCTLKernelBundle_CreateFromOCLSource(void *ctx, void *dev, const char *source, const char *options)
{
	if (options == NULL) fake_die("the options are NULL");
	return build(__func__, ctx, dev, source, strlen(source));
}
/* The module has a text after its header of five words. */
void *DPCTLKernelBundle_CreateFromSpirv(void *ctx, void *dev, const void *il, size_t n, const char *options)
{
	if (options == NULL || n < 20) fake_die("the options are NULL or the module is too short");
	return build(__func__, ctx, dev, (const char *)il + 20, n - 20);
}
void DPCTLKernelBundle_Delete(void *h)
{
	handle_delete(PROGRAM, h);
}
void *DPCTLKernelBundle_GetKernel(void *h, const char *name)
{
	program *p = handle_object(PROGRAM, h);
	char head[128];
	const char *at;
	kernel *k;

	if (fake_entry(__func__) || strlen(name) >= sizeof k->name) return NULL;
	strcat(strcat(strcpy(head, "kernel void "), name), "(");
	at = strstr(p->text, head);
	if (at == NULL) return NULL;
	k = keep(sizeof *k);
	strcpy(k->name, name);
	k->ctx = p->ctx;
	k->dev = p->dev;
	at += strlen(head);
	k->nargs = *at != ')';
	for (; *at != ')' && *at != 0; at++) k->nargs += *at == ',';
	return handle_new(KERNEL, k);
}
size_t DPCTLKernel_GetNumArgs(void *h)
{
	return ((kernel *)handle_object(KERNEL, h))->nargs;
}
void DPCTLKernel_Delete(void *h)
{
	handle_delete(KERNEL, h);
}

static void *launch(const char *name, void *kh, void *q, void **args, const int *types, size_t nargs,
                    const size_t *global, size_t ndim, void **deps, size_t n)
{
	kernel *k = handle_object(KERNEL, kh);
	queue *on = handle_object(QUEUE, q);
	event e = {.op = FILL, .width = 1};
	size_t items = 1;

	if (fake_entry(name)) return NULL;
	if (k->ctx != on->ctx || k->dev != on->dev || nargs != k->nargs) return NULL;
	for (size_t i = 0; i < ndim; i++) items *= global[i];
	if (strcmp(k->name, "increment") == 0 && types[0] == ARG_POINTER)
		e = (event){.op = INCREMENT, .dst = args[0], .size = 4 * items};
	if (strcmp(k->name, "copy") == 0 && types[0] == ARG_POINTER && types[1] == ARG_POINTER)
		e = (event){.op = COPY, .src = args[0], .dst = args[1], .size = 4 * items};
	return submit(q, e, deps, n);
}
void *DPCTLQueue_SubmitRange(void *k, void *q, void **args, const int *types, size_t nargs, const size_t *global,
                             size_t ndim, void **deps, size_t n)
{
	return launch(__func__, k, q, args, types, nargs, global, ndim, deps, n);
}
void *DPCTLQueue_SubmitNDRange(void *k, void *q, void **args, const int *types, size_t nargs, const size_t *global,
                               const size_t *local, size_t ndim, void **deps, size_t n)
{
	for (size_t i = 0; i < ndim; i++)
		if (local[i] == 0 || global[i] % local[i] != 0) return NULL;
	return launch(__func__, k, q, args, types, nargs, global, ndim, deps, n);
}

uint64_t DPCTLDevice_GetLocalMemSize(void *d)
{
	return handle_object(DEVICE, d) != NULL ? 64 << 10 : 0;
}
size_t DPCTLDevice_GetMaxWorkGroupSize(void *d)
{
	return handle_object(DEVICE, d) != NULL ? 1024 : 0;
}
size_t *DPCTLDevice_GetMaxWorkItemSizes3d(void *d)
{
	size_t *sizes = fake_entry(__func__) || handle_object(DEVICE, d) == NULL ? NULL : malloc(3 * sizeof *sizes);

	if (sizes != NULL) {
		sizes[0] = 64;
		sizes[1] = sizes[2] = 1024;
	}
	return sizes;
}
void DPCTLSize_t_Array_Delete(size_t *sizes)
{
	free(sizes);
}
