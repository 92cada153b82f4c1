/* Prints the sizes, offsets and numbers of the C API that this project uses. A test compares
   the output with the project's header and with Python.h. */
#ifdef REAL
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#else
#include "usmb_pyapi.h"
#endif
#include <stddef.h>
#include <stdio.h>

#define SIZE(t) printf("sizeof " #t " %zu\n", sizeof(t))
#define AT(t, f) printf("offset " #t "." #f " %zu\n", offsetof(t, f))
#define NUM(n) printf(#n " %lld\n", (long long)(n))

static void structs(void)
{
	SIZE(PyObject);
	AT(PyObject, ob_type);
	SIZE(PyVarObject);
	AT(PyVarObject, ob_size);
	SIZE(PyMethodDef);
	AT(PyMethodDef, ml_meth);
	AT(PyMethodDef, ml_flags);
	AT(PyMethodDef, ml_doc);
	SIZE(PyMemberDef);
	AT(PyMemberDef, type);
	AT(PyMemberDef, offset);
	AT(PyMemberDef, flags);
	AT(PyMemberDef, doc);
	SIZE(PyGetSetDef);
	AT(PyGetSetDef, get);
	AT(PyGetSetDef, set);
	AT(PyGetSetDef, doc);
	AT(PyGetSetDef, closure);
	SIZE(PyType_Slot);
	AT(PyType_Slot, pfunc);
	SIZE(PyType_Spec);
	AT(PyType_Spec, basicsize);
	AT(PyType_Spec, itemsize);
	AT(PyType_Spec, flags);
	AT(PyType_Spec, slots);
	SIZE(PyModuleDef_Base);
	AT(PyModuleDef_Base, m_init);
	AT(PyModuleDef_Base, m_index);
	AT(PyModuleDef_Base, m_copy);
	SIZE(PyModuleDef_Slot);
	AT(PyModuleDef_Slot, value);
	SIZE(PyModuleDef);
	AT(PyModuleDef, m_name);
	AT(PyModuleDef, m_doc);
	AT(PyModuleDef, m_size);
	AT(PyModuleDef, m_methods);
	AT(PyModuleDef, m_slots);
	AT(PyModuleDef, m_traverse);
	AT(PyModuleDef, m_clear);
	AT(PyModuleDef, m_free);
	SIZE(Py_buffer);
	AT(Py_buffer, buf);
	AT(Py_buffer, obj);
	AT(Py_buffer, len);
	AT(Py_buffer, itemsize);
	AT(Py_buffer, readonly);
	AT(Py_buffer, ndim);
	AT(Py_buffer, format);
	AT(Py_buffer, shape);
	AT(Py_buffer, strides);
	AT(Py_buffer, suboffsets);
	AT(Py_buffer, internal);
	SIZE(PyStatus);
	AT(PyStatus, err_msg);
	AT(PyStatus, exitcode);
	SIZE(Py_ssize_t);
	SIZE(Py_hash_t);
	SIZE(PyGILState_STATE);
}

