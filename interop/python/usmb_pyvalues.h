/*
 * usmb_pyvalues.h: conversion of values and texts between Go and Python.
 */
#ifndef USMB_PYVALUES_H
#define USMB_PYVALUES_H

#include "usmb_pyresult.h"

/* Kinds of objects, and the members of usmb_pyret that usmb_pyop_view sets for each. */
enum {
	USMB_PYK_OTHER = 0,
	USMB_PYK_NONE,
	USMB_PYK_BOOL,    /* num */
	USMB_PYK_INT,     /* num */
	USMB_PYK_BIGINT,  /* an int that does not fit int64 */
	USMB_PYK_FLOAT,   /* re */
	USMB_PYK_COMPLEX, /* re, im */
	USMB_PYK_STR,
	USMB_PYK_BYTES,     /* val: the bytes, in memory of the object; num: their number */
	USMB_PYK_BYTEARRAY, /* as USMB_PYK_BYTES */
	USMB_PYK_LIST,      /* num: length */
	USMB_PYK_TUPLE,     /* num: length */
	USMB_PYK_DICT       /* num: length */
};

usmb_pyret usmb_pyop_view(void *o);
/* Stores n new references: the elements of a list or tuple of length n. */
usmb_pyret usmb_pyop_items(void *o, void **out, size_t n);
/* Stores 2n new references: the keys and values of a dict of length n, in turn. */
usmb_pyret usmb_pyop_dict_items(void *o, void **out, size_t n);
usmb_pyret usmb_pyop_index(void *o); /* num: the result of __index__ */
usmb_pyret usmb_pyop_float(void *o); /* re: the result of __float__ or __index__ */

usmb_pyret usmb_pyop_from_int(int64_t v);
usmb_pyret usmb_pyop_from_hex(const char *text); /* an int from text such as "-1f" */
usmb_pyret usmb_pyop_from_float(double v);
usmb_pyret usmb_pyop_from_text(const char *s, size_t n);
usmb_pyret usmb_pyop_from_bytes(const void *p, size_t n);
usmb_pyret usmb_pyop_from_names(void **items, size_t n); /* a tuple; steals the references, also on failure */
usmb_pyret usmb_pyop_from_words(const uint64_t *words);

/* Kinds of texts: the contents of a str, str(o), repr(o), the name of the class, hex(o). */
enum { USMB_PYT_VALUE = 0, USMB_PYT_STR, USMB_PYT_REPR, USMB_PYT_TYPE, USMB_PYT_HEX };

usmb_pyret usmb_pyop_text(void *o, int kind); /* val: UTF-8 to free; num: length */

/* GIL: stores a malloc'ed UTF-8 copy of a str in r. Unless strict, lone surrogates become
   escapes. Returns 1, or 0 with an exception. */
int usmb_py_copy_text(PyObject *s, int strict, usmb_pyret *r);

/* GIL: returns "Class" for a built-in class, otherwise "module.Class". New reference. */
PyObject *usmb_py_class_name(PyTypeObject *t);

/* Kinds of values that Go encoded as words; interop/internal/values describes the format. */
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

/* The state of a decoder of words. */
typedef struct usmb_words {
	const uint64_t *words;
	uint32_t at; /* index of the next word */
	/* Returns the object of the array at the index at and advances at behind the array. If it
	   fails, it does not change at. NULL: arrays are not supported. */
	PyObject *(*array)(struct usmb_words *w);
} usmb_words;

/* GIL: returns a new reference to the next value, or NULL with an exception. */
PyObject *usmb_py_read_value(usmb_words *w);

#endif /* USMB_PYVALUES_H */
