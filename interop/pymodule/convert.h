/*
 * convert.h: the conversion of elements by the processor, for forked children.
 */
#ifndef USMB_PYMODULE_CONVERT_H
#define USMB_PYMODULE_CONVERT_H

#include <stdint.h>

#include "usmb_dlpack.h"

/* One side of a conversion: elements in memory that the processor can access. */
typedef struct {
	char *first;            /* address of the element at position 0 */
	int64_t at;             /* position of element [0, ..., 0], which may begin within a byte */
	const int64_t *strides; /* in elements */
	usmb_dl_dtype dtype;    /* lanes 1 */
	uint32_t itembits;      /* bits from one element to the next */
} usmb_elements;

/* Reports whether elements of one type can be converted to another: all but complex to real. */
int usmb_convertible(usmb_dl_dtype to, usmb_dl_dtype from);
/* Converts each element, as Array.AsType of Go does. The sides must not overlap. No GIL needed. */
void usmb_convert(const usmb_elements *to, const usmb_elements *from, int32_t ndim, const int64_t *shape);

#endif
