//go:build linux

/* Names of types and devices. */
#include <string.h>

#include "usmb_dl_internal.h"

typedef struct {
	usmb_dl_dtype dtype;
	const char *name;    /* as the array API and ml_dtypes write it */
	const char *typestr; /* as the array interface writes it, or NULL */
} type_name;

static const type_name types[] = {
        {{USMB_DL_BOOL, 8, 1}, "bool", "|b1"},
        {{USMB_DL_INT, 8, 1}, "int8", "|i1"},
        {{USMB_DL_INT, 16, 1}, "int16", "<i2"},
        {{USMB_DL_INT, 32, 1}, "int32", "<i4"},
        {{USMB_DL_INT, 64, 1}, "int64", "<i8"},
        {{USMB_DL_UINT, 8, 1}, "uint8", "|u1"},
        {{USMB_DL_UINT, 16, 1}, "uint16", "<u2"},
        {{USMB_DL_UINT, 32, 1}, "uint32", "<u4"},
        {{USMB_DL_UINT, 64, 1}, "uint64", "<u8"},
        {{USMB_DL_FLOAT, 16, 1}, "float16", "<f2"},
        {{USMB_DL_FLOAT, 32, 1}, "float32", "<f4"},
        {{USMB_DL_FLOAT, 64, 1}, "float64", "<f8"},
        {{USMB_DL_COMPLEX, 32, 1}, "complex32", NULL},
        {{USMB_DL_COMPLEX, 64, 1}, "complex64", "<c8"},
        {{USMB_DL_COMPLEX, 128, 1}, "complex128", "<c16"},
        {{USMB_DL_BFLOAT, 16, 1}, "bfloat16", NULL},
        {{USMB_DL_FLOAT8_E3M4, 8, 1}, "float8_e3m4", NULL},
        {{USMB_DL_FLOAT8_E4M3, 8, 1}, "float8_e4m3", NULL},
        {{USMB_DL_FLOAT8_E4M3B11FNUZ, 8, 1}, "float8_e4m3b11fnuz", NULL},
        {{USMB_DL_FLOAT8_E4M3FN, 8, 1}, "float8_e4m3fn", NULL},
        {{USMB_DL_FLOAT8_E4M3FNUZ, 8, 1}, "float8_e4m3fnuz", NULL},
        {{USMB_DL_FLOAT8_E5M2, 8, 1}, "float8_e5m2", NULL},
        {{USMB_DL_FLOAT8_E5M2FNUZ, 8, 1}, "float8_e5m2fnuz", NULL},
        {{USMB_DL_FLOAT8_E8M0FNU, 8, 1}, "float8_e8m0fnu", NULL},
        {{USMB_DL_FLOAT6_E2M3FN, 6, 1}, "float6_e2m3fn", NULL},
        {{USMB_DL_FLOAT6_E3M2FN, 6, 1}, "float6_e3m2fn", NULL},
        {{USMB_DL_FLOAT4_E2M1FN, 4, 1}, "float4_e2m1fn", NULL},
        {{USMB_DL_INT, 1, 1}, "int1", NULL},
        {{USMB_DL_INT, 2, 1}, "int2", NULL},
        {{USMB_DL_INT, 4, 1}, "int4", NULL},
        {{USMB_DL_UINT, 1, 1}, "uint1", NULL},
        {{USMB_DL_UINT, 2, 1}, "uint2", NULL},
        {{USMB_DL_UINT, 4, 1}, "uint4", NULL},
};

enum { TYPES = sizeof types / sizeof types[0] };

static const type_name *find_type(usmb_dl_dtype d)
{
	for (int i = 0; i < TYPES; i++) {
		const usmb_dl_dtype *o = &types[i].dtype;

		if (o->code == d.code && o->bits == d.bits && o->lanes == d.lanes) return &types[i];
	}
	return NULL;
}

const char *usmb_dl_dtype_name(usmb_dl_dtype dtype)
{
	const type_name *t = find_type(dtype);

	return t != NULL ? t->name : NULL;
}

const char *usmb_dl_dtype_typestr(usmb_dl_dtype dtype)
{
	const type_name *t = find_type(dtype);

	return t != NULL ? t->typestr : NULL;
}

int usmb_dl_dtype_by_name(const char *name, usmb_dl_dtype *out)
{
	for (int i = 0; name != NULL && i < TYPES; i++) {
		if (strcmp(types[i].name, name) == 0) {
			*out = types[i].dtype;
			return USMB_DL_OK;
		}
	}
	return USMB_DL_EDTYPE;
}

int usmb_dl_dtype_by_typestr(const char *s, size_t n, usmb_dl_dtype *out)
{
	int sign = n > 0 && (*s == '<' || *s == '=' || *s == '|' || *s == '>' || *s == '!');
	int foreign = sign && (*s == '>' || *s == '!'); /* matters to more than a byte */

	s += sign;
	n -= (size_t)sign;
	for (int i = 0; i < TYPES; i++) {
		const char *t = types[i].typestr;

		if (t == NULL || strlen(t + 1) != n || memcmp(t + 1, s, n) != 0) continue;
		if (foreign && types[i].dtype.bits > 8) return USMB_DL_EDTYPE;
		*out = types[i].dtype;
		return USMB_DL_OK;
	}
	return USMB_DL_EDTYPE;
}

const char *usmb_dl_device_name(int32_t device_type)
{
	static const char *const names[] = {
	        [USMB_DL_CPU] = "kDLCPU",
	        [USMB_DL_CUDA] = "kDLCUDA",
	        [USMB_DL_CUDA_HOST] = "kDLCUDAHost",
	        [USMB_DL_OPENCL] = "kDLOpenCL",
	        [USMB_DL_VULKAN] = "kDLVulkan",
	        [USMB_DL_METAL] = "kDLMetal",
	        [USMB_DL_VPI] = "kDLVPI",
	        [USMB_DL_ROCM] = "kDLROCM",
	        [USMB_DL_ROCM_HOST] = "kDLROCMHost",
	        [USMB_DL_EXT_DEV] = "kDLExtDev",
	        [USMB_DL_CUDA_MANAGED] = "kDLCUDAManaged",
	        [USMB_DL_ONEAPI] = "kDLOneAPI",
	        [USMB_DL_WEBGPU] = "kDLWebGPU",
	        [USMB_DL_HEXAGON] = "kDLHexagon",
	        [USMB_DL_MAIA] = "kDLMAIA",
	        [USMB_DL_TRN] = "kDLTrn",
	};

	return device_type >= 0 && device_type <= USMB_DL_TRN ? names[device_type] : NULL;
}
