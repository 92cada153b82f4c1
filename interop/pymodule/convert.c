/* convert.c: the conversion of elements by the processor.

   Go converts elements (usmarray/convert.go), but does not run in a forked child. These loops are for plain memory there. The
   results are the same; Array.AsType of Go describes them, and test_fork.py compares all pairs of types. */
#include <math.h>
#include <string.h>

#include "convert.h"

/* ---- floating-point types that C lacks ---------------------------------------------------------- */

/* The bit patterns that are not finite numbers. */
enum {
	IEEE,   /* all exponent bits set: infinity or NaN */
	NAN_,   /* all bits but the sign set: NaN; no infinity */
	FNUZ,   /* the pattern of -0 is the only NaN */
	FINITE, /* neither infinity nor NaN */
	SCALE   /* an unsigned power of two; all bits set: NaN */
};

typedef struct {
	int exponent, mantissa; /* widths in bits */
	int bias, specials;
} format;

static const format float16 = {5, 10, 15, IEEE};

/* Returns the format of a floating-point type narrower than float32, NULL for other types. */
static const format *format_of(usmb_dl_dtype t)
{
	static const format by_code[] = {
	        [USMB_DL_BFLOAT] = {8, 7, 127, IEEE},          [USMB_DL_FLOAT8_E3M4] = {3, 4, 3, IEEE},
	        [USMB_DL_FLOAT8_E4M3] = {4, 3, 7, IEEE},       [USMB_DL_FLOAT8_E4M3B11FNUZ] = {4, 3, 11, FNUZ},
	        [USMB_DL_FLOAT8_E4M3FN] = {4, 3, 7, NAN_},     [USMB_DL_FLOAT8_E4M3FNUZ] = {4, 3, 8, FNUZ},
	        [USMB_DL_FLOAT8_E5M2] = {5, 2, 15, IEEE},      [USMB_DL_FLOAT8_E5M2FNUZ] = {5, 2, 16, FNUZ},
	        [USMB_DL_FLOAT8_E8M0FNU] = {8, 0, 127, SCALE}, [USMB_DL_FLOAT6_E2M3FN] = {2, 3, 1, FINITE},
	        [USMB_DL_FLOAT6_E3M2FN] = {3, 2, 3, FINITE},   [USMB_DL_FLOAT4_E2M1FN] = {2, 1, 1, FINITE},
	};
	if (t.code == USMB_DL_FLOAT) return t.bits == 16 ? &float16 : NULL;
	if (t.code >= sizeof by_code / sizeof *by_code || by_code[t.code].exponent == 0) return NULL;
	return &by_code[t.code];
}

static uint64_t largest(const format *f)
{
	uint64_t all = (UINT64_C(1) << (f->exponent + f->mantissa)) - 1;
	if (f->specials == IEEE) return all - (UINT64_C(1) << f->mantissa);
	return f->specials == NAN_ || f->specials == SCALE ? all - 1 : all;
}

/* The fields of a double. */
enum { WIDE_MANTISSA = 52, WIDE_BIAS = 1023 };

static double of_bits(uint64_t bits)
{
	double d;
	memcpy(&d, &bits, sizeof d);
	return d;
}

static uint64_t bits_of(double d)
{
	uint64_t bits;
	memcpy(&bits, &d, sizeof bits);
	return bits;
}

static double decode(const format *f, uint64_t bits)
{
	uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa) - 1);
	int top = (1 << f->exponent) - 1, exponent = (int)(bits >> f->mantissa) & top;
	if (f->specials == SCALE) return exponent == top ? of_bits(bits_of(NAN)) : ldexp(1, exponent - f->bias);
	uint64_t sign = bits >> (f->mantissa + f->exponent) & 1;
	int is_nan = (f->specials == FNUZ && sign && !exponent && !mantissa) ||
	             (f->specials == NAN_ && exponent == top && mantissa == (UINT64_C(1) << f->mantissa) - 1) ||
	             (f->specials == IEEE && exponent == top && mantissa);
	if (is_nan) return of_bits(bits_of(NAN) | sign << 63);
	if (f->specials == IEEE && exponent == top) return sign ? -INFINITY : INFINITY;
	double value = exponent == 0 ? ldexp((double)mantissa, 1 - f->bias - f->mantissa)
	                             : ldexp((double)(mantissa | UINT64_C(1) << f->mantissa),
	                                     exponent - f->bias - f->mantissa);
	return sign ? -value : value;
}

