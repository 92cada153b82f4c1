/*
 * usmb_pytable.h: the part of CPython's C API that this project uses: its types, its
 * numbers, and a table of its functions and objects. A build needs no Python headers
 * and no link flags.
 *
 * The table, usmb_py, is filled by dlsym from the libpython in use (or from the global
 * symbols of a process that runs Python already). C files include usmb_pyapi.h, which
 * defines CPython's names as macros for the members of the table.
 *
 * Layouts and numbers are those of the stable ABI as of Python 3.11 (PEP 384,
 * "Stable ABI" in the C API manual); a test compares them with the real Python.h
 * where one is installed. Entries named in USMB_PY_OPTIONAL may be NULL:
 * they have no macro and are used as usmb_py.NAME.
 *
 * Rules. "GIL" below means: the calling thread holds the interpreter lock. All
 * table functions need it except those listed in the section "without the GIL".
 * "new" results are owned by the caller, "borrowed" ones are not.
 */
#ifndef USMB_PYTABLE_H
#define USMB_PYTABLE_H

#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "usmb_pytable.h: the reference count is read as on little-endian machines"
#endif

typedef intptr_t Py_ssize_t;
typedef Py_ssize_t Py_hash_t;
typedef int PyGILState_STATE;
enum { USMB_PYGILSTATE_LOCKED = 0, USMB_PYGILSTATE_UNLOCKED = 1 };

/* ---- objects ------------------------------------------------------------ */

typedef struct _typeobject PyTypeObject;              /* opaque */
typedef struct PyThreadState PyThreadState;           /* opaque */
typedef struct PyInterpreterState PyInterpreterState; /* opaque */

typedef struct PyObject {
	Py_ssize_t ob_refcnt; /* count in the low 32 bits; a set bit 31 means immortal (3.12+) */
	PyTypeObject *ob_type;
} PyObject;

typedef struct {
	PyObject ob_base;
	Py_ssize_t ob_size;
} PyVarObject;

#define PyObject_HEAD PyObject ob_base;
#define PyObject_VAR_HEAD PyVarObject ob_base;

#define Py_TYPE(o) (((PyObject *)(o))->ob_type)
#define Py_SIZE(o) (((PyVarObject *)(o))->ob_size)
#define Py_IS_TYPE(o, t) (Py_TYPE(o) == (t))

/* The result of initialisation functions (PEP 587). */
typedef struct PyStatus {
	int kind; /* 0: success, 1: error, 2: exit */
	const char *func;
	const char *err_msg;
	int exitcode;
} PyStatus;

/* ---- function types ------------------------------------------------------ */

typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef int (*inquiry)(PyObject *);
typedef int (*visitproc)(PyObject *, void *);
typedef int (*traverseproc)(PyObject *, visitproc, void *);
typedef void (*freefunc)(void *);
typedef void (*destructor)(PyObject *);
typedef PyObject *(*getter)(PyObject *, void *);
typedef int (*setter)(PyObject *, PyObject *, void *);
typedef void (*PyCapsule_Destructor)(PyObject *);

/* ---- definitions of methods, members, types, modules ---------------------- */

typedef struct PyMethodDef {
	const char *ml_name;
	PyCFunction ml_meth;
	int ml_flags; /* METH_* */
	const char *ml_doc;
} PyMethodDef;

#define METH_VARARGS 0x0001
#define METH_KEYWORDS 0x0002
#define METH_NOARGS 0x0004
#define METH_O 0x0008
#define METH_FASTCALL 0x0080

/* Casts any of the calling conventions to the type of ml_meth, without the
   warning of gcc about incompatible function types. */
#define USMB_PY_CFUNC(f) ((PyCFunction)(void (*)(void))(f))

typedef struct PyMemberDef {
	const char *name;
	int type; /* T_PYSSIZET, the only one used here */
	Py_ssize_t offset;
	int flags; /* READONLY, RELATIVE_OFFSET (3.12+) */
	const char *doc;
} PyMemberDef;

