/* convert.c: element values: reading, writing and converting them in host
   memory. Covers booleans, integers, floats of 16, 32 and 64 bits, bfloat16
   and complex numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "usmb_pymod.h"

enum { CLASS_BOOL, CLASS_INT, CLASS_UINT, CLASS_FLOAT, CLASS_COMPLEX, CLASS_NONE };

/* A value of any class: i for booleans and integers, re and im for the others. */
typedef struct {
	int class;
	int64_t i; /* CLASS_UINT: the bits of an unsigned value */
	double re, im;
} number;

static int class_of(usmb_dl_dtype t)
{
	int whole = t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64;
	switch (t.code) {
	case USMB_DL_BOOL: return t.bits == 8 ? CLASS_BOOL : CLASS_NONE;
	case USMB_DL_INT: return whole ? CLASS_INT : CLASS_NONE;
	case USMB_DL_UINT: return whole ? CLASS_UINT : CLASS_NONE;
	case USMB_DL_FLOAT: return whole && t.bits >= 16 ? CLASS_FLOAT : CLASS_NONE;
	case USMB_DL_BFLOAT: return t.bits == 16 ? CLASS_FLOAT : CLASS_NONE;
	case USMB_DL_COMPLEX: return t.bits == 64 || t.bits == 128 ? CLASS_COMPLEX : CLASS_NONE;
	default: return CLASS_NONE;
	}
}

int usmb_convertible(usmb_dl_dtype t)
{
	return class_of(t) != CLASS_NONE;
}

/* ---- 16-bit floats -------------------------------------------------------------------- */

static float half_to_float(uint16_t h)
{
	int exponent = h >> 10 & 31, mantissa = h & 1023;
	float v;
	if (exponent == 31)
		v = mantissa ? NAN : INFINITY;
	else if (exponent == 0)
		v = ldexpf((float)mantissa, -24);
	else
		v = ldexpf((float)(mantissa + 1024), exponent - 25);
	return h & 0x8000 ? -v : v;
}

/* Rounds to nearest, ties to even. */
static uint16_t float_to_half(double d)
{
	uint16_t sign = signbit(d) ? 0x8000 : 0;
	double a = fabs(d);
	if (isnan(d)) return sign | 0x7e00;
	if (a >= 65520.0) return sign | 0x7c00;
	if (a < 0x1p-14) return sign | (uint16_t)nearbyint(a * 0x1p24);
	int e;
	frexp(a, &e);                               /* a = m * 2^e, m in [0.5, 1) */
	long m = (long)nearbyint(ldexp(a, 11 - e)); /* 1024..2048 */
	return sign | (uint16_t)(((e + 14) << 10) + (m - 1024));
}

