/*
 * usmb_pyfuncs.h: the list of CPython functions and objects in the table of
 * usmb_pytable.h, as X macros: X(result, name, (parameters)). Included by that
 * header only.
 */
#ifndef USMB_PYFUNCS_H
#define USMB_PYFUNCS_H

/*
 * Required: exported by every libpython since 3.11. They are in the stable ABI of 3.11,
 * except those after a (*). These are exported by 3.11 and entered the stable ABI later
 * (Vectorcall in 3.12, AsUTF8 in 3.13). TestStableABI checks this.
 */
#define USMB_PY_REQUIRED(X) \
	/* objects */ \
	X(void, _Py_Dealloc, (PyObject *)) \
	X(PyObject *, PyObject_GetAttr, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_GetAttrString, (PyObject *, const char *)) \
	X(int, PyObject_SetAttr, (PyObject *, PyObject *, PyObject *)) \
	X(int, PyObject_SetAttrString, (PyObject *, const char *, PyObject *)) \
	X(PyObject *, PyObject_GenericGetAttr, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_GetItem, (PyObject *, PyObject *)) \
	X(int, PyObject_SetItem, (PyObject *, PyObject *, PyObject *)) \
	X(int, PyObject_DelItem, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_Repr, (PyObject *)) \
	X(PyObject *, PyObject_Str, (PyObject *)) \
	X(Py_hash_t, PyObject_Hash, (PyObject *)) \
	X(PyObject *, PyObject_RichCompare, (PyObject *, PyObject *, int)) \
	X(int, PyObject_IsTrue, (PyObject *)) \
	X(Py_ssize_t, PyObject_Size, (PyObject *)) \
	X(PyObject *, PyObject_GetIter, (PyObject *)) \
	X(PyObject *, PyIter_Next, (PyObject *)) \
	X(PyObject *, PyObject_CallFunctionObjArgs, (PyObject *, ...)) \
	X(PyObject *, PyObject_CallMethodObjArgs, (PyObject *, PyObject *, ...)) \
	X(PyObject *, PyObject_CallFunction, (PyObject *, const char *, ...)) \
	X(PyObject *, PyObject_CallMethod, (PyObject *, const char *, const char *, ...)) \
	/* (*) */ \
	X(PyObject *, PyObject_Vectorcall, (PyObject *, PyObject *const *, size_t, PyObject *)) \
	X(PyObject *, PyObject_VectorcallMethod, (PyObject *, PyObject *const *, size_t, PyObject *)) \
	X(PyObject *, PyObject_Init, (PyObject *, PyTypeObject *)) \
	X(PyVarObject *, _PyObject_GC_NewVar, (PyTypeObject *, Py_ssize_t)) \
	X(void, PyObject_GC_Track, (void *)) \
	X(void, PyObject_GC_UnTrack, (void *)) \
	X(void, PyObject_GC_Del, (void *)) \
	X(void, PyObject_ClearWeakRefs, (PyObject *)) \
	X(void *, PyObject_Malloc, (size_t)) \
	X(void, PyObject_Free, (void *)) \
	X(void *, PyMem_Malloc, (size_t)) \
	X(void, PyMem_Free, (void *)) \
	X(PyObject *, PyWeakref_NewRef, (PyObject *, PyObject *)) \
	X(int, PyObject_CheckBuffer, (PyObject *)) \
	X(int, PyObject_GetBuffer, (PyObject *, Py_buffer *, int)) \
	X(void, PyBuffer_Release, (Py_buffer *)) \
	X(int, PyBuffer_IsContiguous, (const Py_buffer *, char)) \
	X(int, PyBuffer_FillInfo, (Py_buffer *, PyObject *, void *, Py_ssize_t, int, int)) \
	/* types and modules */ \
	X(unsigned long, PyType_GetFlags, (PyTypeObject *)) \
	X(int, PyType_IsSubtype, (PyTypeObject *, PyTypeObject *)) \
	X(PyObject *, PyType_FromSpec, (PyType_Spec *)) \
	X(PyObject *, PyType_FromModuleAndSpec, (PyObject *, PyType_Spec *, PyObject *)) \
	X(PyObject *, PyType_GenericAlloc, (PyTypeObject *, Py_ssize_t)) \
	X(void *, PyType_GetSlot, (PyTypeObject *, int)) \
	X(PyObject *, PyType_GetName, (PyTypeObject *)) \
	X(PyObject *, PyModule_Create2, (PyModuleDef *, int)) \
	X(PyObject *, PyModuleDef_Init, (PyModuleDef *)) \
	X(int, PyModule_AddObjectRef, (PyObject *, const char *, PyObject *)) \
	X(int, PyModule_AddStringConstant, (PyObject *, const char *, const char *)) \
	X(int, PyModule_AddType, (PyObject *, PyTypeObject *)) \
	X(PyObject *, PyCFunction_NewEx, (PyMethodDef *, PyObject *, PyObject *)) \
	X(PyObject *, PyImport_ImportModule, (const char *)) \
	X(PyObject *, PyImport_Import, (PyObject *)) \
	X(PyObject *, PyImport_GetModule, (PyObject *)) \
	X(PyObject *, PyImport_GetModuleDict, (void)) \
	X(int, PyImport_AppendInittab, (const char *, PyObject *(*)(void))) \
	X(PyObject *, Py_CompileString, (const char *, const char *, int)) \
	X(PyObject *, PyEval_EvalCode, (PyObject *, PyObject *, PyObject *)) \
	X(PyObject *, PyEval_GetBuiltins, (void)) \
	/* numbers */ \
	X(PyObject *, PyLong_FromLong, (long)) \
	X(PyObject *, PyLong_FromLongLong, (long long)) \
	X(PyObject *, PyLong_FromUnsignedLongLong, (unsigned long long)) \
	X(PyObject *, PyLong_FromSsize_t, (Py_ssize_t)) \
	X(PyObject *, PyLong_FromVoidPtr, (void *)) \
	X(PyObject *, PyLong_FromString, (const char *, char **, int)) \
	X(long long, PyLong_AsLongLong, (PyObject *)) \
	X(long long, PyLong_AsLongLongAndOverflow, (PyObject *, int *)) \
	X(unsigned long long, PyLong_AsUnsignedLongLong, (PyObject *)) \
	X(PyObject *, PyFloat_FromDouble, (double)) \
	X(double, PyFloat_AsDouble, (PyObject *)) \
	X(PyObject *, PyComplex_FromDoubles, (double, double)) \
	X(double, PyComplex_RealAsDouble, (PyObject *)) \
	X(double, PyComplex_ImagAsDouble, (PyObject *)) \
	X(PyObject *, PySeqIter_New, (PyObject *)) \
	X(int, PyIndex_Check, (PyObject *)) \
	X(int, PyNumber_Check, (PyObject *)) \
	X(PyObject *, PyNumber_Index, (PyObject *)) \
	X(PyObject *, PyNumber_Long, (PyObject *)) \
	X(PyObject *, PyNumber_Float, (PyObject *)) \
	X(PyObject *, PyNumber_ToBase, (PyObject *, int)) \
	X(Py_ssize_t, PyNumber_AsSsize_t, (PyObject *, PyObject *)) \
	/* text and bytes */ \
	X(PyObject *, PyUnicode_FromString, (const char *)) \
	X(PyObject *, PyUnicode_FromStringAndSize, (const char *, Py_ssize_t)) \
	X(PyObject *, PyUnicode_FromFormat, (const char *, ...)) \
	X(PyObject *, PyUnicode_InternFromString, (const char *)) \
	X(PyObject *, PyUnicode_DecodeUTF8, (const char *, Py_ssize_t, const char *)) \
	X(PyObject *, PyUnicode_DecodeFSDefault, (const char *)) \
	X(PyObject *, PyUnicode_AsEncodedString, (PyObject *, const char *, const char *)) \
	X(const char *, PyUnicode_AsUTF8AndSize, (PyObject *, Py_ssize_t *)) \
	/* (*) */ \
	X(const char *, PyUnicode_AsUTF8, (PyObject *)) \
	X(Py_ssize_t, PyUnicode_GetLength, (PyObject *)) \
	X(int, PyUnicode_CompareWithASCIIString, (PyObject *, const char *)) \
	X(int, PyUnicode_Compare, (PyObject *, PyObject *)) \
	X(PyObject *, PyUnicode_Join, (PyObject *, PyObject *)) \
	X(PyObject *, PyBytes_FromStringAndSize, (const char *, Py_ssize_t)) \
	X(int, PyBytes_AsStringAndSize, (PyObject *, char **, Py_ssize_t *)) \
	X(char *, PyByteArray_AsString, (PyObject *)) \
	X(Py_ssize_t, PyByteArray_Size, (PyObject *)) \
	/* containers */ \
	X(PyObject *, PyTuple_New, (Py_ssize_t)) \
	X(PyObject *, PyTuple_Pack, (Py_ssize_t, ...)) \
	X(Py_ssize_t, PyTuple_Size, (PyObject *)) \
	X(PyObject *, PyTuple_GetItem, (PyObject *, Py_ssize_t))      /* borrowed */ \
	X(int, PyTuple_SetItem, (PyObject *, Py_ssize_t, PyObject *)) /* steals */ \
	X(PyObject *, PyList_New, (Py_ssize_t)) \
	X(Py_ssize_t, PyList_Size, (PyObject *)) \
	X(PyObject *, PyList_GetItem, (PyObject *, Py_ssize_t))      /* borrowed */ \
	X(int, PyList_SetItem, (PyObject *, Py_ssize_t, PyObject *)) /* steals */ \
	X(int, PyList_Append, (PyObject *, PyObject *)) \
	X(PyObject *, PyList_AsTuple, (PyObject *)) \
	X(PyObject *, PyDict_New, (void)) \
	X(Py_ssize_t, PyDict_Size, (PyObject *)) \
	X(PyObject *, PyDict_GetItemWithError, (PyObject *, PyObject *)) /* borrowed */ \
	X(PyObject *, PyDict_GetItemString, (PyObject *, const char *))  /* borrowed */ \
	X(int, PyDict_SetItem, (PyObject *, PyObject *, PyObject *)) \
	X(int, PyDict_SetItemString, (PyObject *, const char *, PyObject *)) \
	X(int, PyDict_Next, (PyObject *, Py_ssize_t *, PyObject **, PyObject **)) /* borrowed */ \
	X(PyObject *, PyDict_Copy, (PyObject *)) \
	X(PyObject *, PyMapping_GetItemString, (PyObject *, const char *)) \
	X(int, PySequence_Check, (PyObject *)) \
	X(PyObject *, PySequence_GetItem, (PyObject *, Py_ssize_t)) \
	X(PyObject *, PySequence_Tuple, (PyObject *)) \
	X(int, PySlice_Unpack, (PyObject *, Py_ssize_t *, Py_ssize_t *, Py_ssize_t *)) \
	X(Py_ssize_t, PySlice_AdjustIndices, (Py_ssize_t, Py_ssize_t *, Py_ssize_t *, Py_ssize_t)) \
	/* capsules */ \
	X(PyObject *, PyCapsule_New, (void *, const char *, PyCapsule_Destructor)) \
	X(void *, PyCapsule_GetPointer, (PyObject *, const char *)) \
	X(const char *, PyCapsule_GetName, (PyObject *)) \
	X(int, PyCapsule_IsValid, (PyObject *, const char *)) \
	X(int, PyCapsule_SetName, (PyObject *, const char *)) \
	/* errors */ \
	X(void, PyErr_SetString, (PyObject *, const char *)) \
	X(void, PyErr_SetObject, (PyObject *, PyObject *)) \
	X(PyObject *, PyErr_Format, (PyObject *, const char *, ...)) \
	X(PyObject *, PyErr_NoMemory, (void)) \
	X(PyObject *, PyErr_Occurred, (void)) /* borrowed */ \
	X(void, PyErr_Clear, (void)) \
	X(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **)) \
	X(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *)) \
	X(void, PyErr_NormalizeException, (PyObject **, PyObject **, PyObject **)) \
	X(int, PyErr_ExceptionMatches, (PyObject *)) \
	X(void, PyErr_WriteUnraisable, (PyObject *)) \
	X(int, PyErr_CheckSignals, (void)) \
	X(int, PyErr_WarnEx, (PyObject *, const char *, Py_ssize_t)) \
	X(int, PyException_SetTraceback, (PyObject *, PyObject *)) \
	X(PyObject *, PyException_GetTraceback, (PyObject *)) \
	X(void, PyException_SetCause, (PyObject *, PyObject *)) /* steals the cause */ \
	X(PyObject *, PyException_GetCause, (PyObject *)) \
	X(PyObject *, PyException_GetContext, (PyObject *)) \
	X(PyObject *, PyErr_GetHandledException, (void)) \
	X(PyObject *, PyErr_NewExceptionWithDoc, (const char *, const char *, PyObject *, PyObject *)) \
	/* arguments */ \
	X(int, PyArg_ParseTuple, (PyObject *, const char *, ...)) \
	X(PyObject *, Py_BuildValue, (const char *, ...)) \
	/* interpreter and threads */ \
	X(PyThreadState *, PyEval_SaveThread, (void)) \
	X(void, PyEval_RestoreThread, (PyThreadState *)) \
	X(PyInterpreterState *, PyInterpreterState_Get, (void)) \
	X(PyInterpreterState *, PyThreadState_GetInterpreter, (PyThreadState *)) \
	X(int64_t, PyInterpreterState_GetID, (PyInterpreterState *)) \
	X(int, PyThreadState_SetAsyncExc, (unsigned long, PyObject *)) \
	/* without the GIL */ \
	X(unsigned long, PyThread_get_thread_ident, (void)) \
	X(PyGILState_STATE, PyGILState_Ensure, (void)) \
	X(void, PyGILState_Release, (PyGILState_STATE)) \
	X(PyThreadState *, PyGILState_GetThisThreadState, (void)) \
	X(int, Py_AddPendingCall, (int (*)(void *), void *)) \
	X(int, Py_IsInitialized, (void)) \
	X(void, Py_InitializeEx, (int)) \
	X(int, Py_BytesMain, (int, char **))