/* Rounds the positive number with these bits, including infinity. The result is above largest on overflow. */
static uint64_t encode_positive(const format *f, uint64_t wide)
{
	int e = (int)(wide >> WIDE_MANTISSA) - WIDE_BIAS, least = 1 - f->bias;
	uint64_t significand = (wide & ((UINT64_C(1) << WIDE_MANTISSA) - 1)) | UINT64_C(1) << WIDE_MANTISSA;
	int drop = WIDE_MANTISSA - f->mantissa;
	if (e < least) { /* subnormal: fewer bits are left */
		drop += least - e;
		if (drop > WIDE_MANTISSA + 1) return 0; /* less than half of the smallest number */
		e = least;
	}
	uint64_t units = significand >> drop, rest = significand & ((UINT64_C(1) << drop) - 1);
	uint64_t half = UINT64_C(1) << (drop - 1);
	if (rest > half || (rest == half && units & 1)) units++;
	/* A carry out of rounding moves to the next exponent by itself. */
	return ((uint64_t)(e + f->bias - 1) << f->mantissa) + units;
}

/* The nearest power of two, the larger of two equally near; NaN for all but positive finite numbers. */
static uint64_t encode_scale(const format *f, double v)
{
	uint64_t nan = largest(f) + 1;
	int e;
	if (!(v > 0) || isinf(v)) return nan;
	double fraction = frexp(v, &e);
	e += f->bias - (fraction < 0.75);
	if (e < 0) e = 0;
	return (uint64_t)e < nan ? (uint64_t)e : nan;
}

static uint64_t encode_nan(const format *f, uint64_t sign)
{
	switch (f->specials) {
	case IEEE: return sign | ((UINT64_C(1) << f->exponent) - 1) << f->mantissa | UINT64_C(1) << (f->mantissa - 1);
	case NAN_: return sign | ((UINT64_C(1) << (f->exponent + f->mantissa)) - 1);
	case FNUZ: return UINT64_C(1) << (f->exponent + f->mantissa);
	}
	return sign ^ UINT64_C(1) << (f->exponent + f->mantissa);
}

static uint64_t encode(const format *f, double v)
{
	if (f->specials == SCALE) return encode_scale(f, v);
	uint64_t wide = bits_of(v), sign = wide >> 63 << (f->exponent + f->mantissa);
	if (v != v) return encode_nan(f, sign);
	uint64_t bits = encode_positive(f, wide & ~(UINT64_C(1) << 63)), most = largest(f);
	if (bits <= most) return bits == 0 && f->specials == FNUZ ? 0 : sign | bits;
	if (f->specials == IEEE) return sign | ((UINT64_C(1) << f->exponent) - 1) << f->mantissa;
	return f->specials == FINITE ? sign | most : encode_nan(f, sign);
}

/* ---- one element ------------------------------------------------------------------------------------ */

/* The value of an element. */
typedef struct {
	enum { SIGNED, UNSIGNED, REAL } kind;
	union {
		int64_t i;
		uint64_t u;
		double re;
	};
	double im;
} number;

/* The bits of an element, which may begin within a byte. */
static uint64_t load_bits(const char *p, int shift, int bits)
{
	uint64_t v = 0;
	memcpy(&v, p, (size_t)(shift + bits + 7) / 8);
	v >>= shift;
	return bits < 64 ? v & ((UINT64_C(1) << bits) - 1) : v;
}

static void store_bits(char *p, int shift, int bits, uint64_t v)
{
	uint64_t old = 0, mask = bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX;
	size_t n = (size_t)(shift + bits + 7) / 8;
	if (bits % 8) memcpy(&old, p, n);
	old = (old & ~(mask << shift)) | (v & mask) << shift;
	memcpy(p, &old, n);
}

static double load_real(const char *p, int shift, usmb_dl_dtype t)
{
	const format *f = format_of(t);
	float narrow;
	double wide;
	if (f) return decode(f, load_bits(p, shift, t.bits));
	if (t.bits == 32) {
		memcpy(&narrow, p, sizeof narrow);
		return (double)narrow;
	}
	memcpy(&wide, p, sizeof wide);
	return wide;
}

static usmb_dl_dtype part_of(usmb_dl_dtype complex)
{
	return (usmb_dl_dtype){USMB_DL_FLOAT, complex.bits / 2, 1};
}

static number load(const char *p, int shift, usmb_dl_dtype t)
{
	number n = {UNSIGNED, {.u = 0}, 0};
	switch (t.code) {
	case USMB_DL_BOOL: n.u = load_bits(p, shift, t.bits) != 0; return n;
	case USMB_DL_UINT: n.u = load_bits(p, shift, t.bits); return n;
	case USMB_DL_INT:
		n.kind = SIGNED;
		n.i = (int64_t)(load_bits(p, shift, t.bits) << (64 - t.bits)) >> (64 - t.bits);
		return n;
	}
	n.kind = REAL;
	if (t.code == USMB_DL_COMPLEX) {
		n.re = load_real(p, 0, part_of(t));
		n.im = load_real(p + t.bits / 16, 0, part_of(t));
	} else {
		n.re = load_real(p, shift, t);
	}
	return n;
}