#define T_PYSSIZET 19
#define READONLY 1

typedef struct PyGetSetDef {
	const char *name;
	getter get;
	setter set;
	const char *doc;
	void *closure;
} PyGetSetDef;

typedef struct PyType_Slot {
	int slot; /* Py_tp_*, Py_nb_*, ...; 0 ends the list */
	void *pfunc;
} PyType_Slot;

typedef struct PyType_Spec {
	const char *name; /* "module.Type"; must live as long as the type on 3.11 */
	int basicsize;
	int itemsize;
	unsigned int flags; /* Py_TPFLAGS_* */
	PyType_Slot *slots;
} PyType_Spec;

#define Py_TPFLAGS_SEQUENCE (1UL << 5)
#define Py_TPFLAGS_DISALLOW_INSTANTIATION (1UL << 7)
#define Py_TPFLAGS_IMMUTABLETYPE (1UL << 8)
#define Py_TPFLAGS_HEAPTYPE (1UL << 9)
#define Py_TPFLAGS_HAVE_GC (1UL << 14)
#define Py_TPFLAGS_METHOD_DESCRIPTOR (1UL << 17)
#define Py_TPFLAGS_DEFAULT (0UL)
/* read only, as PyType_GetFlags reports them */
#define Py_TPFLAGS_LONG_SUBCLASS (1UL << 24)
#define Py_TPFLAGS_LIST_SUBCLASS (1UL << 25)
#define Py_TPFLAGS_TUPLE_SUBCLASS (1UL << 26)
#define Py_TPFLAGS_BYTES_SUBCLASS (1UL << 27)
#define Py_TPFLAGS_UNICODE_SUBCLASS (1UL << 28)
#define Py_TPFLAGS_DICT_SUBCLASS (1UL << 29)
#define Py_TPFLAGS_TYPE_SUBCLASS (1UL << 31)

/* Slot numbers: fixed by the stable ABI, never renumbered. */
enum {
	Py_bf_getbuffer = 1,
	Py_bf_releasebuffer = 2,
	Py_mp_ass_subscript = 3,
	Py_mp_length = 4,
	Py_mp_subscript = 5,
	Py_nb_absolute = 6,
	Py_nb_add = 7,
	Py_nb_and = 8,
	Py_nb_bool = 9,
	Py_nb_divmod = 10,
	Py_nb_float = 11,
	Py_nb_floor_divide = 12,
	Py_nb_index = 13,
	Py_nb_inplace_add = 14,
	Py_nb_inplace_and = 15,
	Py_nb_inplace_floor_divide = 16,
	Py_nb_inplace_lshift = 17,
	Py_nb_inplace_multiply = 18,
	Py_nb_inplace_or = 19,
	Py_nb_inplace_power = 20,
	Py_nb_inplace_remainder = 21,
	Py_nb_inplace_rshift = 22,
	Py_nb_inplace_subtract = 23,
	Py_nb_inplace_true_divide = 24,
	Py_nb_inplace_xor = 25,
	Py_nb_int = 26,
	Py_nb_invert = 27,
	Py_nb_lshift = 28,
	Py_nb_multiply = 29,
	Py_nb_negative = 30,
	Py_nb_or = 31,
	Py_nb_positive = 32,
	Py_nb_power = 33,
	Py_nb_remainder = 34,
	Py_nb_rshift = 35,
	Py_nb_subtract = 36,
	Py_nb_true_divide = 37,
	Py_nb_xor = 38,
	Py_sq_ass_item = 39,
	Py_sq_contains = 41,
	Py_sq_item = 44,
	Py_sq_length = 45,
	Py_tp_base = 48,
	Py_tp_clear = 51,
	Py_tp_dealloc = 52,
	Py_tp_doc = 56,
	Py_tp_getattro = 58,
	Py_tp_hash = 59,
	Py_tp_iter = 62,
	Py_tp_methods = 64,
	Py_tp_new = 65,
	Py_tp_repr = 66,
	Py_tp_richcompare = 67,
	Py_tp_str = 70,
	Py_tp_traverse = 71,
	Py_tp_members = 72,
	Py_tp_getset = 73,
	Py_tp_free = 74,
	Py_nb_matrix_multiply = 75,
	Py_nb_inplace_matrix_multiply = 76,
};