/*
 * Optional: NULL if the running Python lacks them. The comments state the first or the
 * last version that exports them.
 */
#define USMB_PY_OPTIONAL(X) \
	X(PyObject *, PyErr_GetRaisedException, (void)) /* 3.12 */ \
	X(void, PyErr_SetRaisedException, (PyObject *)) /* 3.12 */ \
	X(void, Py_SetProgramName, (const wchar_t *))   /* to 3.14 */ \
	/* one function under two names */ \
	X(PyThreadState *, PyThreadState_GetUnchecked, (void))  /* 3.13 */ \
	X(PyThreadState *, _PyThreadState_UncheckedGet, (void)) /* not stable, to 3.12 at least */ \
	/* not stable, 3.8: preinitialisation, which selects the UTF-8 mode */ \
	X(void, PyPreConfig_InitPythonConfig, (void *)) \
	X(PyStatus, Py_PreInitialize, (const void *)) \
	/* PEP 741, 3.14: initialisation without the layout of PyConfig */ \
	X(void *, PyInitConfig_Create, (void)) \
	X(void, PyInitConfig_Free, (void *)) \
	X(int, PyInitConfig_SetStr, (void *, const char *, const char *)) \
	X(int, PyInitConfig_SetInt, (void *, const char *, int64_t)) \
	X(int, PyInitConfig_GetError, (void *, const char **)) \
	X(int, Py_InitializeFromInitConfig, (void *))

