/*
 * usmb_pyfuncs.h: the list of CPython functions and objects in the table of
 * usmb_pyapi.h, as X macros: X(result, name, (parameters)). Included by that
 * header only.
 */
#ifndef USMB_PYFUNCS_H
#define USMB_PYFUNCS_H

/*
 * Required: exported by every libpython from 3.11 on. All but the ones marked (*)
 * are in the stable ABI of 3.11; those are exported by 3.11 and entered the stable
 * ABI later (Vectorcall in 3.12, AsUTF8 in 3.13) or are documented and kept.
 */
#define USMB_PY_REQUIRED(X) \
	/* objects */ \
	X(void, _Py_Dealloc, (PyObject *)) \
	X(void, Py_IncRef, (PyObject *)) \
	X(void, Py_DecRef, (PyObject *)) \
	X(PyObject *, PyObject_GetAttr, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_GetAttrString, (PyObject *, const char *)) \
	X(int, PyObject_HasAttrString, (PyObject *, const char *)) \
	X(int, PyObject_SetAttr, (PyObject *, PyObject *, PyObject *)) \
	X(int, PyObject_SetAttrString, (PyObject *, const char *, PyObject *)) \
	X(PyObject *, PyObject_GenericGetAttr, (PyObject *, PyObject *)) \
	X(int, PyObject_GenericSetAttr, (PyObject *, PyObject *, PyObject *)) \
	X(PyObject *, PyObject_GenericGetDict, (PyObject *, void *)) \
	X(PyObject *, PyObject_GetItem, (PyObject *, PyObject *)) \
	X(int, PyObject_SetItem, (PyObject *, PyObject *, PyObject *)) \
	X(int, PyObject_DelItem, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_Repr, (PyObject *)) \
	X(PyObject *, PyObject_Str, (PyObject *)) \
	X(PyObject *, PyObject_ASCII, (PyObject *)) \
	X(PyObject *, PyObject_Bytes, (PyObject *)) \
	X(Py_hash_t, PyObject_Hash, (PyObject *)) \
	X(Py_hash_t, PyObject_HashNotImplemented, (PyObject *)) \
	X(PyObject *, PyObject_RichCompare, (PyObject *, PyObject *, int)) \
	X(int, PyObject_RichCompareBool, (PyObject *, PyObject *, int)) \
	X(int, PyObject_IsTrue, (PyObject *)) \
	X(int, PyObject_IsInstance, (PyObject *, PyObject *)) \
	X(int, PyObject_IsSubclass, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_Type, (PyObject *)) \
	X(PyObject *, PyObject_Dir, (PyObject *)) \
	X(Py_ssize_t, PyObject_Size, (PyObject *)) \
	X(PyObject *, PyObject_GetIter, (PyObject *)) \
	X(PyObject *, PyIter_Next, (PyObject *)) \
	X(int, PyIter_Check, (PyObject *)) \
	X(int, PyCallable_Check, (PyObject *)) \
	X(PyObject *, PyObject_Call, (PyObject *, PyObject *, PyObject *)) \
	X(PyObject *, PyObject_CallObject, (PyObject *, PyObject *)) \
	X(PyObject *, PyObject_CallNoArgs, (PyObject *)) \
	X(PyObject *, PyObject_CallFunctionObjArgs, (PyObject *, ...)) \
	X(PyObject *, PyObject_CallMethodObjArgs, (PyObject *, PyObject *, ...)) \
	X(PyObject *, PyObject_CallFunction, (PyObject *, const char *, ...)) \
	X(PyObject *, PyObject_CallMethod, (PyObject *, const char *, const char *, ...)) \
	/* (*) */ \
	X(PyObject *, PyObject_Vectorcall, (PyObject *, PyObject *const *, size_t, PyObject *)) \
	X(PyObject *, PyObject_VectorcallMethod, (PyObject *, PyObject *const *, size_t, PyObject *)) \
	X(PyObject *, PyVectorcall_Call, (PyObject *, PyObject *, PyObject *)) \
	X(PyObject *, PyObject_Init, (PyObject *, PyTypeObject *)) \
	X(void *, PyObject_Malloc, (size_t)) \
	X(void, PyObject_Free, (void *)) \
	X(void *, PyMem_Malloc, (size_t)) \
	X(void, PyMem_Free, (void *)) \
	X(void, PyObject_ClearWeakRefs, (PyObject *)) \
	X(PyObject *, PyWeakref_NewRef, (PyObject *, PyObject *)) \
	X(void, PyObject_GC_UnTrack, (void *)) \
	X(void, PyObject_GC_Track, (void *)) \
	X(void, PyObject_GC_Del, (void *)) \
	X(Py_ssize_t, PyGC_Collect, (void)) \
	X(int, PyObject_CheckBuffer, (PyObject *)) \
	X(int, PyObject_GetBuffer, (PyObject *, Py_buffer *, int)) \
	X(void, PyBuffer_Release, (Py_buffer *)) \
	X(int, PyBuffer_IsContiguous, (const Py_buffer *, char)) \
	X(int, PyBuffer_FillInfo, (Py_buffer *, PyObject *, void *, Py_ssize_t, int, int)) \
	X(PyObject *, PyMemoryView_FromObject, (PyObject *)) \
	X(PyObject *, PyMemoryView_FromMemory, (char *, Py_ssize_t, int)) \
	X(PyObject *, PyMemoryView_FromBuffer, (const Py_buffer *)) \
	/* types and modules */ \
	X(unsigned long, PyType_GetFlags, (PyTypeObject *)) \
	X(int, PyType_IsSubtype, (PyTypeObject *, PyTypeObject *)) \
	X(PyObject *, PyType_FromSpec, (PyType_Spec *)) \
	X(PyObject *, PyType_FromSpecWithBases, (PyType_Spec *, PyObject *)) \
	X(PyObject *, PyType_FromModuleAndSpec, (PyObject *, PyType_Spec *, PyObject *)) \
	X(PyObject *, PyType_GenericAlloc, (PyTypeObject *, Py_ssize_t)) \
	X(PyObject *, PyType_GenericNew, (PyTypeObject *, PyObject *, PyObject *)) \
	X(void *, PyType_GetSlot, (PyTypeObject *, int)) \
	X(PyObject *, PyType_GetName, (PyTypeObject *)) \
	X(PyObject *, PyType_GetQualName, (PyTypeObject *)) \
	X(PyObject *, PyType_GetModule, (PyTypeObject *)) \
	X(void *, PyType_GetModuleState, (PyTypeObject *)) \
	X(void, PyType_Modified, (PyTypeObject *)) \
	X(int, PyType_Ready, (PyTypeObject *)) \
	X(PyObject *, PyModule_Create2, (PyModuleDef *, int)) \
	X(PyObject *, PyModuleDef_Init, (PyModuleDef *)) \
	X(PyObject *, PyModule_NewObject, (PyObject *)) \
	X(PyObject *, PyModule_GetDict, (PyObject *)) \
	X(void *, PyModule_GetState, (PyObject *)) \
	X(int, PyModule_AddObjectRef, (PyObject *, const char *, PyObject *)) \
	X(int, PyModule_AddIntConstant, (PyObject *, const char *, long)) \
	X(int, PyModule_AddStringConstant, (PyObject *, const char *, const char *)) \
	X(int, PyModule_AddType, (PyObject *, PyTypeObject *)) \
	X(int, PyModule_AddFunctions, (PyObject *, PyMethodDef *)) \
	X(int, PyModule_SetDocString, (PyObject *, const char *)) \
	X(PyObject *, PyCFunction_NewEx, (PyMethodDef *, PyObject *, PyObject *)) \
	X(PyObject *, PyImport_ImportModule, (const char *)) \
	X(PyObject *, PyImport_Import, (PyObject *)) \
	X(PyObject *, PyImport_GetModule, (PyObject *)) \
	X(PyObject *, PyImport_AddModule, (const char *)) \
	X(PyObject *, PyImport_GetModuleDict, (void)) \
	X(PyObject *, PyImport_ExecCodeModuleEx, (const char *, PyObject *, const char *)) \
	X(int, PyImport_AppendInittab, (const char *, PyObject *(*)(void))) \
	X(PyObject *, Py_CompileString, (const char *, const char *, int)) \
	X(PyObject *, PyEval_EvalCode, (PyObject *, PyObject *, PyObject *)) \
	X(PyObject *, PyEval_GetBuiltins, (void)) \
	X(PyObject *, PySys_GetObject, (const char *)) \
	X(int, PySys_SetObject, (const char *, PyObject *)) \
	/* numbers */ \
	X(PyObject *, PyLong_FromLong, (long)) \
	X(PyObject *, PyLong_FromLongLong, (long long)) \
	X(PyObject *, PyLong_FromUnsignedLongLong, (unsigned long long)) \
	X(PyObject *, PyLong_FromSsize_t, (Py_ssize_t)) \
	X(PyObject *, PyLong_FromSize_t, (size_t)) \
	X(PyObject *, PyLong_FromVoidPtr, (void *)) \
	X(PyObject *, PyLong_FromString, (const char *, char **, int)) \
	X(PyObject *, PyLong_FromDouble, (double)) \
	X(long, PyLong_AsLong, (PyObject *)) \
	X(long long, PyLong_AsLongLong, (PyObject *)) \
	X(long long, PyLong_AsLongLongAndOverflow, (PyObject *, int *)) \
	X(unsigned long long, PyLong_AsUnsignedLongLong, (PyObject *)) \
	X(Py_ssize_t, PyLong_AsSsize_t, (PyObject *)) \
	X(size_t, PyLong_AsSize_t, (PyObject *)) \
	X(void *, PyLong_AsVoidPtr, (PyObject *)) \
	X(double, PyLong_AsDouble, (PyObject *)) \
	X(PyObject *, PyBool_FromLong, (long)) \
	X(PyObject *, PyFloat_FromDouble, (double)) \
	X(double, PyFloat_AsDouble, (PyObject *)) \
	X(PyObject *, PyComplex_FromDoubles, (double, double)) \
	X(double, PyComplex_RealAsDouble, (PyObject *)) \
	X(double, PyComplex_ImagAsDouble, (PyObject *)) \
	X(int, PyIndex_Check, (PyObject *)) \
	X(int, PyNumber_Check, (PyObject *)) \
	X(PyObject *, PyNumber_Index, (PyObject *)) \
	X(PyObject *, PyNumber_ToBase, (PyObject *, int)) \
	X(PyObject *, PyNumber_Long, (PyObject *)) \
	X(PyObject *, PyNumber_Float, (PyObject *)) \
	X(PyObject *, PyNumber_Add, (PyObject *, PyObject *)) \
	X(PyObject *, PyNumber_Subtract, (PyObject *, PyObject *)) \
	X(PyObject *, PyNumber_Multiply, (PyObject *, PyObject *)) \
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
	X(PyObject *, PyUnicode_AsUTF8String, (PyObject *)) \
	X(Py_ssize_t, PyUnicode_GetLength, (PyObject *)) \
	X(int, PyUnicode_CompareWithASCIIString, (PyObject *, const char *)) \
	X(int, PyUnicode_Compare, (PyObject *, PyObject *)) \
	X(PyObject *, PyUnicode_Concat, (PyObject *, PyObject *)) \
	X(PyObject *, PyUnicode_Join, (PyObject *, PyObject *)) \
	X(PyObject *, PyBytes_FromStringAndSize, (const char *, Py_ssize_t)) \
	X(char *, PyBytes_AsString, (PyObject *)) \
	X(int, PyBytes_AsStringAndSize, (PyObject *, char **, Py_ssize_t *)) \
	X(Py_ssize_t, PyBytes_Size, (PyObject *)) \
	X(PyObject *, PyByteArray_FromStringAndSize, (const char *, Py_ssize_t)) \
	X(char *, PyByteArray_AsString, (PyObject *)) \
	X(Py_ssize_t, PyByteArray_Size, (PyObject *)) \
	/* containers */ \
	X(PyObject *, PyTuple_New, (Py_ssize_t)) \
	X(PyObject *, PyTuple_Pack, (Py_ssize_t, ...)) \
	X(Py_ssize_t, PyTuple_Size, (PyObject *)) \
	X(PyObject *, PyTuple_GetItem, (PyObject *, Py_ssize_t))      /* borrowed */ \
	X(int, PyTuple_SetItem, (PyObject *, Py_ssize_t, PyObject *)) /* steals */ \
	X(PyObject *, PyTuple_GetSlice, (PyObject *, Py_ssize_t, Py_ssize_t)) \
	X(PyObject *, PyList_New, (Py_ssize_t)) \
	X(Py_ssize_t, PyList_Size, (PyObject *)) \
	X(PyObject *, PyList_GetItem, (PyObject *, Py_ssize_t))      /* borrowed */ \
	X(int, PyList_SetItem, (PyObject *, Py_ssize_t, PyObject *)) /* steals */ \
	X(int, PyList_Append, (PyObject *, PyObject *)) \
	X(int, PyList_Insert, (PyObject *, Py_ssize_t, PyObject *)) \
	X(PyObject *, PyList_AsTuple, (PyObject *)) \
	X(PyObject *, PyDict_New, (void)) \
	X(Py_ssize_t, PyDict_Size, (PyObject *)) \
	X(PyObject *, PyDict_GetItem, (PyObject *, PyObject *))          /* borrowed, hides errors */ \
	X(PyObject *, PyDict_GetItemWithError, (PyObject *, PyObject *)) /* borrowed */ \
	X(PyObject *, PyDict_GetItemString, (PyObject *, const char *))  /* borrowed */ \
	X(int, PyDict_SetItem, (PyObject *, PyObject *, PyObject *)) \
	X(int, PyDict_SetItemString, (PyObject *, const char *, PyObject *)) \
	X(int, PyDict_DelItem, (PyObject *, PyObject *)) \
	X(int, PyDict_DelItemString, (PyObject *, const char *)) \
	X(int, PyDict_Contains, (PyObject *, PyObject *)) \
	X(int, PyDict_Next, (PyObject *, Py_ssize_t *, PyObject **, PyObject **)) /* borrowed */ \
	X(int, PyDict_Update, (PyObject *, PyObject *)) \
	X(PyObject *, PyDict_Copy, (PyObject *)) \
	X(PyObject *, PyDict_Keys, (PyObject *)) \
	X(PyObject *, PyDictProxy_New, (PyObject *)) \
	X(PyObject *, PySet_New, (PyObject *)) \
	X(int, PySet_Add, (PyObject *, PyObject *)) \
	X(int, PyMapping_Check, (PyObject *)) \
	X(PyObject *, PyMapping_Items, (PyObject *)) \
	X(PyObject *, PyMapping_GetItemString, (PyObject *, const char *)) \
	X(int, PySequence_Check, (PyObject *)) \
	X(Py_ssize_t, PySequence_Size, (PyObject *)) \
	X(PyObject *, PySequence_GetItem, (PyObject *, Py_ssize_t)) \
	X(int, PySequence_Contains, (PyObject *, PyObject *)) \
	X(PyObject *, PySequence_Tuple, (PyObject *)) \
	X(PyObject *, PySequence_List, (PyObject *)) \
	X(PyObject *, PySequence_Fast, (PyObject *, const char *)) \
	X(PyObject *, PySlice_New, (PyObject *, PyObject *, PyObject *)) \
	X(int, PySlice_Unpack, (PyObject *, Py_ssize_t *, Py_ssize_t *, Py_ssize_t *)) \
	X(Py_ssize_t, PySlice_AdjustIndices, (Py_ssize_t, Py_ssize_t *, Py_ssize_t *, Py_ssize_t)) \
	/* capsules */ \
	X(PyObject *, PyCapsule_New, (void *, const char *, PyCapsule_Destructor)) \
	X(void *, PyCapsule_GetPointer, (PyObject *, const char *)) \
	X(const char *, PyCapsule_GetName, (PyObject *)) \
	X(void *, PyCapsule_GetContext, (PyObject *)) \
	X(PyCapsule_Destructor, PyCapsule_GetDestructor, (PyObject *)) \
	X(int, PyCapsule_IsValid, (PyObject *, const char *)) \
	X(int, PyCapsule_SetName, (PyObject *, const char *)) \
	X(int, PyCapsule_SetPointer, (PyObject *, void *)) \
	X(int, PyCapsule_SetContext, (PyObject *, void *)) \
	X(int, PyCapsule_SetDestructor, (PyObject *, PyCapsule_Destructor)) \
	X(void *, PyCapsule_Import, (const char *, int)) \
	/* errors */ \
	X(void, PyErr_SetString, (PyObject *, const char *)) \
	X(void, PyErr_SetObject, (PyObject *, PyObject *)) \
	X(void, PyErr_SetNone, (PyObject *)) \
	X(PyObject *, PyErr_Format, (PyObject *, const char *, ...)) \
	X(PyObject *, PyErr_NoMemory, (void)) \
	X(PyObject *, PyErr_Occurred, (void)) /* borrowed */ \
	X(void, PyErr_Clear, (void)) \
	X(void, PyErr_Fetch, (PyObject **, PyObject **, PyObject **)) \
	X(void, PyErr_Restore, (PyObject *, PyObject *, PyObject *)) \
	X(void, PyErr_NormalizeException, (PyObject **, PyObject **, PyObject **)) \
	X(int, PyErr_ExceptionMatches, (PyObject *)) \
	X(int, PyErr_GivenExceptionMatches, (PyObject *, PyObject *)) \
	X(void, PyErr_WriteUnraisable, (PyObject *)) \
	X(void, PyErr_Print, (void)) \
	X(int, PyErr_CheckSignals, (void)) \
	X(int, PyErr_WarnEx, (PyObject *, const char *, Py_ssize_t)) \
	X(PyObject *, PyErr_NewException, (const char *, PyObject *, PyObject *)) \
	X(PyObject *, PyErr_NewExceptionWithDoc, (const char *, const char *, PyObject *, PyObject *)) \
	X(int, PyException_SetTraceback, (PyObject *, PyObject *)) \
	X(PyObject *, PyException_GetTraceback, (PyObject *)) \
	X(void, PyException_SetCause, (PyObject *, PyObject *))   /* steals the cause */ \
	X(void, PyException_SetContext, (PyObject *, PyObject *)) /* steals the context */ \
	X(int, Py_EnterRecursiveCall, (const char *)) \
	X(void, Py_LeaveRecursiveCall, (void)) \
	/* arguments */ \
	X(int, PyArg_ParseTuple, (PyObject *, const char *, ...)) \
	X(int, PyArg_ParseTupleAndKeywords, (PyObject *, PyObject *, const char *, char **, ...)) \
	X(int, PyArg_UnpackTuple, (PyObject *, const char *, Py_ssize_t, Py_ssize_t, ...)) \
	X(PyObject *, Py_BuildValue, (const char *, ...)) \
	/* interpreter and threads */ \
	X(PyThreadState *, PyEval_SaveThread, (void)) \
	X(void, PyEval_RestoreThread, (PyThreadState *)) \
	X(PyThreadState *, PyThreadState_Get, (void)) \
	X(PyObject *, PyThreadState_GetDict, (void)) /* borrowed */ \
	X(PyInterpreterState *, PyInterpreterState_Get, (void)) \
	X(int64_t, PyInterpreterState_GetID, (PyInterpreterState *)) \
	X(PyObject *, PyInterpreterState_GetDict, (PyInterpreterState *)) /* borrowed */ \
	/* without the GIL */ \
	X(PyGILState_STATE, PyGILState_Ensure, (void)) \
	X(void, PyGILState_Release, (PyGILState_STATE)) \
	X(PyThreadState *, PyGILState_GetThisThreadState, (void)) \
	X(int, PyGILState_Check, (void)) /* (*) */ \
	X(int, Py_AddPendingCall, (int (*)(void *), void *)) \
	X(int, Py_IsInitialized, (void)) \
	X(int, Py_AtExit, (void (*)(void))) \
	X(const char *, Py_GetVersion, (void)) \
	X(void, Py_InitializeEx, (int)) \
	X(int, Py_BytesMain, (int, char **)) \
	X(wchar_t *, Py_DecodeLocale, (const char *, size_t *)) \
	X(void *, PyMem_RawMalloc, (size_t)) \
	X(void, PyMem_RawFree, (void *))