static void flags(void)
{
	NUM(METH_VARARGS);
	NUM(METH_KEYWORDS);
	NUM(METH_NOARGS);
	NUM(METH_O);
	NUM(METH_FASTCALL);
	NUM(T_PYSSIZET);
	NUM(READONLY);
	NUM(Py_TPFLAGS_DISALLOW_INSTANTIATION);
	NUM(Py_TPFLAGS_IMMUTABLETYPE);
	NUM(Py_TPFLAGS_HEAPTYPE);
	NUM(Py_TPFLAGS_HAVE_GC);
	NUM(Py_TPFLAGS_METHOD_DESCRIPTOR);
	NUM(Py_TPFLAGS_LONG_SUBCLASS);
	NUM(Py_TPFLAGS_LIST_SUBCLASS);
	NUM(Py_TPFLAGS_TUPLE_SUBCLASS);
	NUM(Py_TPFLAGS_BYTES_SUBCLASS);
	NUM(Py_TPFLAGS_UNICODE_SUBCLASS);
	NUM(Py_TPFLAGS_DICT_SUBCLASS);
	NUM(Py_TPFLAGS_TYPE_SUBCLASS);
	NUM(PyBUF_SIMPLE);
	NUM(PyBUF_WRITABLE);
	NUM(PyBUF_FORMAT);
	NUM(PyBUF_ND);
	NUM(PyBUF_STRIDES);
	NUM(PyBUF_C_CONTIGUOUS);
	NUM(PyBUF_F_CONTIGUOUS);
	NUM(PyBUF_ANY_CONTIGUOUS);
	NUM(PyBUF_INDIRECT);
	NUM(PyBUF_STRIDED);
	NUM(PyBUF_STRIDED_RO);
	NUM(PyBUF_FULL_RO);
	NUM(Py_file_input);
	NUM(Py_eval_input);
	NUM(Py_LT);
	NUM(Py_LE);
	NUM(Py_EQ);
	NUM(Py_NE);
	NUM(Py_GT);
	NUM(Py_GE);
	NUM(Py_mod_create);
	NUM(Py_mod_exec);
	printf("PY_VECTORCALL_ARGUMENTS_OFFSET %llu\n", (unsigned long long)PY_VECTORCALL_ARGUMENTS_OFFSET);
}

static void slots(void)
{
	NUM(Py_bf_getbuffer);
	NUM(Py_bf_releasebuffer);
	NUM(Py_mp_ass_subscript);
	NUM(Py_mp_length);
	NUM(Py_mp_subscript);
	NUM(Py_nb_absolute);
	NUM(Py_nb_add);
	NUM(Py_nb_and);
	NUM(Py_nb_bool);
	NUM(Py_nb_divmod);
	NUM(Py_nb_float);
	NUM(Py_nb_floor_divide);
	NUM(Py_nb_index);
	NUM(Py_nb_inplace_add);
	NUM(Py_nb_inplace_and);
	NUM(Py_nb_inplace_floor_divide);
	NUM(Py_nb_inplace_lshift);
	NUM(Py_nb_inplace_multiply);
	NUM(Py_nb_inplace_or);
	NUM(Py_nb_inplace_power);
	NUM(Py_nb_inplace_remainder);
	NUM(Py_nb_inplace_rshift);
	NUM(Py_nb_inplace_subtract);
	NUM(Py_nb_inplace_true_divide);
	NUM(Py_nb_inplace_xor);
	NUM(Py_nb_int);
	NUM(Py_nb_invert);
	NUM(Py_nb_lshift);
	NUM(Py_nb_multiply);
	NUM(Py_nb_negative);
	NUM(Py_nb_or);
	NUM(Py_nb_positive);
	NUM(Py_nb_power);
	NUM(Py_nb_remainder);
	NUM(Py_nb_rshift);
	NUM(Py_nb_subtract);
	NUM(Py_nb_true_divide);
	NUM(Py_nb_xor);
	NUM(Py_sq_ass_item);
	NUM(Py_sq_contains);
	NUM(Py_sq_item);
	NUM(Py_sq_length);
	NUM(Py_tp_base);
	NUM(Py_tp_clear);
	NUM(Py_tp_dealloc);
	NUM(Py_tp_doc);
	NUM(Py_tp_getattro);
	NUM(Py_tp_hash);
	NUM(Py_tp_iter);
	NUM(Py_tp_methods);
	NUM(Py_tp_new);
	NUM(Py_tp_repr);
	NUM(Py_tp_richcompare);
	NUM(Py_tp_str);
	NUM(Py_tp_traverse);
	NUM(Py_tp_members);
	NUM(Py_tp_getset);
	NUM(Py_tp_free);
	NUM(Py_nb_matrix_multiply);
	NUM(Py_nb_inplace_matrix_multiply);
}

int main(void)
{
	structs();
	flags();
	slots();
	return 0;
}
