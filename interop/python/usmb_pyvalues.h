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
usmb_pyret usmb_pyop_from_hex(const char *text); /* "-1f", NUL-ended */
usmb_pyret usmb_pyop_from_float(double v);
usmb_pyret usmb_pyop_from_text(const char *s, size_t n);
usmb_pyret usmb_pyop_from_bytes(const void *p, size_t n);
usmb_pyret usmb_pyop_from_names(void **items, size_t n); /* a tuple; takes over the references, also on failure */
usmb_pyret usmb_pyop_from_words(const uint64_t *words);

/* Kinds of values that Go wrote as words: interop/internal/values describes the format. */
enum {
	USMB_VALUE_NONE = 0,
	USMB_VALUE_BOOL,
	USMB_VALUE_INT,
	USMB_VALUE_UINT,
	USMB_VALUE_BIG,
	USMB_VALUE_FLOAT,
	USMB_VALUE_COMPLEX,
	USMB_VALUE_TEXT,
	USMB_VALUE_BYTES,
	USMB_VALUE_LIST,
	USMB_VALUE_TUPLE,
	USMB_VALUE_DICT,
	USMB_VALUE_NUMBER,
	USMB_VALUE_OBJECT,
	USMB_VALUE_ARRAY
};
#define USMB_VALUE_BITS 4

static inline uint32_t usmb_value_kind(uint64_t word)
{
	return word & ((1u << USMB_VALUE_BITS) - 1);
}
static inline uint64_t usmb_value_n(uint64_t word)
{
	return word >> USMB_VALUE_BITS;
}

/* The number of words of a value, without the values inside it. */
static inline uint32_t usmb_value_size(uint64_t word)
{
	switch (usmb_value_kind(word)) {
	case USMB_VALUE_INT:
	case USMB_VALUE_UINT:
	case USMB_VALUE_FLOAT:
	case USMB_VALUE_OBJECT: return 2;
	case USMB_VALUE_COMPLEX: return 3;
	case USMB_VALUE_BIG:
	case USMB_VALUE_TEXT:
	case USMB_VALUE_BYTES: return (uint32_t)(usmb_value_n(word) / 8 + 2);
	case USMB_VALUE_ARRAY: return (uint32_t)(2 * usmb_value_n(word) + 5);
	}
	return 1;
}

/* Words that are being read. */
typedef struct usmb_words {
	const uint64_t *words;
	uint32_t at;
	/* Makes the object of an array whose first word is at at, and moves at behind it. After a
	   failure at stays. NULL: there are no arrays. */
	PyObject *(*array)(struct usmb_words *w);
} usmb_words;

/* GIL: a new reference to the next value; NULL with an exception. */
PyObject *usmb_py_read_value(usmb_words *w);

#endif /* USMB_PYVALUES_H */