/*
 * Optional: NULL where the running Python lacks them. The number says since when
 * (or until when) they are exported.
 */
#define USMB_PY_OPTIONAL(X) \
	X(PyObject *, PyErr_GetRaisedException, (void))                                 /* 3.12 */ \
	X(void, PyErr_SetRaisedException, (PyObject *))                                 /* 3.12 */ \
	X(int, Py_IsFinalizing, (void))                                                 /* 3.13 */ \
	X(int, _Py_IsFinalizing, (void))                                                /* to 3.12 */ \
	X(PyThreadState *, PyThreadState_GetUnchecked, (void))                          /* 3.13 */ \
	X(PyThreadState *, _PyThreadState_UncheckedGet, (void))                         /* to 3.12 */ \
	X(int, PyDict_GetItemRef, (PyObject *, PyObject *, PyObject **))                /* 3.13 */ \
	X(int, PyDict_GetItemStringRef, (PyObject *, const char *, PyObject **))        /* 3.13 */ \
	X(PyObject *, PyList_GetItemRef, (PyObject *, Py_ssize_t))                      /* 3.13 */ \
	X(int, PyObject_GetOptionalAttr, (PyObject *, PyObject *, PyObject **))         /* 3.13 */ \
	X(int, PyObject_GetOptionalAttrString, (PyObject *, const char *, PyObject **)) /* 3.13 */ \
	X(int, PyUnicode_EqualToUTF8, (PyObject *, const char *))                       /* 3.13 */ \
	X(PyObject *, PyImport_AddModuleRef, (const char *))                            /* 3.13 */ \
	X(PyObject *, PyObject_CallOneArg, (PyObject *, PyObject *))                    /* 3.9, inline elsewhere */ \
	X(PyObject *, PyObject_VectorcallDict, (PyObject *, PyObject *const *, size_t, PyObject *)) /* not stable */ \
	X(PyObject *, PyType_GetModuleByDef, (PyTypeObject *, PyModuleDef *)) /* 3.11, stable 3.13 */ \
	X(PyObject *, _PyType_Lookup, (PyTypeObject *, PyObject *))           /* borrowed, private */ \
	X(void, PyUnstable_Module_SetGIL, (PyObject *, void *))               /* free-threaded builds only */ \
	X(void, Py_SetProgramName, (const wchar_t *))                         /* to 3.14 */ \
	X(void, Py_SetPythonHome, (const wchar_t *))                          /* to 3.14 */ \
	/* not stable, 3.8: what decides on UTF-8 before the rest begins */ \
	X(void, PyPreConfig_InitPythonConfig, (void *)) \
	X(PyStatus, Py_PreInitialize, (const void *)) \
	/* PEP 741, 3.14: initialisation without the layout of PyConfig */ \
	X(void *, PyInitConfig_Create, (void)) \
	X(void, PyInitConfig_Free, (void *)) \
	X(int, PyInitConfig_SetStr, (void *, const char *, const char *)) \
	X(int, PyInitConfig_SetInt, (void *, const char *, int64_t)) \
	X(int, PyInitConfig_GetError, (void *, const char **)) \
	X(int, PyInitConfig_SetStrList, (void *, const char *, size_t, char *const *)) \
	X(int, Py_InitializeFromInitConfig, (void *))

