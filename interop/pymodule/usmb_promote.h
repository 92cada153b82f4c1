/*
 * usmb_promote.h: the element type that holds two.
 */
#ifndef USMB_PROMOTE_H
#define USMB_PROMOTE_H

#include "usmb_dlpack.h"

/* The least type that holds the values of a and of b, as NumPy has it: 0 and *out, or
   -1 (no exception) where there is none. */
int usmb_promote(usmb_dl_dtype a, usmb_dl_dtype b, usmb_dl_dtype *out);

#endif