/* Comparison operators of Py_tp_richcompare. */
enum { Py_LT = 0, Py_LE = 1, Py_EQ = 2, Py_NE = 3, Py_GT = 4, Py_GE = 5 };

typedef struct PyModuleDef_Base {
	PyObject ob_base;
	PyObject *(*m_init)(void);
	Py_ssize_t m_index;
	PyObject *m_copy;
} PyModuleDef_Base;

typedef struct PyModuleDef_Slot {
	int slot; /* Py_mod_* */
	void *value;
} PyModuleDef_Slot;

enum { Py_mod_create = 1, Py_mod_exec = 2 };

typedef struct PyModuleDef {
	PyModuleDef_Base m_base;
	const char *m_name;
	const char *m_doc;
	Py_ssize_t m_size;
	PyMethodDef *m_methods;
	PyModuleDef_Slot *m_slots;
	traverseproc m_traverse;
	inquiry m_clear;
	freefunc m_free;
} PyModuleDef;

#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}

/* The argument of PyModule_Create2 and PyModule_FromDefAndSpec2: 3 is the version of the
   stable ABI. */
#define USMB_PYTHON_ABI_VERSION 3

/* ---- the buffer protocol (stable ABI from 3.11) ---------------------------- */

typedef struct Py_buffer {
	void *buf;
	PyObject *obj;  /* owned while the view is held */
	Py_ssize_t len; /* bytes */
	Py_ssize_t itemsize;
	int readonly;
	int ndim;
	char *format;
	Py_ssize_t *shape;
	Py_ssize_t *strides; /* bytes */
	Py_ssize_t *suboffsets;
	void *internal;
} Py_buffer;

#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define PyBUF_F_CONTIGUOUS (0x0040 | PyBUF_STRIDES)
#define PyBUF_ANY_CONTIGUOUS (0x0080 | PyBUF_STRIDES)
#define PyBUF_INDIRECT (0x0100 | PyBUF_STRIDES)
#define PyBUF_STRIDED (PyBUF_STRIDES | PyBUF_WRITABLE)
#define PyBUF_STRIDED_RO (PyBUF_STRIDES)
#define PyBUF_FULL_RO (PyBUF_INDIRECT | PyBUF_FORMAT)

/* ---- vectorcall ------------------------------------------------------------ */

/* Set in nargsf when the callee may overwrite args[-1] during the call. */
#define PY_VECTORCALL_ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

static inline Py_ssize_t PyVectorcall_NARGS(size_t nargsf)
{
	return (Py_ssize_t)(nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
}

#define Py_file_input 257
#define Py_eval_input 258

/* ---- the table -------------------------------------------------------------- */

#include "usmb_pyfuncs.h"

struct usmb_py {
#define X(ret, name, args) ret(*name) args;
	USMB_PY_REQUIRED(X)
	USMB_PY_OPTIONAL(X)
#undef X
	/* Singletons and exceptions are values; types are pointers to type objects. */
#define X(name) PyObject *name;
	USMB_PY_SINGLETONS(X)
	USMB_PY_EXCEPTIONS(X)
#undef X
#define X(name) PyTypeObject *name;
	USMB_PY_TYPES(X)
#undef X
	uint32_t version; /* as Py_Version: 0x030b07f0 for 3.11.7 */
};

extern struct usmb_py usmb_py;

/* Fills usmb_py from a dlopen handle, or from the process's global symbols if handle is
   NULL. Returns 0, or -1 with the first missing symbol in *missing (a literal). After a
   success, further calls do nothing. */
int usmb_py_load(void *handle, const char **missing);

/* The value of *missing for a free-threaded build. */
#define USMB_PY_FREE_THREADED "free-threaded"

#endif /* USMB_PYTABLE_H */
