/* promote.c: the element type that holds two, by the rules of NumPy's promote_types;
   the types that NumPy lacks go to those that it has, or to none. */
#include "usmb_promote.h"

static int is_int(usmb_dl_dtype t)
{
	return t.code == USMB_DL_INT || t.code == USMB_DL_UINT;
}

static usmb_dl_dtype type(uint8_t code, int bits)
{
	return (usmb_dl_dtype){code, (uint8_t)bits, 1};
}

static int max(int a, int b)
{
	return a > b ? a : b;
}

static usmb_dl_dtype both_int(usmb_dl_dtype a, usmb_dl_dtype b)
{
	if (a.code == b.code) return a.bits > b.bits ? a : b;
	int u = a.code == USMB_DL_UINT ? a.bits : b.bits, s = a.code == USMB_DL_UINT ? b.bits : a.bits;
	if (u == 64) return type(USMB_DL_FLOAT, 64);
	return type(USMB_DL_INT, max(s, 2 * u));
}

/* The IEEE type for the values of t, a real one. */
static usmb_dl_dtype ieee(usmb_dl_dtype t)
{
	if (is_int(t)) return type(USMB_DL_FLOAT, t.bits <= 8 ? 16 : t.bits <= 16 ? 32 : 64);
	if (t.code == USMB_DL_FLOAT) return t;
	if (t.code == USMB_DL_BFLOAT) return type(USMB_DL_FLOAT, 32);
	return type(USMB_DL_FLOAT, 16); /* bool; float8 and narrower are asked for elsewhere */
}

static int is_narrow(usmb_dl_dtype t)
{
	return !is_int(t) && t.code != USMB_DL_BOOL && t.code != USMB_DL_FLOAT && t.code != USMB_DL_COMPLEX;
}

int usmb_promote(usmb_dl_dtype a, usmb_dl_dtype b, usmb_dl_dtype *out)
{
	int complex = a.code == USMB_DL_COMPLEX || b.code == USMB_DL_COMPLEX;
	if (a.code == b.code && a.bits == b.bits)
		*out = a;
	else if (a.code == USMB_DL_BOOL)
		*out = b;
	else if (b.code == USMB_DL_BOOL)
		*out = a;
	else if (is_int(a) && is_int(b))
		*out = both_int(a, b);
	else {
		usmb_dl_dtype x = a.code == USMB_DL_COMPLEX ? type(USMB_DL_FLOAT, a.bits / 2) : a;
		usmb_dl_dtype y = b.code == USMB_DL_COMPLEX ? type(USMB_DL_FLOAT, b.bits / 2) : b;
		/* What is narrow is held by float32 and float64, and bfloat16 by no float16. */
		int wide = max(ieee(x).bits, ieee(y).bits);
		if ((is_narrow(x) || is_narrow(y)) && wide < 32) return -1;
		if (is_narrow(x) && is_narrow(y)) return -1;
		if ((is_narrow(x) && is_int(y)) || (is_narrow(y) && is_int(x))) return -1;
		*out = complex ? type(USMB_DL_COMPLEX, max(64, 2 * wide)) : type(USMB_DL_FLOAT, wide);
	}
	return 0;
}