#define USMB_PY_EXCEPTIONS(X) \
	X(PyExc_BaseException) \
	X(PyExc_BaseExceptionGroup) \
	X(PyExc_AttributeError) \
	X(PyExc_BufferError) \
	X(PyExc_ConnectionError) \
	X(PyExc_Exception) \
	X(PyExc_ImportError) \
	X(PyExc_IndexError) \
	X(PyExc_KeyboardInterrupt) \
	X(PyExc_KeyError) \
	X(PyExc_MemoryError) \
	X(PyExc_ModuleNotFoundError) \
	X(PyExc_NotImplementedError) \
	X(PyExc_OverflowError) \
	X(PyExc_ReferenceError) \
	X(PyExc_RuntimeError) \
	X(PyExc_RuntimeWarning) \
	X(PyExc_SystemError) \
	X(PyExc_SystemExit) \
	X(PyExc_TimeoutError) \
	X(PyExc_TypeError) \
	X(PyExc_ValueError)

/* The exported structs behind these names are in usmb_pytable.c. */
#define USMB_PY_SINGLETONS(X) \
	X(Py_None) \
	X(Py_True) \
	X(Py_False) \
	X(Py_NotImplemented) \
	X(Py_Ellipsis)

#define USMB_PY_TYPES(X) \
	X(PyBool_Type) \
	X(PyByteArray_Type) \
	X(PyCapsule_Type) \
	X(PyComplex_Type) \
	X(PyDict_Type) \
	X(PyFloat_Type) \
	X(PyLong_Type) \
	X(PyMemoryView_Type) \
	X(PySlice_Type) \
	X(PyTuple_Type)

#endif /* USMB_PYFUNCS_H */
