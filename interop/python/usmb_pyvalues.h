/*
 * usmb_pyvalues.h: values: made for Python from Go's, and read by Go.
 */
#ifndef USMB_PYVALUES_H
#define USMB_PYVALUES_H

#include "usmb_pyresult.h"

/* What a value is, to Go. */
enum {
	USMB_PYK_OTHER = 0,
	USMB_PYK_NONE,
	USMB_PYK_BOOL,    /* num */
	USMB_PYK_INT,     /* num */
	USMB_PYK_BIGINT,  /* does not fit int64 */
	USMB_PYK_FLOAT,   /* re */
	USMB_PYK_COMPLEX, /* re, im */
	USMB_PYK_STR,
	USMB_PYK_BYTES,     /* val: the bytes inside the object, num: how many */
	USMB_PYK_BYTEARRAY, /* the same */
	USMB_PYK_LIST,      /* num: length, as for the next two */
	USMB_PYK_TUPLE,
	USMB_PYK_DICT
};

usmb_pyret usmb_pyop_view(void *o);
usmb_pyret usmb_pyop_items(void *o, void **out, size_t n);      /* of a list or tuple: n new references */
usmb_pyret usmb_pyop_dict_items(void *o, void **out, size_t n); /* key, value, ...: 2n new references */
usmb_pyret usmb_pyop_index(void *o);                            /* num by __index__ */
usmb_pyret usmb_pyop_float(void *o);                            /* re by __float__ */

usmb_pyret usmb_pyop_from_int(int64_t v);
usmb_pyret usmb_pyop_from_uint(uint64_t v);
usmb_pyret usmb_pyop_from_hex(const char *text); /* "-1f", NUL-ended */
usmb_pyret usmb_pyop_from_float(double v);
usmb_pyret usmb_pyop_from_complex(double re, double im);
usmb_pyret usmb_pyop_from_text(const char *s, size_t n);
usmb_pyret usmb_pyop_from_bytes(const void *p, size_t n);
/* take over the references in items, also on failure */
usmb_pyret usmb_pyop_from_list(void **items, size_t n, int tuple);
usmb_pyret usmb_pyop_from_dict(void **keys_values, size_t n);

#endif /* USMB_PYVALUES_H */