/* Truncates; numbers out of range become the nearest end of the range, and NaN 0. */
static uint64_t to_integer(double x, usmb_dl_dtype t)
{
	if (x != x) return 0;
	if (t.code == USMB_DL_UINT) {
		uint64_t most = UINT64_MAX >> (64 - t.bits);
		return x <= 0 ? 0 : x >= ldexp(1, t.bits) ? most : (uint64_t)x;
	}
	double end = ldexp(1, t.bits - 1);
	int64_t most = INT64_MAX >> (64 - t.bits);
	return (uint64_t)(x >= end ? most : x < -end ? -most - 1 : (int64_t)x);
}

/* An integer as a double that, rounded to a narrow type, is rounded once: to odd in its last bits. */
static double to_odd(number n)
{
	int negative = n.kind == SIGNED && n.i < 0;
	uint64_t m = negative ? -(uint64_t)n.i : n.u;
	if (m > UINT64_C(1) << 53) {
		uint64_t rest = m & ((1 << 11) - 1);
		m = (m - rest) | (rest ? 1 << 11 : 0);
	}
	return negative ? -(double)m : (double)m;
}

static void store_real(char *p, int shift, usmb_dl_dtype t, number n)
{
	const format *f = format_of(t);
	if (f) {
		store_bits(p, shift, t.bits, encode(f, n.kind == REAL ? n.re : to_odd(n)));
	} else if (t.bits == 32) {
		float v = n.kind == REAL ? (float)n.re : n.kind == SIGNED ? (float)n.i : (float)n.u;
		memcpy(p, &v, sizeof v);
	} else {
		double v = n.kind == REAL ? n.re : n.kind == SIGNED ? (double)n.i : (double)n.u;
		memcpy(p, &v, sizeof v);
	}
}

static void store(char *p, int shift, usmb_dl_dtype t, number n)
{
	switch (t.code) {
	case USMB_DL_BOOL: store_bits(p, shift, t.bits, n.kind == REAL ? n.re != 0 || n.im != 0 : n.u != 0); return;
	case USMB_DL_INT:
	case USMB_DL_UINT: store_bits(p, shift, t.bits, n.kind == REAL ? to_integer(n.re, t) : n.u); return;
	case USMB_DL_COMPLEX:
		store_real(p, 0, part_of(t), n);
		store_real(p + t.bits / 16, 0, part_of(t), (number){REAL, {.re = n.im}, 0});
		return;
	}
	store_real(p, shift, t, n);
}

/* ---- loops ------------------------------------------------------------------------------------------- */

int usmb_convertible(usmb_dl_dtype to, usmb_dl_dtype from)
{
	return from.code != USMB_DL_COMPLEX || to.code == USMB_DL_COMPLEX || to.code == USMB_DL_BOOL;
}

/* Sets the address of the byte in which an element begins, and returns its first bit there. */
static int locate(const usmb_elements *e, int64_t position, char **p)
{
	int64_t bit = position * (int64_t)e->itembits;
	*p = e->first + (bit >> 3);
	return (int)(bit & 7);
}

static void convert_row(const usmb_elements *to, int64_t d, int64_t dstep, const usmb_elements *from, int64_t s,
                        int64_t sstep, int64_t n)
{
	int same = to->dtype.code == from->dtype.code && to->dtype.bits == from->dtype.bits;
	int bits = to->dtype.bits, whole = same && bits >= 8;
	char *p, *q;
	if (whole && dstep == 1 && sstep == 1) {
		(void)locate(to, d, &p);
		(void)locate(from, s, &q);
		memcpy(p, q, (size_t)(n * (bits / 8)));
		return;
	}
	for (int64_t i = 0; i < n; i++, d += dstep, s += sstep) {
		int into = locate(to, d, &p), at = locate(from, s, &q);
		if (whole) {
			memcpy(p, q, (size_t)bits / 8);
			continue;
		}
		if (to->itembits > (uint32_t)bits) *p = 0; /* a byte of its own, whose other bits are 0 */
		if (same)
			store_bits(p, into, bits, load_bits(q, at, bits));
		else
			store(p, into, to->dtype, load(q, at, from->dtype));
	}
}

static void convert_axes(const usmb_elements *to, int64_t d, const usmb_elements *from, int64_t s, int32_t ndim,
                         const int64_t *shape, int32_t axis)
{
	if (axis == ndim) {
		convert_row(to, d, 1, from, s, 1, 1);
	} else if (axis == ndim - 1) {
		convert_row(to, d, to->strides[axis], from, s, from->strides[axis], shape[axis]);
	} else {
		for (int64_t i = 0; i < shape[axis]; i++)
			convert_axes(to, d + i * to->strides[axis], from, s + i * from->strides[axis], ndim, shape,
			             axis + 1);
	}
}

void usmb_convert(const usmb_elements *to, const usmb_elements *from, int32_t ndim, const int64_t *shape)
{
	for (int32_t i = 0; i < ndim; i++)
		if (shape[i] == 0) return;
	convert_axes(to, to->at, from, from->at, ndim, shape, 0);
}