#define USMB_PY_EXCEPTIONS(X) \
	X(PyExc_BaseException) \
	X(PyExc_Exception) \
	X(PyExc_ArithmeticError) \
	X(PyExc_AssertionError) \
	X(PyExc_AttributeError) \
	X(PyExc_BufferError) \
	X(PyExc_DeprecationWarning) \
	X(PyExc_EOFError) \
	X(PyExc_FileNotFoundError) \
	X(PyExc_ImportError) \
	X(PyExc_IndexError) \
	X(PyExc_KeyError) \
	X(PyExc_KeyboardInterrupt) \
	X(PyExc_LookupError) \
	X(PyExc_MemoryError) \
	X(PyExc_ModuleNotFoundError) \
	X(PyExc_NameError) \
	X(PyExc_NotImplementedError) \
	X(PyExc_OSError) \
	X(PyExc_OverflowError) \
	X(PyExc_PermissionError) \
	X(PyExc_RecursionError) \
	X(PyExc_ReferenceError) \
	X(PyExc_ResourceWarning) \
	X(PyExc_RuntimeError) \
	X(PyExc_RuntimeWarning) \
	X(PyExc_StopIteration) \
	X(PyExc_SyntaxError) \
	X(PyExc_SystemError) \
	X(PyExc_SystemExit) \
	X(PyExc_TimeoutError) \
	X(PyExc_TypeError) \
	X(PyExc_UnicodeDecodeError) \
	X(PyExc_UnicodeEncodeError) \
	X(PyExc_UserWarning) \
	X(PyExc_ValueError) \
	X(PyExc_Warning) \
	X(PyExc_ZeroDivisionError)

/* The exported structs behind these names are in usmb_pytable.c. */
#define USMB_PY_SINGLETONS(X) \
	X(Py_None) \
	X(Py_True) \
	X(Py_False) \
	X(Py_NotImplemented) \
	X(Py_Ellipsis)

#define USMB_PY_TYPES(X) \
	X(PyBaseObject_Type) \
	X(PyBool_Type) \
	X(PyByteArray_Type) \
	X(PyBytes_Type) \
	X(PyCFunction_Type) \
	X(PyCapsule_Type) \
	X(PyComplex_Type) \
	X(PyDict_Type) \
	X(PyFloat_Type) \
	X(PyList_Type) \
	X(PyLong_Type) \
	X(PyMemoryView_Type) \
	X(PyModule_Type) \
	X(PySet_Type) \
	X(PySlice_Type) \
	X(PyTuple_Type) \
	X(PyType_Type) \
	X(PyUnicode_Type)

#endif /* USMB_PYFUNCS_H */
