/*
 * cute.h: the submodule usmbridge.cute: tensors as CuTe DSL describes them.
 *
 * cute.c has from_dlpack and the type Tensor; exports_cute_cgo.go has Go's part: conversion,
 * marks, texts.
 *
 * The rules are those of the Go package dlpack/cute. A Tensor contains the flat form of its
 * cute.Spec, an array of 64-bit words, so that conversions and marks allocate nothing on Go's
 * heap. All functions need the GIL and keep it in Go: a call takes less than a microsecond and
 * does not wait.
 */
#ifndef USMB_PYMODULE_CUTE_H
#define USMB_PYMODULE_CUTE_H

#include "support.h"
#include "usmb_owner.h"

enum { USMB_CUTE_MAX_RANK = 64 };

/* Values of the options below, as in the Go package. */
enum { USMB_CUTE_STRIDES_PLAIN = 0, USMB_CUTE_STRIDES_64, USMB_CUTE_STRIDES_32 };
enum { USMB_CUTE_LEADING_UNIQUE = 0, USMB_CUTE_LEADING_SKIP_SIZE_ONE };
enum { USMB_CUTE_SPACE_BY_DEVICE = 0, USMB_CUTE_SPACE_GENERIC, USMB_CUTE_SPACE_GMEM };

/* The options of a conversion. */
typedef struct {
	int64_t align;     /* bytes; meaningful with has_align */
	int32_t has_align; /* 0: the natural alignment */
	int32_t strides;   /* USMB_CUTE_STRIDES_* */
	int32_t leading;   /* USMB_CUTE_LEADING_* */
	int32_t unit;      /* strides of size-1 modes become 1 */
	int32_t dynamic;   /* followed by mark_layout_dynamic() */
	int32_t space;     /* USMB_CUTE_SPACE_* */
} usmb_cute_options;

/* Makes the submodule, as attribute cute of module and in sys.modules. */
int usmb_cute_register(PyObject *module);

/* ---- functions of Go: each returns 0, or -1 and *err ------------------------- */

/* Writes the description of t to words. t has strides, and data is the address of its first
   element; flags are those of DLPack. */
int usmb_go_cute_convert(usmb_dl_tensor *t, uint64_t flags, usmb_cute_options *o, int64_t *words, int64_t nwords,
                         usmb_goerr *err);
/* The marks. They leave words unchanged on failure. deduce: leading was not given. order NULL: not
   given; at most USMB_CUTE_MAX_RANK numbers. */
int usmb_go_cute_mark_layout(int64_t *words, int64_t nwords, int32_t deduce, int64_t leading, usmb_goerr *err);
int usmb_go_cute_mark_compact(int64_t *words, int64_t nwords, int64_t mode, int64_t *order, int64_t norder,
                              int64_t divisibility, usmb_goerr *err);

enum {
	USMB_CUTE_TEXT_TENSOR = 0,
	USMB_CUTE_TEXT_LAYOUT,
	USMB_CUTE_TEXT_KEY,
	USMB_CUTE_TEXT_ELEMENT,
	USMB_CUTE_TEXT_SPACE
};
/* Size of the longest text: 64 dynamic modes with the longest divisibilities. */
enum { USMB_CUTE_TEXT_MAX = 8192 };
/* Writes a text about words to buf, which has USMB_CUTE_TEXT_MAX bytes, and its length to *n. */
int usmb_go_cute_text(int64_t *words, int64_t nwords, int32_t what, void *data, char *buf, int64_t *n, usmb_goerr *err);

#endif