static float brain_to_float(uint16_t b)
{
	uint32_t bits = (uint32_t)b << 16;
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* Through float32 after rounding to odd, so that the value is rounded once. */
static uint16_t float_to_brain(double d)
{
	float f = (float)d;
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	if (isnan(d)) return (uint16_t)(bits >> 16 | 0x40);
	if (isfinite(f) && (double)f != d) {
		if (fabs((double)f) > fabs(d)) bits--;
		bits |= 1;
	}
	if (isinf(f) && isfinite(d)) return (uint16_t)(signbit(d) ? 0xff80 : 0x7f80);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- one element ------------------------------------------------------------------------ */

static double load_float(const void *p, usmb_dl_dtype t, int bits)
{
	uint16_t h;
	float f;
	double d;
	if (bits == 64) return memcpy(&d, p, sizeof d), d;
	if (bits == 32) return memcpy(&f, p, sizeof f), (double)f;
	memcpy(&h, p, sizeof h);
	return (double)(t.code == USMB_DL_BFLOAT ? brain_to_float(h) : half_to_float(h));
}

static void store_float(void *p, usmb_dl_dtype t, int bits, double d)
{
	if (bits == 64) {
		memcpy(p, &d, sizeof d);
	} else if (bits == 32) {
		float f = (float)d;
		memcpy(p, &f, sizeof f);
	} else {
		uint16_t h = t.code == USMB_DL_BFLOAT ? float_to_brain(d) : float_to_half(d);
		memcpy(p, &h, sizeof h);
	}
}

static void load(const char *p, usmb_dl_dtype t, number *n)
{
	n->class = class_of(t);
	n->i = 0;
	n->re = n->im = 0;
	if (n->class == CLASS_COMPLEX) {
		n->re = load_float(p, t, t.bits / 2);
		n->im = load_float(p + t.bits / 16, t, t.bits / 2);
		return;
	}
	if (n->class == CLASS_FLOAT) {
		n->re = load_float(p, t, t.bits);
		return;
	}
	memcpy(&n->i, p, t.bits / 8);
	if (n->class == CLASS_BOOL) n->i = n->i != 0;
	if (n->class == CLASS_INT) n->i = (int64_t)((uint64_t)n->i << (64 - t.bits)) >> (64 - t.bits);
	n->re = n->class == CLASS_UINT ? (double)(uint64_t)n->i : (double)n->i;
}

/* Truncates; what does not fit becomes the lowest integer, as processors do. */
static int64_t to_int(double d, int is_unsigned)
{
	if (d >= -0x1p63 && d < 0x1p63) return (int64_t)d;
	if (is_unsigned && d >= 0x1p63 && d < 0x1p64) return (int64_t)(uint64_t)d;
	return INT64_MIN;
}

static void store(char *p, usmb_dl_dtype t, const number *n)
{
	int class = class_of(t), from_float = n->class >= CLASS_FLOAT;
	if (class == CLASS_COMPLEX) {
		store_float(p, t, t.bits / 2, n->re);
		store_float(p + t.bits / 16, t, t.bits / 2, n->im);
	} else if (class == CLASS_FLOAT) {
		store_float(p, t, t.bits, n->re);
	} else if (class == CLASS_BOOL) {
		*p = from_float ? n->re != 0 || n->im != 0 : n->i != 0;
	} else {
		int64_t v = from_float ? to_int(n->re, class == CLASS_UINT) : n->i;
		memcpy(p, &v, t.bits / 8);
	}
}

PyObject *usmb_load_number(const void *src, usmb_dl_dtype t)
{
	number n;
	load(src, t, &n);
	switch (n.class) {
	case CLASS_BOOL: return Py_NewRef(n.i ? usmb_py.Py_True : usmb_py.Py_False);
	case CLASS_INT: return usmb_py.PyLong_FromLongLong(n.i);
	case CLASS_UINT: return usmb_py.PyLong_FromUnsignedLongLong((unsigned long long)n.i);
	case CLASS_FLOAT: return usmb_py.PyFloat_FromDouble(n.re);
	case CLASS_COMPLEX: return usmb_py.PyComplex_FromDoubles(n.re, n.im);
	default: return usmb_raise(usmb_py.PyExc_TypeError, "Python has no number for this element type");
	}
}

/* ---- Python's numbers ----------------------------------------------------------------------- */

static int number_of_int(PyObject *o, usmb_dl_dtype t, number *n)
{
	int overflow = 0, class = class_of(t), bits = t.bits;
	long long v = usmb_py.PyLong_AsLongLongAndOverflow(o, &overflow);
	n->class = CLASS_INT;
	n->i = v;
	n->im = 0;
	if (class >= CLASS_FLOAT) {
		n->re = usmb_py.PyLong_AsDouble(o);
		n->class = CLASS_FLOAT;
		return n->re == -1.0 && usmb_py.PyErr_Occurred() ? -1 : 0;
	}
	if (class == CLASS_BOOL) return 0;
	int fits = !overflow && (class == CLASS_INT ? bits == 64 || (v >= -(1LL << (bits - 1)) && v < 1LL << (bits - 1))
	                                            : v >= 0 && (bits == 64 || v < 1LL << bits));
	if (!fits && overflow > 0 && class == CLASS_UINT && bits == 64) {
		n->i = (int64_t)usmb_py.PyLong_AsUnsignedLongLong(o);
		fits = usmb_py.PyErr_Occurred() == NULL;
		if (!fits) usmb_py.PyErr_Clear();
	}
	if (fits) return 0;
	const char *name = usmb_dl_dtype_name(t);
	usmb_raise(usmb_py.PyExc_OverflowError, "a Python integer is out of bounds for %s",
	           name ? name : "the element type");
	return -1;
}

static int number_of(PyObject *o, usmb_dl_dtype t, number *n)
{
	memset(n, 0, sizeof *n);
	if (PyLong_Check(o)) return number_of_int(o, t, n);
	if (usmb_py.PyIndex_Check(o) && !PyFloat_Check(o)) {
		PyObject *i = usmb_py.PyNumber_Index(o);
		int r = i ? number_of_int(i, t, n) : -1;
		Py_XDECREF(i);
		return r;
	}
	if (PyComplex_Check(o)) {
		n->class = CLASS_COMPLEX;
		n->re = usmb_py.PyComplex_RealAsDouble(o);
		n->im = usmb_py.PyComplex_ImagAsDouble(o);
		if (class_of(t) == CLASS_COMPLEX || class_of(t) == CLASS_BOOL) return 0;
		usmb_raise(usmb_py.PyExc_TypeError, "a complex number does not fit a real element type");
		return -1;
	}
	n->class = CLASS_FLOAT;
	n->re = usmb_py.PyFloat_AsDouble(o);
	return n->re == -1.0 && usmb_py.PyErr_Occurred() ? -1 : 0;
}

int usmb_store_number(PyObject *o, usmb_dl_dtype t, void *dst)
{
	number n;
	if (number_of(o, t, &n) < 0) return -1;
	store(dst, t, &n);
	return 0;
}

/* ---- whole arrays -------------------------------------------------------------------------------- */

PyObject *usmb_convert(usmb_array *src, usmb_dl_dtype dtype)
{
	const char *from = usmb_dl_dtype_name(src->dtype), *to = usmb_dl_dtype_name(dtype);
	if (!usmb_convertible(src->dtype) || !usmb_convertible(dtype))
		return usmb_raise(usmb_py.PyExc_TypeError,
		                  "conversion from %s to %s is not offered; booleans, integers, 16- to 64-bit floats, "
		                  "bfloat16 and complex numbers convert",
		                  from ? from : "?", to ? to : "?");
	if (class_of(src->dtype) == CLASS_COMPLEX && class_of(dtype) != CLASS_COMPLEX && class_of(dtype) != CLASS_BOOL)
		return usmb_raise(usmb_py.PyExc_TypeError, "conversion from %s to %s would drop the imaginary part",
		                  from, to);
	usmb_where host;
	memset(&host, 0, sizeof host);
	host.host = 1;
	if (usmb_array_wait(src) < 0) return NULL;
	PyObject *o = usmb_new_array(&host, src->ndim, usmb_shape(src), dtype, 0, 0);
	if (!o) return NULL;
	usmb_array *dst = (usmb_array *)o;
	int64_t index[USMB_DL_MAX_NDIM] = {0}, width = usmb_itemsize(src);
	const char *p = src->first;
	char *q = dst->first;
	number n;
	for (int64_t k = 0; k < src->nelem; k++, q += usmb_itemsize(dst)) {
		load(p, src->dtype, &n);
		store(q, dtype, &n);
		for (int32_t i = src->ndim - 1; i >= 0; i--) {
			p += usmb_strides(src)[i] * width;
			if (++index[i] < usmb_shape(src)[i]) break;
			p -= usmb_strides(src)[i] * width * usmb_shape(src)[i];
			index[i] = 0;
		}
	}
	return o;
}
